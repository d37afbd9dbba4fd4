//! Listings that must not delete: an empty one, and one after a lost cursor.

use connector_store::{
    BeginReceipt, ConnectorRef, DocumentId, MassDeleteGuard, ModelId, PartitionId, Provenance,
    ReceiptKey, ReceiptKind, SourceId,
};

use crate::common::*;

fn partition() -> PartitionId {
    PartitionId::new("p").unwrap()
}

/// A complete enumeration that has shown `ids`.
async fn listed(connector: &ConnectorRef, ids: Vec<SourceId>, said: Option<u64>) -> ReceiptKey {
    let begun = connector
        .begin_receipt(BeginReceipt {
            partition: partition(),
            provenance: Provenance::new("account").unwrap(),
            model_id: ModelId::new("file").unwrap(),
            scope: "all".to_owned(),
            source_fetch_hlc: stamp(1),
            predicate: None,
            kind: ReceiptKind::Full,
            fingerprint: "f".to_owned(),
        })
        .await
        .unwrap();
    let key = ReceiptKey {
        partition: begun.partition,
        provenance: begun.provenance,
        sequence: begun.sequence,
    };
    connector.extend_receipt(&key, 0, ids, "f").await.unwrap();
    connector.complete_receipt(&key, 1, said, "f").await.unwrap();
    key
}

fn known(count: usize) -> Vec<(DocumentId, SourceId)> {
    (0..count).map(|index| (document(index), source(index))).collect()
}

#[tokio::test]
async fn an_empty_listing_deletes_nothing() {
    let (store, _clock, _journal) = store().await;
    let connector = store.connector(&owner(), &folder());
    let key = listed(&connector, Vec::new(), None).await;
    let answer = connector.commit_receipt(&key, known(1_000), MassDeleteGuard::default()).await;
    assert_eq!(code(answer), "CONNECTOR_SWEEP_TOO_LARGE");
    assert_eq!(connector.candidates(&partition(), None, 10).await.unwrap(), []);
    // Of two documents too: nothing at all is kept, and the provider did not say so.
    let key = listed(&connector, Vec::new(), None).await;
    let answer = connector.commit_receipt(&key, known(2), MassDeleteGuard::default()).await;
    assert_eq!(code(answer), "CONNECTOR_SWEEP_TOO_LARGE");
    assert_eq!(connector.candidates(&partition(), None, 10).await.unwrap(), []);
}

#[tokio::test]
async fn a_lost_cursor_owes_a_sweep_until_a_later_listing_is_committed() {
    let (store, clock, journal) = store().await;
    let connector = store.connector(&owner(), &folder());
    // A listing that began before the loss does not pay for it.
    let early = listed(&connector, vec![source(0), source(1)], Some(2)).await;
    for _ in 0..2 {
        connector.cursor_lost(&partition()).await.unwrap();
        assert_eq!(connector.owed_sweeps().await.unwrap().len(), 1);
    }
    connector.commit_receipt(&early, known(2), MassDeleteGuard::default()).await.unwrap();
    assert_eq!(connector.owed_sweeps().await.unwrap().len(), 1);
    store.close().await.unwrap();
    let store = builder(&clock, 2).memory(&journal).open().await.unwrap();
    let connector = store.connector(&owner(), &folder());
    assert_eq!(connector.owed_sweeps().await.unwrap().len(), 1);
    // What was deleted in the gap is found; it is asked about before anything goes.
    let late = listed(&connector, vec![source(0)], Some(1)).await;
    connector.commit_receipt(&late, known(2), MassDeleteGuard::default()).await.unwrap();
    assert_eq!(connector.owed_sweeps().await.unwrap(), []);
    let candidates = connector.candidates(&partition(), None, 10).await.unwrap();
    assert_eq!(candidates.len(), 1);
    assert_eq!(candidates[0].document_id, document(1));
    assert_eq!(candidates[0].state.as_str(), "pending");
}
