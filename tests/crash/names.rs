//! How the crash test names its keys, and what it gives to the store: the same in both processes.

use std::path::Path;
use std::sync::Arc;

use connector_store::journal::{SqliteOptions, SqliteStorage, Storage};
use connector_store::{
    BeginReceipt, CandidateKey, ConnectorName, DocumentId, Hlc, Holder, Json, ModelId, OwnerDid,
    PartitionId, PendingAuthRecord, Provenance, ReceiptKey, ReceiptKind, Rfc3339, Secret, SourceId,
    SyncProgress, SyncStateInput, SyncStatus, Timestamp,
};

use crate::work::{DOCS, EXPIRING_TASK, recovery, status, text};

/// The wall clock at open: any will do, for it only seeds the store's generation.
const OPENED_AT: Timestamp = Timestamp::from_millis(1_750_000_000_000);
/// Far behind every cut-off.
const NEVER: i64 = 4_000_000_000_000;

pub const FINGERPRINT: &str = "account 1";

pub async fn open(path: &Path) -> Arc<dyn Storage> {
    Arc::new(SqliteStorage::open(SqliteOptions::new(path, OPENED_AT)).await.unwrap())
}

pub fn owner(task: usize) -> OwnerDid {
    OwnerDid::new(format!("did:web:task-{task}")).unwrap()
}

pub fn connector() -> ConnectorName {
    ConnectorName::new("crash").unwrap()
}

pub fn document(task: usize, doc: usize) -> DocumentId {
    DocumentId::new(format!("task-{task}-doc-{doc}")).unwrap()
}

/// The place of a document among its task's.
pub fn place(document: &DocumentId) -> usize {
    document.as_str().rsplit('-').next().unwrap().parse().unwrap()
}

pub fn source(doc: usize) -> SourceId {
    SourceId::new(format!("source-{doc}")).unwrap()
}

pub fn known(task: usize) -> Vec<(DocumentId, SourceId)> {
    (0..DOCS).map(|doc| (document(task, doc), source(doc))).collect()
}

pub fn holder(task: usize) -> Holder {
    Holder::new(format!("holder-{task}")).unwrap()
}

pub fn partition() -> PartitionId {
    PartitionId::new("calendar").unwrap()
}

pub fn provenance() -> Provenance {
    Provenance::new("lineage").unwrap()
}

pub fn receipt_key(sequence: i64) -> ReceiptKey {
    ReceiptKey { partition: partition(), provenance: provenance(), sequence }
}

pub fn candidate_key(task: usize, doc: usize) -> CandidateKey {
    CandidateKey {
        partition: partition(),
        provenance: provenance(),
        document_id: document(task, doc),
        source_id: source(doc),
    }
}

pub fn begin_receipt() -> BeginReceipt {
    BeginReceipt {
        partition: partition(),
        provenance: provenance(),
        model_id: ModelId::new("event").unwrap(),
        scope: "all".to_owned(),
        source_fetch_hlc: Hlc::parse(HLC).unwrap(),
        predicate: None,
        kind: ReceiptKind::Full,
        fingerprint: FINGERPRINT.to_owned(),
    }
}

const HLC: &str = "001750000000000-00000000-crash";

pub fn json(text: &str) -> Json {
    Json::parse("json", text).unwrap()
}

fn error(n: u64) -> Option<String> {
    n.is_multiple_of(5).then(|| format!("failed at {n}"))
}

pub fn synced_at() -> Rfc3339 {
    Rfc3339::from_timestamp(OPENED_AT)
}

pub fn state_input(n: u64) -> SyncStateInput {
    SyncStateInput {
        checkpoint: Some(json(&text(n))),
        recovery: recovery(n).as_deref().map(json),
        last_synced_at: synced_at(),
        entity_count: i64::try_from(n).unwrap(),
        status: SyncStatus::parse(status(n)).unwrap(),
        error: error(n),
    }
}

/// Progress on a state with this count.
pub fn progress(n: u64, standing: Option<i64>) -> SyncProgress {
    SyncProgress {
        checkpoint: Some(json(&text(n))),
        recovery: recovery(n).as_deref().map(json),
        last_synced_at: synced_at(),
        entity_count: standing.map_or(0, |count| count + 1),
        error: error(n),
    }
}

pub fn auth_state(task: usize, n: u64) -> Secret {
    Secret::new(format!("state-{task}-{n}"))
}

pub fn auth(task: usize, n: u64) -> PendingAuthRecord {
    let expires_at = if task == EXPIRING_TASK { i64::try_from(n).unwrap() } else { NEVER };
    PendingAuthRecord {
        state: auth_state(task, n),
        code_verifier: Secret::new(format!("verifier-{n}")),
        provider: "provider".to_owned(),
        owner: owner(task),
        owner_wrappable_did: None,
        controller_wrappable_did: None,
        created_at: OPENED_AT,
        redirect_url: "https://host.example/callback".to_owned(),
        scopes: vec![text(n)],
        is_incremental: n.is_multiple_of(2),
        expires_at: Timestamp::from_millis(expires_at),
    }
}

pub fn trim(n: u64) -> Json {
    json(&text(n))
}
