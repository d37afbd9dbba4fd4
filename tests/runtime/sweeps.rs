//! The document sweep crosses keys: its unit covers every connector that holds a candidate.

use connector_store::testing::Gate;
use connector_store::{
    BeginReceipt, CandidateState, ConnectorRef, Hlc, HlcClock, MassDeleteGuard, ModelId,
    PartitionId, Provenance, ReceiptKey, ReceiptKind, Result, SourceId, SweepReceipt,
};

use crate::common::*;

pub fn hlc() -> Hlc {
    HlcClock::new("node", SECOND).unwrap().now(1_750_000_000_000).unwrap()
}

pub async fn begin(
    handle: &ConnectorRef,
    partition: &str,
    provenance: &str,
) -> Result<SweepReceipt> {
    let receipt = BeginReceipt {
        partition: PartitionId::new(partition).unwrap(),
        provenance: Provenance::new(provenance).unwrap(),
        model_id: ModelId::new("note").unwrap(),
        scope: "all".to_owned(),
        source_fetch_hlc: hlc(),
        predicate: None,
        kind: ReceiptKind::Full,
        fingerprint: "print".to_owned(),
    };
    handle.begin_receipt(receipt).await
}

pub fn receipt_key(receipt: &SweepReceipt) -> ReceiptKey {
    ReceiptKey {
        partition: receipt.partition.clone(),
        provenance: receipt.provenance.clone(),
        sequence: receipt.sequence,
    }
}

/// Enumerates a partition that lacks the document, so that it becomes a candidate.
pub async fn lose(handle: &ConnectorRef, name: &str) {
    let key = receipt_key(&begin(handle, "p", "lineage").await.unwrap());
    let kept = SourceId::new("kept").unwrap();
    handle.extend_receipt(&key, 0, vec![kept.clone()], "print").await.unwrap();
    handle.complete_receipt(&key, 1, None, "print").await.unwrap();
    let lost = (document(name), SourceId::new(name).unwrap());
    let known = vec![(document("kept"), kept), lost];
    let result = handle.commit_receipt(&key, known, MassDeleteGuard::default()).await.unwrap();
    assert_eq!(result.candidates, 1);
}

#[tokio::test]
async fn a_sweep_takes_the_candidates_of_every_owner() {
    let host = host().await;
    for name in ["x", "y", "z"] {
        lose(&connector(&host.store, name), "d").await;
    }
    let handle = host.store.document(&document("d"));
    assert!(handle.has_document_connector_work().await.unwrap());
    handle.begin_document_sweep().await.unwrap();
    assert_eq!(host.store.begun_sweeps(None, 10).await.unwrap().len(), 1);
    handle.sweep_document_rows().await.unwrap();
    assert!(!handle.has_document_connector_work().await.unwrap());
    assert!(host.store.begun_sweeps(None, 10).await.unwrap().is_empty());
    for name in ["x", "y", "z"] {
        assert!(connector(&host.store, name).due_candidates(10).await.unwrap().is_empty());
    }
    assert_sound(&host.store).await;
}

#[tokio::test]
async fn a_sweep_starts_over_when_another_connector_got_a_candidate_meanwhile() {
    let host = host().await;
    lose(&connector(&host.store, "x"), "d").await;
    let blocker = host.store.unit_of_work([document_key("d")]).await.unwrap();
    let handle = host.store.document(&document("d"));
    let sweeper = handle.clone();
    let sweep = tokio::spawn(async move { sweeper.sweep_document_rows().await });
    settle().await;
    // The sweep has looked its connectors up and waits for the document.
    lose(&connector(&host.store, "y"), "d").await;
    drop(blocker);
    bounded(sweep).await.unwrap().unwrap();
    assert!(!handle.has_document_connector_work().await.unwrap());
    assert_sound(&host.store).await;
}

#[tokio::test]
async fn candidates_become_due_by_the_stores_time_and_back_off() {
    let host = host().await;
    let handle = connector(&host.store, "x");
    lose(&handle, "d").await;
    let due = handle.due_candidates(10).await.unwrap();
    assert_eq!(due.iter().map(|due| due.state).collect::<Vec<_>>(), [CandidateState::Pending]);
    let key = due[0].key();
    let outcome = connector_store::SweepOutcome::Unknown;
    handle.record_sweep_outcome(&key, outcome).await.unwrap();
    let waiting = handle.candidates(&key.partition, None, 10).await.unwrap();
    if waiting[0].next_attempt_at > due[0].next_attempt_at {
        assert!(handle.due_candidates(10).await.unwrap().is_empty());
    }
    host.clock.advance(SECOND);
    assert_eq!(handle.due_candidates(10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_sweep_under_a_rival_host_is_run_again() {
    let (a, b, _) = two_hosts().await;
    lose(&connector(&a.store, "x"), "d").await;
    let here = a.store.document(&document("d"));
    set_trim(&here, 1).await.unwrap();
    // The other host knows the key in a state that is soon old.
    let there = b.store.document(&document("d"));
    assert_eq!(trim(&there).await, Some(1));
    set_trim(&here, 2).await.unwrap();
    there.sweep_document_rows().await.unwrap();
    assert!(!here.has_document_connector_work().await.unwrap());
    set_trim(&here, 3).await.unwrap();
    assert_eq!(trim(&there).await, Some(3));
    assert_sound(&b.store).await;
}

#[tokio::test]
async fn pages_that_come_while_a_commit_compares_are_never_missing() {
    let host = host().await;
    let handle = connector(&host.store, "x");
    let id = |name: &str| SourceId::new(name).unwrap();
    let key = receipt_key(&begin(&handle, "p", "lineage").await.unwrap());
    handle.extend_receipt(&key, 0, vec![id("a")], "print").await.unwrap();
    let gate = Gate::new();
    host.faults.stall_next_rows(gate.clone());
    let known = vec![(document("a"), id("a")), (document("b"), id("b"))];
    let (committer, committed) = (handle.clone(), key.clone());
    let commit = tokio::spawn(async move {
        committer.commit_receipt(&committed, known, MassDeleteGuard::default()).await
    });
    // It has read the pages that are there, or has refused before.
    tokio::select! {
        () = gate.reached() => {}
        () = settle() => {}
    }
    host.faults.heal();
    handle.extend_receipt(&key, 1, vec![id("b")], "print").await.unwrap();
    handle.complete_receipt(&key, 2, Some(2), "print").await.unwrap();
    gate.open();
    let refused = bounded(commit).await.unwrap();
    assert_eq!(code(refused), "CONNECTOR_RECEIPT_INCOMPLETE");
    assert!(handle.due_candidates(10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_sweep_that_a_unit_refuses_leaves_nothing_in_the_unit() {
    let host = host().await;
    lose(&connector(&host.store, "x"), "d").await;
    let d = host.store.document(&document("d"));
    set_trim(&d, 1).await.unwrap();
    let unit = host.store.unit_of_work([document_key("d")]).await.unwrap();
    let refused = unit.document(&document("d")).sweep_document_rows().await;
    assert_eq!(code(refused), "CONNECTOR_NOT_HELD", "the candidate's connector is not held");
    unit.commit().await.unwrap();
    assert_eq!(trim(&d).await, Some(1));
    assert!(d.has_document_connector_work().await.unwrap());
    assert_sound(&host.store).await;
}
