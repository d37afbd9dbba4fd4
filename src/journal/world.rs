//! A small world for tests of `verify` and `rebuild`: streams of every kind, rows in every table,
//! written by real commands.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::memory::{MemoryJournal, MemoryStorage};
use super::port::{Append, AppendOutcome, HistoryCut, NewEvent, NewSnapshot, Part, Storage};
use super::{LoadedState, encode_event, encode_snapshot, load_state};
use crate::base::{
    ConnectorName, Digest, DocumentId, Holder, Json, ModelId, OperationId, OwnerDid, PartitionId,
    Provenance, Rfc3339, Secret, SourceId, StreamKey, Timestamp,
};
use crate::domain::auth::{PendingAuth, PendingAuthCommand, PendingAuthRecord, auth_key};
use crate::domain::connector::{
    BeginReceipt, CommitReceipt, Comparison, CompleteReceipt, Connector, ConnectorCommand,
    ExtendReceipt, KnownDocument, MassDeleteGuard, ReceiptKey, ReceiptKind, SyncStateInput,
    SyncStatus, keep_content, pages_digest,
};
use crate::domain::document::{
    ClaimOperation, Document, DocumentCommand, FinalOutcome, ObservationRepair, OperationKind,
    PutObservationCopy, Token, WatchOptions, WatchReason,
};
use crate::domain::{Aggregate, Context, Row, RowChange, RowKey, StoredEvent, Table};
use crate::records::{Hlc, RecordCopy};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// Carries a command out, as the runtime does; with a snapshot, if asked.
pub(super) async fn run<A: Aggregate>(
    storage: &dyn Storage,
    key: &StreamKey,
    command: A::Command,
    snapshot: bool,
) {
    let loaded = load_state::<A>(storage, key).await.unwrap();
    run_on(storage, key, loaded, command, snapshot).await;
}

async fn run_on<A: Aggregate>(
    storage: &dyn Storage,
    key: &StreamKey,
    loaded: LoadedState<A>,
    command: A::Command,
    snapshot: bool,
) {
    let (mut state, expected) = (loaded.state, loaded.expected);
    let context = Context {
        now: NOW,
        id: Uuid::from_u128(77),
        jitter: 0.5,
        generation: 1,
        restored_at: None,
        next_version: expected.version + 1,
        fence: None,
        records_epoch: 0,
    };
    let decision = state.decide(key, &command, &context).unwrap();
    let mut touched = Vec::new();
    let mut events = Vec::new();
    for event in &decision.events {
        state.apply(event);
        A::touched(key, event, &mut touched);
        events.push(NewEvent {
            event_type: event.event_type(),
            schema: event.schema(),
            payload: encode_event(event).unwrap(),
            is_swept: event.is_swept(),
        });
    }
    let mut rows = decision.rows;
    for row_key in touched {
        let change = state.row(key, &row_key).map(|mut row| {
            for (_, column, value) in decision.content.iter().filter(|(at, ..)| *at == row_key) {
                row.values[*column] = value.clone();
            }
            RowChange::Put(row)
        });
        rows.push(change.unwrap_or(RowChange::Delete(row_key)));
    }
    let snapshot = (snapshot || decision.trim)
        .then(|| NewSnapshot { schema: 1, payload: encode_snapshot(&state).unwrap() });
    let part = Part {
        stream: key.stream_name(),
        kind: A::KIND,
        expected,
        events,
        rows,
        snapshot,
        erase: decision.erase,
        trim: decision.trim,
    };
    let position = storage.last_position().await.unwrap();
    let command_id = Uuid::from_u128(u128::try_from(position).unwrap() + 1);
    let append = Append {
        command_id,
        record: None,
        parts: vec![part],
        fences: Vec::new(),
        absent: Vec::new(),
    };
    let outcomes = storage.append(&[append], NOW).await.unwrap();
    assert!(matches!(outcomes[..], [AppendOutcome::Committed { .. }]));
}

pub(super) fn document(name: &str) -> StreamKey {
    StreamKey::Document(DocumentId::new(name).unwrap())
}

pub(super) fn connector(owner: &str) -> StreamKey {
    StreamKey::Connector(OwnerDid::new(owner).unwrap(), ConnectorName::new("files").unwrap())
}

fn json(text: &str) -> Json {
    Json::parse("json", text).unwrap()
}

pub(super) async fn set_trim(storage: &dyn Storage, name: &str, fields: &str, snapshot: bool) {
    let command = DocumentCommand::SetEntityTrim {
        owner: OwnerDid::new("did:web:o").unwrap(),
        connector: ConnectorName::new("files").unwrap(),
        trimmed_fields: json(fields),
    };
    run::<Document>(storage, &document(name), command, snapshot).await;
}

async fn documents(storage: &dyn Storage) {
    for at in 0..5 {
        set_trim(storage, "long", &format!("[{at}]"), at == 2).await;
    }
    set_trim(storage, "short", "[]", false).await;
    run::<Document>(storage, &document("short"), DocumentCommand::BeginDocumentSweep, false).await;
    set_trim(storage, "swept", "[]", true).await;
    sweep(storage, "swept").await;
    set_trim(storage, "swept", "[1]", false).await;
    operations(storage).await;
    for document in ["swept", "forgotten"] {
        let key = self::document(document);
        let claim = DocumentCommand::ClaimOperation(claim(&format!("{document}-1")));
        run::<Document>(storage, &key, claim, false).await;
        let finalize = finalize(storage, &key, &format!("{document}-1")).await;
        run::<Document>(storage, &key, finalize, false).await;
        set_trim(storage, document, "[]", false).await;
    }
    put_copy(storage, "swept", copy("did:web:o", "a", 1, Some(b"swept")), false).await;
    put_repair(storage, "swept", 1, false).await;
    sweep(storage, "swept").await;
    let (owner, connector) = (claim("x").owner, claim("x").connector);
    let forget = DocumentCommand::ForgetDocumentConnection { owner, connector };
    run::<Document>(storage, &document("forgotten"), forget, false).await;
    observations(storage).await;
}

/// Copies of several owners and signers, with a value and without; superseded and pruned ones;
/// repairs that were replaced, and one that was cleared.
async fn observations(storage: &dyn Storage) {
    for (owner, signer, version, payload) in [
        ("did:web:o", "superseded", 1, Some("old")),
        ("did:web:o", "a", 2, Some("new")),
        ("did:web:o", "b", 2, Some("new")),
        ("did:web:o", "pruned", 2, Some("new")),
        ("did:web:p", "a", 1, None),
        ("did:web:p", "b", 1, None),
        ("did:web:q", "a", 1, Some("")),
    ] {
        let put = copy(owner, signer, version, payload.map(str::as_bytes));
        put_copy(storage, "observed", put, version == 2).await;
    }
    let (owner, issuer) = (claim("x").owner, "did:web:pruned".into());
    let prune = DocumentCommand::PruneObservationCopies { owner, issuer };
    run_verified(storage, "observed", prune, false).await;
    for (document, fetched) in [("observed", 1), ("observed", 2), ("cleared", 3), ("repaired", 4)] {
        put_repair(storage, document, fetched, false).await;
    }
    run::<Document>(storage, &document("cleared"), DocumentCommand::ClearRepair, false).await;
    set_trim(storage, "repaired", "[]", false).await;
}

/// A valid copy of an owner's record.
pub(super) fn copy(
    owner: &str,
    signer: &str,
    version: i64,
    payload: Option<&[u8]>,
) -> PutObservationCopy {
    let text = format!("{TOKEN} of {signer} for {owner} at {version}");
    let token = Token::new(text.as_str().into());
    token.note(0, true);
    let issuer: Arc<str> = format!("did:web:{signer}").into();
    let copy = RecordCopy {
        hlc: hlc(version),
        version: hlc(version),
        claim_digest: Digest::of(b"claim"),
        signer_key: Arc::clone(&issuer),
        issuer,
        op_hash: Digest::of(text.as_bytes()),
        token_bytes: text.len() as u64,
    };
    let owner = OwnerDid::new(owner).unwrap();
    PutObservationCopy { owner, copy, token: Arc::new(token), payload: payload.map(Arc::from) }
}

/// What each token begins with.
pub(super) const TOKEN: &str = "token-of-a-copy";

pub(super) async fn put_copy(
    storage: &dyn Storage,
    name: &str,
    put: PutObservationCopy,
    snapshot: bool,
) {
    let put = DocumentCommand::PutObservationCopy(Box::new(put));
    run_verified(storage, name, put, snapshot).await;
}

/// Carries a command out on a document whose copies have been found valid.
async fn run_verified(storage: &dyn Storage, name: &str, command: DocumentCommand, snapshot: bool) {
    let key = document(name);
    let loaded = load_state::<Document>(storage, &key).await.unwrap();
    for observation in loaded.state.observations.values() {
        let tokens = observation.content.values().filter_map(|content| content.token.as_ref());
        tokens.for_each(|token| token.note(0, true));
    }
    run_on::<Document>(storage, &key, loaded, command, snapshot).await;
}

pub(super) async fn put_repair(storage: &dyn Storage, name: &str, fetched: i64, snapshot: bool) {
    let repair = ObservationRepair {
        owner: claim("x").owner,
        fetch_hlc: hlc(fetched),
        decision_hlc: hlc(fetched + 1),
        present: true,
        value_digest: None,
    };
    let put = DocumentCommand::PutRepair(Box::new(repair));
    run::<Document>(storage, &document(name), put, snapshot).await;
}

pub(super) async fn sweep(storage: &dyn Storage, name: &str) {
    run::<Document>(storage, &document(name), DocumentCommand::SweepDocumentRows, false).await;
}

fn hlc(millis: i64) -> Hlc {
    Hlc::parse(&format!("{millis:015}-00000000-n")).unwrap()
}

fn claim(operation_id: &str) -> ClaimOperation {
    ClaimOperation {
        operation_id: OperationId::new(operation_id).unwrap(),
        owner: OwnerDid::new("did:web:o").unwrap(),
        connector: ConnectorName::new("files").unwrap(),
        op: OperationKind::Update,
        version: hlc(1),
        request_digest: Digest::of(b"request"),
        visibility_delay_ms: 5,
        holder: Holder::new("host").unwrap(),
        ttl_ms: 1_000,
    }
}

/// The end of a claimed operation, with a watch.
async fn finalize(storage: &dyn Storage, key: &StreamKey, id: &str) -> DocumentCommand {
    let state = load_state::<Document>(storage, key).await.unwrap().state;
    let operation_id = OperationId::new(id).unwrap();
    let token = state.operations[&operation_id].lease.as_ref().unwrap().token;
    let watch = WatchOptions {
        reason: WatchReason::Write,
        expected_digest: Some(Digest::of(b"written")),
        written_hlc: hlc(1),
        deadline_ms: 60_000,
    };
    let outcome = FinalOutcome::Committed {
        source_id: SourceId::new("source").unwrap(),
        source_version: Some("etag".into()),
        watch: Some(watch),
    };
    DocumentCommand::FinalizeOperation { operation_id, token, outcome }
}

/// A document with a finished operation, its watch, and one that is being sent.
async fn operations(storage: &dyn Storage) {
    let key = document("written");
    let run = async |command| run::<Document>(storage, &key, command, false).await;
    run(DocumentCommand::ClaimOperation(claim("written-1"))).await;
    run(finalize(storage, &key, "written-1").await).await;
    run(DocumentCommand::ClaimOperation(claim("written-2"))).await;
    let state = load_state::<Document>(storage, &key).await.unwrap().state;
    let operation_id = claim("written-2").operation_id;
    let token = state.operations[&operation_id].lease.as_ref().unwrap().token;
    run(DocumentCommand::MarkSendStarted { operation_id, token }).await;
}

/// The tables that the world has rows in.
pub(super) fn tables() -> impl Iterator<Item = Table> {
    Table::ALL.into_iter()
}

/// One enumeration of a partition, from begin to commit.
async fn receipt(storage: &dyn Storage, key: &StreamKey, partition: &str, missing: &[&str]) {
    let run = async |command| run::<Connector>(storage, key, command, false).await;
    let receipt = ReceiptKey {
        partition: PartitionId::new(partition).unwrap(),
        provenance: Provenance::new("line").unwrap(),
        sequence: 1,
    };
    let begin = BeginReceipt {
        partition: receipt.partition.clone(),
        provenance: receipt.provenance.clone(),
        model_id: ModelId::new("note").unwrap(),
        scope: "all".into(),
        source_fetch_hlc: Hlc::parse(&format!("{:015}-00000000-n", 1)).unwrap(),
        predicate: None,
        kind: ReceiptKind::Full,
        fingerprint: "f".into(),
    };
    run(ConnectorCommand::BeginReceipt(begin)).await;
    let ids: Vec<SourceId> = ["b", "a"].map(|id| SourceId::new(id).unwrap()).into();
    let extend = ExtendReceipt {
        key: receipt.clone(),
        page: 0,
        source_ids: ids.clone(),
        fingerprint: "f".into(),
    };
    run(ConnectorCommand::ExtendReceipt(extend)).await;
    let page = crate::domain::connector::SourceIdList::of(&ids).content().digest;
    let (distinct, keep) = keep_content(&[ids]);
    let complete = CompleteReceipt {
        key: receipt.clone(),
        pages: 1,
        expected_count: Some(2),
        fingerprint: "f".into(),
        distinct,
        pages_digest: pages_digest(&[page]),
        keep,
    };
    run(ConnectorCommand::CompleteReceipt(complete)).await;
    let missing = missing.iter().map(|name| KnownDocument {
        document_id: DocumentId::new(name).unwrap(),
        source_id: SourceId::new(name).unwrap(),
    });
    let comparison = Comparison { known: 4, missing: missing.collect(), kept_again: Vec::new() };
    let guard = MassDeleteGuard::default();
    run(ConnectorCommand::CommitReceipt(CommitReceipt { key: receipt, comparison, guard })).await;
}

async fn connectors(storage: &dyn Storage) {
    for (owner, recovery) in [("did:web:a", Some("{\"page\":7}")), ("did:web:a!", None)] {
        let key = connector(owner);
        let input = SyncStateInput {
            checkpoint: Some(json("\"here\"")),
            recovery: recovery.map(json),
            last_synced_at: Rfc3339::from_timestamp(NOW),
            entity_count: 3,
            status: SyncStatus::Syncing,
            error: None,
        };
        run::<Connector>(storage, &key, ConnectorCommand::SetSyncState(input), false).await;
        let holder = Holder::new("host").unwrap();
        let acquire = ConnectorCommand::AcquireLease { holder, ttl_ms: 1_000 };
        run::<Connector>(storage, &key, acquire, true).await;
        receipt(storage, &key, "inbox", &["short", "x"]).await;
        receipt(storage, &key, "done", &[]).await;
        let lost = ConnectorCommand::CursorLost { partition: PartitionId::new("inbox").unwrap() };
        run::<Connector>(storage, &key, lost, false).await;
    }
    // One that is being forgotten, and one that was.
    for (owner, mark) in [("did:web:b", None), ("did:web:c", Some(1))] {
        let key = connector(owner);
        run::<Connector>(storage, &key, ConnectorCommand::BeginForget, false).await;
        if let Some(mark) = mark {
            let finish = ConnectorCommand::FinishForget { mark };
            run::<Connector>(storage, &key, finish, false).await;
        }
    }
}

pub(super) const SECRET_STATES: [&str; 3] = ["secret-one", "secret-two", "secret-consumed"];

async fn auths(storage: &dyn Storage) {
    for state in SECRET_STATES {
        let record = PendingAuthRecord {
            state: Secret::new(state),
            code_verifier: Secret::new("verifier"),
            provider: "provider".into(),
            owner: OwnerDid::new("did:web:a").unwrap(),
            owner_wrappable_did: None,
            controller_wrappable_did: None,
            created_at: NOW,
            redirect_url: "https://host.example/back".into(),
            scopes: vec!["read".into()],
            is_incremental: false,
            expires_at: NOW.plus_millis(60_000),
        };
        let create = PendingAuthCommand::CreatePendingAuth(Box::new(record));
        run::<PendingAuth>(storage, &auth_key(&Secret::new(state)), create, false).await;
    }
    let state = Secret::new(SECRET_STATES[2]);
    let key = auth_key(&state);
    let consume = PendingAuthCommand::ConsumePendingAuth { state };
    run::<PendingAuth>(storage, &key, consume, false).await;
}

/// Streams of every kind and rows in every table.
pub(super) async fn populate(storage: &dyn Storage) {
    documents(storage).await;
    connectors(storage).await;
    auths(storage).await;
}

/// The same in memory; after retention, if asked.
pub(super) async fn world(cut: bool) -> (MemoryJournal, MemoryStorage) {
    let journal = MemoryJournal::new();
    let storage = journal.open().unwrap();
    populate(&storage).await;
    if cut {
        let cut = HistoryCut { recorded_before: NOW.plus_millis(1), limit: 100 };
        assert!(storage.cut_history(cut).await.unwrap() > 0);
    }
    (journal, storage)
}

/// Every row with its values.
pub(super) fn all_rows(journal: &MemoryJournal) -> BTreeMap<RowKey, Row> {
    journal.tamper(|tables| tables.rows.clone())
}
