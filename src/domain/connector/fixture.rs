//! Short names for the tests of a connector.

use super::*;
use crate::base::{
    ConnectorName, DocumentId, Holder, Json, ModelId, OwnerDid, PartitionId, Provenance, Result,
    Rfc3339, SourceId, StreamKey,
};
use crate::domain::{ContentRef, LeaseScope};
use crate::records::Hlc;
use crate::testing::given::{Given, at, given};

pub(super) fn key() -> StreamKey {
    StreamKey::Connector(owner(), connector())
}

pub(super) fn owner() -> OwnerDid {
    OwnerDid::new("did:web:o").unwrap()
}

pub(super) fn connector() -> ConnectorName {
    ConnectorName::new("caldav").unwrap()
}

pub(super) fn scope() -> LeaseScope {
    LeaseScope::Sync { owner: owner(), connector: connector() }
}

pub(super) fn partition() -> PartitionId {
    PartitionId::new("p").unwrap()
}

pub(super) fn provenance(text: &str) -> Provenance {
    Provenance::new(text).unwrap()
}

pub(super) fn document(text: impl AsRef<str>) -> DocumentId {
    DocumentId::new(text).unwrap()
}

pub(super) fn source(text: impl AsRef<str>) -> SourceId {
    SourceId::new(text).unwrap()
}

pub(super) fn holder(text: &str) -> Holder {
    Holder::new(text).unwrap()
}

pub(super) fn json(text: &str) -> Json {
    Json::parse("json", text).unwrap()
}

/// A stream without an event.
pub(super) fn fresh() -> Given<Connector> {
    given(key(), &[])
}

pub(super) fn progress(entity_count: i64) -> SyncProgress {
    SyncProgress {
        checkpoint: Some(json("{\"token\":9007199254740993}")),
        recovery: Some(json("[1]")),
        last_synced_at: Rfc3339::parse("2026-01-31T08:00:00Z").unwrap(),
        entity_count,
        error: None,
    }
}

pub(super) fn state_input(entity_count: i64, status: SyncStatus) -> SyncStateInput {
    let SyncProgress { checkpoint, recovery, last_synced_at, error, .. } = progress(0);
    SyncStateInput { checkpoint, recovery, last_synced_at, entity_count, status, error }
}

pub(super) fn begin(lineage: &str) -> BeginReceipt {
    BeginReceipt {
        partition: partition(),
        provenance: provenance(lineage),
        model_id: ModelId::new("event").unwrap(),
        scope: "calendar".to_owned(),
        source_fetch_hlc: hlc(),
        predicate: None,
        kind: ReceiptKind::Full,
        fingerprint: "f".to_owned(),
    }
}

/// A stamp in its one spelling.
pub(super) fn hlc() -> Hlc {
    Hlc::parse(HLC).unwrap()
}

const HLC: &str = "001767225600000-00000000-host";

pub(super) fn receipt(lineage: &str, sequence: i64) -> ReceiptKey {
    ReceiptKey { partition: partition(), provenance: provenance(lineage), sequence }
}

pub(super) fn extend(key: &ReceiptKey, page: u32, ids: &[&str]) -> ExtendReceipt {
    ExtendReceipt {
        key: key.clone(),
        page,
        source_ids: ids.iter().map(source).collect(),
        fingerprint: "f".to_owned(),
    }
}

/// The end of an enumeration, computed from its pages as a handle does.
pub(super) fn complete(
    key: &ReceiptKey,
    pages: &[&[&str]],
    expected_count: Option<u64>,
) -> CompleteReceipt {
    let pages: Vec<Vec<SourceId>> =
        pages.iter().map(|ids| ids.iter().map(source).collect()).collect();
    let digest = |ids: &Vec<SourceId>| SourceIdList::of(ids).content().digest;
    let digests: Vec<_> = pages.iter().map(digest).collect();
    let (distinct, keep) = keep_content(&pages);
    CompleteReceipt {
        key: key.clone(),
        pages: u32::try_from(pages.len()).unwrap(),
        expected_count,
        fingerprint: "f".to_owned(),
        distinct,
        pages_digest: pages_digest(&digests),
        keep,
    }
}

/// Documents `d<name>` that mirror the entities `<name>`.
pub(super) fn known(names: &[&str]) -> Vec<KnownDocument> {
    let entry = |name: &&str| KnownDocument {
        document_id: document(format!("d{name}")),
        source_id: source(name),
    };
    names.iter().map(entry).collect()
}

/// The comparison of what is known with what was listed, as a handle makes it.
pub(super) fn compared(
    given: &Given<Connector>,
    known: Vec<KnownDocument>,
    listed: &[&str],
) -> Comparison {
    let standing = candidates(given)
        .into_iter()
        .map(|candidate| StandingCandidate {
            provenance: candidate.provenance,
            document: KnownDocument {
                document_id: candidate.document_id,
                source_id: candidate.source_id,
            },
        })
        .collect();
    let mut comparer = Comparer::new(known, standing);
    let ids: Vec<SourceId> = listed.iter().map(source).collect();
    comparer.page(&ids);
    comparer.finish()
}

pub(super) fn lax() -> MassDeleteGuard {
    MassDeleteGuard { allow_mass_delete: true, ..MassDeleteGuard::default() }
}

pub(super) fn commit(
    given: &Given<Connector>,
    key: &ReceiptKey,
    names: &[&str],
    listed: &[&str],
    guard: MassDeleteGuard,
) -> CommitReceipt {
    CommitReceipt { key: key.clone(), comparison: compared(given, known(names), listed), guard }
}

/// Begins, lists and completes an enumeration of one page.
pub(super) fn enumerate(
    given: &mut Given<Connector>,
    lineage: &str,
    listed: &[&str],
    millis: i64,
) -> ReceiptKey {
    let reply = given.done(&ConnectorCommand::BeginReceipt(begin(lineage)), at(millis));
    let ConnectorReply::ReceiptBegun { sequence } = reply else { panic!("{reply:?}") };
    let key = receipt(lineage, sequence);
    given.done(&ConnectorCommand::ExtendReceipt(extend(&key, 0, listed)), at(millis));
    let end = complete(&key, &[listed], None);
    given.done(&ConnectorCommand::CompleteReceipt(end), at(millis));
    key
}

/// Enumerates and commits; the guard is lifted.
pub(super) fn sweep(
    given: &mut Given<Connector>,
    lineage: &str,
    names: &[&str],
    listed: &[&str],
    millis: i64,
) -> CommitResult {
    let key = enumerate(given, lineage, listed, millis);
    let input = commit(given, &key, names, listed, lax());
    match given.done(&ConnectorCommand::CommitReceipt(input), at(millis)) {
        ConnectorReply::Committed(result) => result,
        other => panic!("{other:?}"),
    }
}

pub(super) fn candidate(lineage: &str, name: &str) -> CandidateKey {
    CandidateKey {
        partition: partition(),
        provenance: provenance(lineage),
        document_id: document(format!("d{name}")),
        source_id: source(name),
    }
}

pub(super) fn candidates(given: &Given<Connector>) -> Vec<SweepCandidate> {
    given.state.candidates(&partition(), None, 10_000).unwrap()
}

/// Name of document and state of each standing candidate.
pub(super) fn states(given: &Given<Connector>) -> Vec<(String, CandidateState)> {
    let name = |candidate: SweepCandidate| (candidate.document_id.to_string(), candidate.state);
    candidates(given).into_iter().map(name).collect()
}

/// Lineage and sequence of the checkpoint.
pub(super) fn checkpoint(given: &Given<Connector>) -> Option<(String, i64)> {
    let checkpoint = given.state.sweep_checkpoint(&partition())?;
    Some((checkpoint.provenance.to_string(), checkpoint.receipt_sequence))
}

pub(super) fn content(text: &str) -> ContentRef {
    ContentRef::of(text)
}

pub(super) fn is_refused_with<T>(result: &Result<T>, code: &str) -> bool {
    result.as_ref().err().is_some_and(|error| error.code() == code)
}
