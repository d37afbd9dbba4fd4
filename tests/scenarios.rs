//! Rules of each aggregate as tables: what was given, when a command comes, then what it comes to.
//!
//! Written as a user of the crate writes them: by public names alone, without a store.
// A test that cannot go on should stop.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use connector_store::domain::auth::{PendingAuthCommand, PendingAuthReply};
use connector_store::domain::connector::{
    CommitReceipt, Comparer, CompleteReceipt, Connector, ConnectorCommand, ConnectorReply,
    ExtendReceipt, KnownDocument, SourceIdList, keep_content, pages_digest,
};
use connector_store::domain::document::{
    ClaimOperation, Document, DocumentCommand, DocumentEvent, DocumentReply, FinalOutcome,
    OperationOutcome, WatchOptions,
};
use connector_store::domain::{FencingToken, Row, Table, Value};
use connector_store::testing::Scenario;
use connector_store::{
    BeginReceipt, ConnectorName, Digest, DocumentId, Hlc, Holder, MassDeleteGuard, ModelId,
    OperationId, OperationKind, OwnerDid, PartitionId, PendingAuthRecord, Provenance, ReceiptKey,
    ReceiptKind, Secret, SourceId, Timestamp, Verification, WatchIdentity, WatchReason,
};

const TTL: i64 = 1_000;
const DELAY: i64 = 500;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn owner() -> OwnerDid {
    OwnerDid::new("did:web:ann").unwrap()
}

fn caldav() -> ConnectorName {
    ConnectorName::new("caldav").unwrap()
}

fn hlc(millis: i64) -> Hlc {
    Hlc::parse(&format!("{millis:015}-00000000-n")).unwrap()
}

fn token(version: i64) -> FencingToken {
    FencingToken { generation: 1, version }
}

fn op() -> OperationId {
    OperationId::new("op").unwrap()
}

fn source(id: &str) -> SourceId {
    SourceId::new(id).unwrap()
}

fn claim(holder: &str) -> DocumentCommand {
    DocumentCommand::ClaimOperation(ClaimOperation {
        operation_id: op(),
        owner: owner(),
        connector: caldav(),
        op: OperationKind::Update,
        version: hlc(7),
        request_digest: Digest::of(b"request"),
        visibility_delay_ms: DELAY,
        holder: Holder::new(holder).unwrap(),
        ttl_ms: TTL,
    })
}

fn mark(version: i64) -> DocumentCommand {
    DocumentCommand::MarkSendStarted { operation_id: op(), token: token(version) }
}

fn record(version: i64, outcome: OperationOutcome) -> DocumentCommand {
    DocumentCommand::RecordOperation { operation_id: op(), token: token(version), outcome }
}

fn ask(version: i64) -> DocumentCommand {
    DocumentCommand::BeginReconcileRead { operation_id: op(), token: token(version) }
}

fn dead(version: i64) -> DocumentCommand {
    let outcome = FinalOutcome::Dead { error: "gone".to_owned() };
    DocumentCommand::FinalizeOperation { operation_id: op(), token: token(version), outcome }
}

fn claimed() -> Scenario<Document> {
    Scenario::document("d").given(claim("host-1"))
}

/// The request has left, and its outcome is not known.
fn in_doubt() -> Scenario<Document> {
    claimed().given(mark(1)).given(record(1, OperationOutcome::Unknown))
}

#[test]
fn an_operation_is_sent_once_and_only_by_who_holds_it() {
    let asked_at = |millis| in_doubt().after(ms(millis)).given(ask(1));
    let absent = OperationOutcome::NotWritten;
    type Refused = (&'static str, Scenario<Document>, DocumentCommand, &'static str);
    let refused: [Refused; 9] = [
        ("held", claimed().after(ms(999)), claim("host-2"), "CONNECTOR_OPERATION_BUSY"),
        ("token", claimed(), mark(2), "CONNECTOR_LEASE_LOST"),
        ("expired", claimed().after(ms(1_000)), mark(1), "CONNECTOR_LEASE_EXPIRED"),
        ("sent", claimed().given(mark(1)), mark(1), "CONNECTOR_RECONCILE_FIRST"),
        ("unasked", in_doubt(), mark(1), "CONNECTOR_RECONCILE_FIRST"),
        ("early", asked_at(1_500), record(1, absent), "CONNECTOR_RECONCILE_TOO_EARLY"),
        (
            "taken",
            claimed().after(ms(1_000)).given(claim("host-2")),
            dead(1),
            "CONNECTOR_LEASE_LOST",
        ),
        ("swept", begun_sweep(), claim("host-1"), "CONNECTOR_DOCUMENT_BEING_SWEPT"),
        ("forgotten", forgotten(), claim("host-1"), "CONNECTOR_CONNECTION_FORGOTTEN"),
    ];
    for (case, scenario, command, code) in refused {
        let after = scenario.when(command).refused(code).and_then();
        assert_eq!(after.state(), scenario.state(), "{case}: a refusal changes nothing");
    }

    type Done = (&'static str, Scenario<Document>, DocumentCommand, &'static str);
    let done: [Done; 6] = [
        ("new", Scenario::document("d"), claim("host-1"), "attempted"),
        ("expired", claimed().after(ms(1_000)), claim("host-2"), "attempted"),
        ("sent", claimed().after(ms(999)), mark(1), "attempted"),
        (
            "unknown",
            claimed().given(mark(1)),
            record(1, OperationOutcome::Unknown),
            "reconcile_only",
        ),
        ("absent", asked_at(1_501), record(1, absent), "attempted"),
        ("dead", claimed(), dead(1), "dead"),
    ];
    for (case, scenario, command, state) in done {
        let then = scenario.when(command);
        let after = then.row(Table::Operation, &[("state", Value::text(state))]).and_then();
        assert_ne!(after.state(), scenario.state(), "{case}");
    }
}

fn begun_sweep() -> Scenario<Document> {
    Scenario::document("d").given(DocumentCommand::BeginDocumentSweep)
}

fn forgotten() -> Scenario<Document> {
    let names = [Value::text("did:web:ann"), Value::text("caldav"), Value::Int(1)];
    Scenario::document("d").beside(Row::new(Table::Forgetting, names.to_vec()))
}

#[test]
fn a_sent_operation_is_taken_over_to_be_asked_for() {
    let sent = claimed().given(mark(1)).after(ms(1_000));
    sent.when(claim("host-2")).row(
        Table::Operation,
        &[("state", Value::text("reconcile_only")), ("lease_holder", Value::text("host-2"))],
    );
}

#[test]
fn what_a_store_did_before_its_restore_is_to_be_asked_for() {
    let restored = Scenario::document("d").with(|context| {
        context.restored_at = Some(Timestamp::from_millis(10));
        context.generation = 2;
    });
    let columns = [("state", Value::text("reconcile_only")), ("lease_token", Value::text("2-1"))];
    restored.when(claim("host-1")).row(Table::Operation, &columns);
}

fn watch() -> Scenario<Document> {
    Scenario::document("d").given(DocumentCommand::ArmWatch {
        identity: WatchIdentity { owner: owner(), connector: caldav(), source_id: source("s") },
        options: WatchOptions {
            reason: WatchReason::Write,
            expected_digest: Some(Digest::of(b"written")),
            written_hlc: hlc(5),
            deadline_ms: 100,
        },
    })
}

#[test]
fn a_watch_stands_until_the_written_value_is_read_or_its_time_is_over() {
    let seen = |fetch, value: &[u8]| DocumentCommand::RecordVerification {
        fetch_hlc: hlc(fetch),
        observed: Some(Digest::of(value)),
    };
    let mismatched = || watch().given(seen(5, b"other"));
    let [pending, other, expired] = [Some("pending"), Some("mismatched"), Some("expired")];
    let counted = |count| Verification::Mismatched { count };
    type Case = (Scenario<Document>, DocumentCommand, Verification, Option<&'static str>);
    let cases: [Case; 7] = [
        (Scenario::document("d"), seen(9, b"written"), Verification::NoWatch, None),
        (watch(), seen(4, b"written"), Verification::Stale, pending),
        (watch(), seen(5, b"written"), Verification::Verified, None),
        (watch().after(ms(100)), seen(5, b"written"), Verification::Verified, None),
        (watch().after(ms(99)), seen(5, b"other"), counted(1), other),
        (mismatched(), seen(6, b"other"), counted(2), other),
        (watch().after(ms(100)), seen(5, b"other"), Verification::Expired, expired),
    ];
    for (scenario, command, verification, status) in cases {
        let then = scenario.when(command).replies(DocumentReply::Verification(verification));
        match status {
            None => then.no_row(Table::ProjectionWatch, &[]),
            Some(word) => then.row(Table::ProjectionWatch, &[("status", Value::text(word))]),
        };
    }
    watch().when(seen(5, b"written")).then(&[DocumentEvent::WatchVerified]);
    let read = watch().happened(&[DocumentEvent::WatchVerified]);
    read.when(seen(6, b"other")).replies(DocumentReply::Verification(Verification::NoWatch));
}

#[test]
fn a_sync_lease_is_one_holders_until_it_ends_or_is_given_back() {
    let acquire = |holder: &str| ConnectorCommand::AcquireLease {
        holder: Holder::new(holder).unwrap(),
        ttl_ms: TTL,
    };
    let renew = |version| ConnectorCommand::RenewLease { token: token(version), ttl_ms: TTL };
    let release = |version| ConnectorCommand::ReleaseLease { token: token(version) };
    let held = || Scenario::connector("did:web:ann", "caldav").given(acquire("host-1"));
    let taken = || held().after(ms(1_000)).given(acquire("host-2"));
    let restored = || held().with(|context| context.generation = 2);

    type Refused = (Scenario<Connector>, ConnectorCommand, &'static str);
    let refused: [Refused; 5] = [
        (held().after(ms(999)), acquire("host-2"), "CONNECTOR_LEASE_HELD"),
        (held(), renew(2), "CONNECTOR_LEASE_LOST"),
        (taken(), renew(1), "CONNECTOR_LEASE_LOST"),
        (taken(), release(1), "CONNECTOR_LEASE_LOST"),
        (restored(), renew(1), "CONNECTOR_LEASE_LOST"),
    ];
    for (scenario, command, code) in refused {
        scenario.when(command).refused(code);
    }

    type Stands =
        (Scenario<Connector>, ConnectorCommand, Option<(&'static str, &'static str, i64)>);
    let stands: [Stands; 6] = [
        (held().after(ms(10)), acquire("host-1"), Some(("host-1", "1-2", 1_010))),
        (held().after(ms(10)), renew(1), Some(("host-1", "1-1", 1_010))),
        (held().after(ms(9_000)), renew(1), Some(("host-1", "1-1", 10_000))),
        (held().after(ms(1_000)), acquire("host-2"), Some(("host-2", "1-2", 2_000))),
        (restored(), acquire("host-2"), Some(("host-2", "2-2", 1_000))),
        (held(), release(1), None),
    ];
    for (scenario, command, row) in stands {
        let then = scenario.when(command);
        match row {
            None => then.replies(ConnectorReply::Done).no_row(Table::Lease, &[]),
            Some((holder, token, expires_at)) => then.row(
                Table::Lease,
                &[
                    ("holder", Value::text(holder)),
                    ("token", Value::text(token)),
                    ("expires_at", Value::Int(expires_at)),
                ],
            ),
        };
    }
}

/// An enumeration that lists the entities `e0`, `e1`, … and has ended.
fn enumerated(listed: usize, said: Option<u64>) -> Scenario<Connector> {
    let ids: Vec<SourceId> = (0..listed).map(|at| source(&format!("e{at}"))).collect();
    let (distinct, keep) = keep_content(std::slice::from_ref(&ids));
    let fingerprint = || "f".to_owned();
    Scenario::connector("did:web:ann", "caldav")
        .given(ConnectorCommand::BeginReceipt(BeginReceipt {
            partition: receipt().partition,
            provenance: receipt().provenance,
            model_id: ModelId::new("event").unwrap(),
            scope: "calendar".to_owned(),
            source_fetch_hlc: hlc(1),
            predicate: None,
            kind: ReceiptKind::Full,
            fingerprint: fingerprint(),
        }))
        .given(ConnectorCommand::ExtendReceipt(ExtendReceipt {
            key: receipt(),
            page: 0,
            source_ids: ids.clone(),
            fingerprint: fingerprint(),
        }))
        .given(ConnectorCommand::CompleteReceipt(CompleteReceipt {
            key: receipt(),
            pages: 1,
            expected_count: said,
            fingerprint: fingerprint(),
            distinct,
            pages_digest: pages_digest(&[SourceIdList::of(&ids).content().digest]),
            keep,
        }))
}

fn receipt() -> ReceiptKey {
    ReceiptKey {
        partition: PartitionId::new("p").unwrap(),
        provenance: Provenance::new("a").unwrap(),
        sequence: 1,
    }
}

/// The commit of an enumeration that lists `listed` of `known` documents.
fn commit(known: usize, listed: usize, allow_mass_delete: bool) -> ConnectorCommand {
    let documents = (0..known).map(|at| KnownDocument {
        document_id: DocumentId::new(format!("d{at}")).unwrap(),
        source_id: source(&format!("e{at}")),
    });
    let mut comparer = Comparer::new(documents.collect(), Vec::new());
    comparer.page(&(0..listed).map(|at| source(&format!("e{at}"))).collect::<Vec<_>>());
    let guard = MassDeleteGuard { max_ratio: 0.29, min_count: 5, allow_mass_delete };
    ConnectorCommand::CommitReceipt(CommitReceipt {
        key: receipt(),
        comparison: comparer.finish(),
        guard,
    })
}

#[test]
fn a_receipt_that_lacks_too_much_of_what_is_known_is_not_believed() {
    let refused = Some("CONNECTOR_SWEEP_TOO_LARGE");
    let cases = [
        ("the ratio is not passed", 100, 71, None, false, None),
        ("it is", 100, 70, None, false, refused),
        ("lifted", 100, 70, None, true, None),
        ("few", 5, 1, None, false, None),
        ("few, but all", 3, 0, None, false, refused),
        ("all, as the provider says", 3, 0, Some(0), false, None),
        ("too many, whatever it says", 9, 0, Some(0), false, refused),
    ];
    for (case, known, listed, said, lifted, refusal) in cases {
        println!("{case}");
        let scenario = enumerated(listed, said);
        let then = scenario.when(commit(known, listed, lifted));
        let pending = [("state", Value::text("pending"))];
        match refusal {
            Some(code) => then.refused(code).no_row(Table::SweepCandidate, &[]),
            None => then.row(Table::SweepCandidate, &pending),
        };
    }
}

#[test]
fn an_authorization_is_handed_out_once() {
    let state = || Secret::new("s3cret");
    let record = || PendingAuthRecord {
        state: state(),
        code_verifier: Secret::new("v"),
        provider: "caldav".to_owned(),
        owner: owner(),
        owner_wrappable_did: None,
        controller_wrappable_did: None,
        created_at: Timestamp::from_millis(0),
        redirect_url: "https://host.example/back".to_owned(),
        scopes: Vec::new(),
        is_incremental: false,
        expires_at: Timestamp::from_millis(600),
    };
    let create = || PendingAuthCommand::CreatePendingAuth(Box::new(record()));
    let consume = || PendingAuthCommand::ConsumePendingAuth { state: state() };
    let expire = |cutoff| PendingAuthCommand::ExpirePendingAuth {
        cutoff: Timestamp::from_millis(cutoff),
        state: state(),
    };
    let absent = || Scenario::authorization(&state());
    let pending = || absent().given(create());
    let expired = |removed| PendingAuthReply::Expired { removed };

    pending().when(create()).refused("CONNECTOR_ALREADY_EXISTS");
    absent().when(consume()).refused("CONNECTOR_NOT_FOUND");
    pending().given(consume()).when(consume()).refused("CONNECTOR_ALREADY_CONSUMED");
    pending().given(expire(601)).when(consume()).refused("CONNECTOR_NOT_FOUND");

    pending().when(expire(600)).then_nothing().replies(expired(false));
    pending().when(expire(601)).replies(expired(true)).no_row(Table::PendingAuth, &[]);
    pending()
        .when(consume())
        .replies(PendingAuthReply::Consumed(Box::new(record())))
        .no_row(Table::PendingAuth, &[]);
}

#[test]
fn what_does_not_hold_is_told_with_state_events_and_rows_but_no_secret() {
    let told = |assertion: fn()| {
        let told = std::panic::catch_unwind(assertion).unwrap_err();
        told.downcast_ref::<String>().unwrap().clone()
    };
    let message = told(|| {
        claimed().after(ms(3)).when(mark(1)).refused("CONNECTOR_LEASE_LOST");
    });
    for part in ["mark_send_started at ", "SendStarted", "state=attempted", "send_until=1000"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    let told_of: [fn(); 6] = [
        || drop(claimed().when(claim("host-2")).then_nothing()),
        || drop(claimed().when(mark(1)).then_nothing()),
        || drop(claimed().when(mark(2)).refused("CONNECTOR_LEASE_EXPIRED")),
        || drop(claimed().when(mark(1)).replies(DocumentReply::Done)),
        || {
            drop(
                claimed().when(dead(1)).no_row(Table::Operation, &[("error", Value::text("gone"))]),
            )
        },
        || drop(claimed().given(mark(2))),
    ];
    for (case, assertion) in told_of.into_iter().enumerate() {
        let message = told(assertion);
        assert!(message.contains("operation_id=op"), "{case}: {message}");
    }
    let secret = Secret::new("s3cret");
    let message = told(|| {
        let consume = PendingAuthCommand::ConsumePendingAuth { state: Secret::new("s3cret") };
        let _ = Scenario::authorization(&Secret::new("s3cret")).given(consume);
    });
    assert!(message.contains("CONNECTOR_NOT_FOUND") && !message.contains(secret.expose()));
}
