//! The operation's state machine, whole: every phase, lease, command and token, against an oracle
//! that is written from the protocol as ARCHITECTURE.md tells it and shares no code with the rules.

use super::fixture::*;
use super::*;
use crate::base::{Digest, Error, OwnerDid};
use crate::domain::{Aggregate, Fence, FencingToken, Lease, LeaseScope, RowKey, Table, Value};
use crate::testing::given::{Given, at};

const ID: &str = "op-1";
const NOW: i64 = 10_000;
const MARK: SendMark = SendMark { started_at: time(2_000), until: time(3_000) };
/// A read proves something if it began after it.
const SHOWN: i64 = 3_000 + DELAY;
const CURRENT: i64 = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Unsent,
    Sent,
    DeferredLater,
    DeferredDue,
    NoRead,
    ReadEarly,
    ReadLate,
    ReconcileDeferredLater,
    ReconcileDeferredDue,
    Committed,
    Dead,
}
use Phase::*;

const PHASES: [Phase; 11] = [
    Unsent,
    Sent,
    DeferredLater,
    DeferredDue,
    NoRead,
    ReadEarly,
    ReadLate,
    ReconcileDeferredLater,
    ReconcileDeferredDue,
    Committed,
    Dead,
];

impl Phase {
    /// The lease ends with the deferral, and with the operation.
    const fn can_be_leased(self) -> bool {
        matches!(self, Unsent | Sent | NoRead | ReadEarly | ReadLate)
    }

    const fn is_deferred_until(self) -> Option<i64> {
        match self {
            DeferredLater | ReconcileDeferredLater => Some(NOW + 1),
            DeferredDue | ReconcileDeferredDue => Some(NOW),
            _ => None,
        }
    }

    const fn is_reconciling(self) -> bool {
        matches!(
            self,
            NoRead | ReadEarly | ReadLate | ReconcileDeferredLater | ReconcileDeferredDue
        )
    }
}

/// Whose lease stands, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stands {
    holder: &'static str,
    expires_at: i64,
    generation: i64,
}

const fn stands(holder: &'static str, expires_at: i64, generation: i64) -> Option<Stands> {
    Some(Stands { holder, expires_at, generation })
}

const LEASES: [Option<Stands>; 7] = [
    None,
    stands("me", NOW + 1, 1),
    stands("other", NOW + 1, 1),
    stands("me", NOW, 1),
    stands("other", NOW, 1),
    stands("me", NOW + 1, 2),
    stands("other", NOW + 1, 2),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Current,
    Old,
    OtherGeneration,
}

const TOKENS: [Token; 3] = [Token::Current, Token::Old, Token::OtherGeneration];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Claim,
    ClaimOtherFacts(usize),
    Mark,
    Defer,
    DeferRefused,
    Unknown,
    NotWritten,
    BeginRead,
    Commit,
    CommitWatched,
    Die,
    Renew,
    Release,
}

fn asks() -> Vec<Ask> {
    let others = (0..5).map(Ask::ClaimOtherFacts);
    let rest = [
        Ask::Claim,
        Ask::Mark,
        Ask::Defer,
        Ask::DeferRefused,
        Ask::Unknown,
        Ask::NotWritten,
        Ask::BeginRead,
        Ask::Commit,
        Ask::CommitWatched,
        Ask::Die,
        Ask::Renew,
        Ask::Release,
    ];
    others.chain(rest).collect()
}

fn command(ask: Ask, token: FencingToken) -> DocumentCommand {
    match ask {
        Ask::Claim => claim(ID, "me"),
        Ask::ClaimOtherFacts(which) => {
            let mut other = claim_of(ID, "me");
            match which {
                0 => other.owner = OwnerDid::new("did:web:p").unwrap(),
                1 => other.connector = crate::base::ConnectorName::new("drive").unwrap(),
                2 => other.op = OperationKind::Delete,
                3 => other.version = hlc(8),
                _ => other.request_digest = Digest::of(b"other request"),
            }
            DocumentCommand::ClaimOperation(other)
        }
        Ask::Mark => mark(ID, token),
        Ask::Defer => defer(ID, token, false),
        Ask::DeferRefused => defer(ID, token, true),
        Ask::Unknown => record(ID, token, OperationOutcome::Unknown),
        Ask::NotWritten => record(ID, token, OperationOutcome::NotWritten),
        Ask::BeginRead => begin_read(ID, token),
        Ask::Commit => finalize(ID, token, committed(None)),
        Ask::CommitWatched => finalize(ID, token, committed(Some(options(9)))),
        Ask::Die => finalize(ID, token, dead()),
        Ask::Renew => renew(ID, token),
        Ask::Release => release(ID, token),
    }
}

/// The document in a phase, under a lease whose token has version `CURRENT`.
fn standing(phase: Phase, lease: Option<Stands>) -> Given<Document> {
    let first = Lease { holder: holder("me"), token: token(1), expires_at: time(1_500) };
    let mut events = vec![
        created(ID, 1, first.clone(), 1_000),
        DocumentEvent::OperationClaimed(OperationClaimed {
            operation_id: op(ID),
            lease: first,
            reconcile: false,
            attempts: 3,
            at: time(1_200),
        }),
    ];
    if phase == Sent || phase.is_reconciling() {
        events.push(DocumentEvent::SendStarted(SendStarted { operation_id: op(ID), mark: MARK }));
    }
    let phase_now = |phase| OperationRecorded { operation_id: op(ID), phase, at: time(3_100) };
    if phase.is_reconciling() {
        let reconcile = OperationPhase::ReconcileOnly { sent: MARK, read_at: None };
        events.push(DocumentEvent::OperationRecorded(phase_now(reconcile)));
    }
    for (of, read_at) in [(ReadEarly, SHOWN), (ReadLate, SHOWN + 1)] {
        if phase == of {
            let begun = ReconcileReadBegun { operation_id: op(ID), at: time(read_at) };
            events.push(DocumentEvent::ReconcileReadBegun(begun));
        }
    }
    if let Some(not_before) = phase.is_deferred_until() {
        events.push(DocumentEvent::OperationDeferred(OperationDeferred {
            operation_id: op(ID),
            reason: DeferReason::Offline,
            not_before: time(not_before),
            clears_mark: false,
            at: time(3_700),
        }));
    }
    let finals = [
        (Committed, OperationPhase::Committed { source_id: source("s0"), source_version: None }),
        (Dead, OperationPhase::Dead { error: "e0".to_owned() }),
    ];
    for (of, phase_then) in finals {
        if phase == of {
            let finalized =
                OperationFinalized { operation_id: op(ID), phase: phase_then, at: time(3_800) };
            events.push(DocumentEvent::OperationFinalized(finalized));
        }
    }
    if phase.can_be_leased() {
        events.push(DocumentEvent::OperationLeaseChanged(OperationLeaseChanged {
            operation_id: op(ID),
            lease: lease.map(|lease| Lease {
                holder: holder(lease.holder),
                token: FencingToken { generation: lease.generation, version: CURRENT },
                expires_at: time(lease.expires_at),
            }),
            at: time(3_900),
        }));
    }
    happened(&events)
}

/// What comes of it by the protocol.
#[derive(Debug)]
enum Comes {
    Refused(Error),
    /// An input that is not what the field takes.
    Invalid(&'static str),
    /// The answer, and nothing changes.
    Nothing,
    /// The recorded result.
    Finished,
    /// The operation is now so.
    Is(Box<Operation>),
}

fn claim_comes(mut after: Operation, phase: Phase, lease: Option<Stands>, new: i64) -> Comes {
    if matches!(phase, Committed | Dead) {
        return Comes::Finished;
    }
    if let Some(lease) = lease
        && (lease.holder, lease.generation, lease.expires_at) == ("other", 1, NOW + 1)
    {
        return Comes::Refused(Error::OperationBusy {
            operation_id: op(ID),
            expires_at: time(NOW + 1),
        });
    }
    if matches!(phase, DeferredLater | ReconcileDeferredLater) {
        return Comes::Refused(Error::Deferred {
            operation_id: op(ID),
            not_before: time(NOW + 1),
            reason: "offline",
        });
    }
    if matches!(phase, Unsent | DeferredDue) {
        after.attempts = 4;
    } else {
        after.phase = OperationPhase::ReconcileOnly { sent: MARK, read_at: None };
    }
    after.deferral = None;
    after.lease =
        Some(Lease { holder: holder("me"), token: token(new), expires_at: time(NOW + TTL) });
    Comes::Is(Box::new(after))
}

fn record_comes(mut after: Operation, phase: Phase, lease: Option<Stands>, ask: Ask) -> Comes {
    if ask == Ask::Unknown {
        match phase {
            Sent => after.phase = OperationPhase::ReconcileOnly { sent: MARK, read_at: None },
            Unsent => {
                let until = time(lease.map_or(0, |lease| lease.expires_at).max(NOW));
                let mark = SendMark { started_at: time(NOW), until };
                after.phase = OperationPhase::ReconcileOnly { sent: mark, read_at: None };
            }
            _ => return Comes::Nothing,
        }
    } else {
        match phase {
            Unsent => return Comes::Nothing,
            Sent => return Comes::Refused(Error::ReconcileFirst { operation_id: op(ID) }),
            ReadLate => after.phase = OperationPhase::Attempted { sent: None },
            _ => {
                return Comes::Refused(Error::ReconcileTooEarly {
                    operation_id: op(ID),
                    not_before: time(SHOWN),
                });
            }
        }
    }
    Comes::Is(Box::new(after))
}

fn expected(before: &Operation, phase: Phase, lease: Option<Stands>, ask: Ask, new: i64) -> Comes {
    let mut after = before.clone();
    after.updated_at = time(NOW);
    match ask {
        Ask::ClaimOtherFacts(_) => {
            return Comes::Refused(Error::OperationMismatch { operation_id: op(ID) });
        }
        Ask::Claim => return claim_comes(after, phase, lease, new),
        Ask::Mark => match (phase, lease.map(|lease| lease.expires_at > NOW)) {
            (Unsent, Some(true)) => {
                let mark = SendMark { started_at: time(NOW), until: time(NOW + 1) };
                after.phase = OperationPhase::Attempted { sent: Some(mark) };
            }
            (Unsent, _) => {
                return Comes::Refused(Error::LeaseExpired { scope: scope(ID).to_string() });
            }
            _ => return Comes::Refused(Error::ReconcileFirst { operation_id: op(ID) }),
        },
        Ask::Defer | Ask::DeferRefused => {
            match phase {
                Sent if ask == Ask::Defer => {
                    return Comes::Refused(Error::ReconcileFirst { operation_id: op(ID) });
                }
                Sent => after.phase = OperationPhase::Attempted { sent: None },
                _ => {}
            }
            after.lease = None;
            after.deferral = Some(DeferredUntil {
                reason: DeferReason::RateLimited,
                not_before: time(NOW + 300),
            });
        }
        Ask::Unknown | Ask::NotWritten => return record_comes(after, phase, lease, ask),
        Ask::BeginRead => {
            if !phase.is_reconciling() {
                return Comes::Invalid("operation");
            }
            after.phase = OperationPhase::ReconcileOnly { sent: MARK, read_at: Some(time(NOW)) };
        }
        Ask::Commit | Ask::CommitWatched | Ask::Die => {
            after.lease = None;
            after.phase = if ask == Ask::Die {
                OperationPhase::Dead { error: "gone".to_owned() }
            } else {
                let source_version = Some("etag".to_owned());
                OperationPhase::Committed { source_id: source("s"), source_version }
            };
        }
        Ask::Renew => {
            if let Some(lease) = &mut after.lease {
                lease.expires_at = time(NOW + TTL);
            }
        }
        Ask::Release => after.lease = None,
    }
    Comes::Is(Box::new(after))
}

/// A token is good while it is that of the standing lease, of this generation, expired or not.
fn is_good(lease: Option<Stands>, token: Token) -> bool {
    token == Token::Current && lease.is_some_and(|lease| lease.generation == 1)
}

fn spell(token: Token, lease: Option<Stands>) -> FencingToken {
    let generation = lease.map_or(1, |lease| lease.generation);
    match token {
        Token::Current => FencingToken { generation, version: CURRENT },
        Token::Old => FencingToken { generation, version: CURRENT - 1 },
        Token::OtherGeneration => FencingToken { generation: 3 - generation, version: CURRENT },
    }
}

/// All phases under all leases that they can have.
fn situations() -> Vec<(Phase, Option<Stands>)> {
    let leased = PHASES.iter().flat_map(|phase| LEASES.map(|lease| (*phase, lease)));
    leased.filter(|(phase, lease)| lease.is_none() || phase.can_be_leased()).collect()
}

#[test]
fn every_command_in_every_state_with_every_token_comes_to_what_the_protocol_says() {
    let mut tried = 0;
    for (phase, lease) in situations() {
        for (ask, token) in asks().into_iter().flat_map(|ask| TOKENS.map(|token| (ask, token))) {
            let case = format!("{phase:?} {lease:?} {ask:?} {token:?}");
            let mut given = standing(phase, lease);
            let before = operation(&given, ID).clone();
            let is_claim = matches!(ask, Ask::Claim | Ask::ClaimOtherFacts(_));
            let comes = if is_claim || is_good(lease, token) {
                expected(&before, phase, lease, ask, given.version + 1)
            } else {
                Comes::Refused(lost(ID))
            };
            check(&mut given, &command(ask, spell(token, lease)), &comes, &case);
            let watched = matches!(comes, Comes::Is(_)) && ask == Ask::CommitWatched;
            assert_eq!(given.state.watch.is_some(), watched, "{case}");
            tried += 1;
        }
    }
    assert_eq!(tried, (5 * 7 + 6) * 17 * 3);
}

fn check(given: &mut Given<Document>, command: &DocumentCommand, comes: &Comes, case: &str) {
    let before = operation(given, ID).clone();
    let version = given.version;
    let answer = given.tried(command, at(NOW));
    match (comes, answer) {
        (Comes::Refused(error), Err(refused)) => {
            assert_eq!(format!("{refused:?}"), format!("{error:?}"), "{case}");
        }
        (Comes::Invalid(named), Err(Error::InvalidInput { field, .. })) => {
            assert_eq!(field, *named, "{case}");
        }
        (Comes::Nothing, Ok(reply)) => assert_eq!(reply, DocumentReply::Done, "{case}"),
        (Comes::Finished, Ok(DocumentReply::Finished(record))) => {
            assert_eq!(record.operation, before, "{case}");
            assert_eq!((record.operation_id, record.document_id), (op(ID), document()), "{case}");
        }
        (Comes::Is(after), Ok(reply)) => {
            assert_eq!(operation(given, ID), &**after, "{case}");
            assert_reply(&reply, after, case);
            assert!(given.version > version, "{case}");
        }
        (_, answer) => panic!("{case}: expected {comes:?}, came {answer:?}"),
    }
    if !matches!(comes, Comes::Is(_)) {
        assert_eq!(given.version, version, "no event: {case}");
        assert_eq!(operation(given, ID), &before, "{case}");
    }
    given.assert_rows_are_those_of_the_state();
    assert_lease_row(given, case);
}

fn assert_reply(reply: &DocumentReply, after: &Operation, case: &str) {
    match reply {
        DocumentReply::Claimed { operation, lease } => {
            assert_eq!(
                (&operation.operation, Some(lease)),
                (after, after.lease.as_ref()),
                "{case}"
            );
        }
        DocumentReply::SendPermit(permit) => {
            let until = time(NOW + 1);
            assert_eq!(*permit, SendPermit { send_within_ms: 1, send_until: until }, "{case}");
        }
        DocumentReply::Lease(lease) => assert_eq!(Some(lease), after.lease.as_ref(), "{case}"),
        DocumentReply::Finalized(armed) => {
            assert!(armed.is_none_or(|armed| armed == ArmOutcome::Armed), "{case}");
            assert!(after.phase.is_final(), "{case}");
        }
        DocumentReply::Done => assert!(!after.phase.is_final(), "{case}"),
        other => panic!("{case}: {other:?}"),
    }
}

/// The row that other keys are fenced by is there exactly while the lease stands.
fn assert_lease_row(given: &Given<Document>, case: &str) {
    let row = given.written(&scope(ID).row_key()).map(|row| row.values.clone());
    let lease = operation(given, ID).lease.as_ref().map(|lease| {
        vec![
            Value::text("operation:doc-1\u{1f}op-1"),
            Value::text(lease.holder.as_str()),
            Value::text(format!("{}-{}", lease.token.generation, lease.token.version)),
            Value::Int(lease.expires_at.as_millis()),
        ]
    });
    assert_eq!(row, lease, "{case}");
}

#[test]
fn a_fence_on_an_operation_of_the_document_holds_while_its_token_is_good() {
    for (phase, lease) in situations() {
        for token in TOKENS {
            let given = standing(phase, lease);
            let token_is_good = is_good(lease, token);
            let fence = Fence { scope: scope(ID), token: spell(token, lease) };
            let context = crate::domain::Context { fence: Some(fence), ..at(NOW) };
            for command in [set_trim(), DocumentCommand::Operation { operation_id: op(ID) }] {
                let then = given.when(&command, context.clone());
                if token_is_good {
                    assert_eq!(then.events().is_empty(), is_read(&command));
                } else {
                    then.refused_with(&lost(ID));
                }
            }
        }
    }
}

#[test]
fn a_fence_of_another_scope_is_judged_elsewhere_and_one_of_no_operation_is_lost() {
    let given = standing(Unsent, LEASES[1]);
    let fenced = |scope| {
        let fence = Some(Fence { scope, token: token(1) });
        given.when(&set_trim(), crate::domain::Context { fence, ..at(NOW) })
    };
    let elsewhere = crate::base::DocumentId::new("doc-2").unwrap();
    let sync = LeaseScope::Sync { owner: owner(), connector: connector() };
    let other = LeaseScope::Operation { document_id: elsewhere, operation_id: op(ID) };
    for scope in [sync, other] {
        assert_eq!(fenced(scope).events().len(), 1);
    }
    fenced(scope("none")).refused_with(&lost("none"));
}

#[test]
fn commands_with_a_token_on_an_unknown_operation_find_nothing() {
    for ask in asks() {
        if !matches!(ask, Ask::Claim | Ask::ClaimOtherFacts(_)) {
            let refusal = Error::NotFound { what: "operation" };
            fresh().when(&command(ask, token(1)), at(NOW)).refused_with(&refusal);
        }
    }
}

/// A stored key may be anything: it names no row, and nothing panics.
#[test]
fn a_key_that_is_none_names_no_row() {
    let mut given = standing(Sent, LEASES[1]);
    given.done(&arm(1), at(NOW));
    given.done(&set_trim(), at(NOW));
    given.done(&put_copy(&copy_of(&owner(), 1, "a")), at(NOW));
    given.done(&put_repair(1), at(NOW));
    for table in Table::ALL {
        for length in 0..4 {
            for value in [Value::Null, Value::Int(i64::MIN), Value::text("p"), Value::text(ID)] {
                let odd = RowKey::new(table, vec![value; length]);
                let named = given.state.row(&key(), &odd);
                let is_of_the_operation = matches!(table, Table::Operation | Table::OperationId)
                    && odd.values == [Value::text(ID)];
                assert_eq!(named.is_some(), is_of_the_operation, "{odd:?}");
            }
        }
    }
}
