//! Smoke.
use connector_store::*;
use std::time::Duration;

async fn scenario(store: Store) {
    let doc = DocumentId::new("d1").unwrap();
    let owner = OwnerDid::new("did:web:o").unwrap();
    let conn = ConnectorName::new("folder").unwrap();
    let d = store.document(&doc);
    assert!(d.entity_trim().await.unwrap().is_none());
    d.set_entity_trim(&owner, &conn, Json::parse("x", "{\"a\":1}").unwrap()).await.unwrap();
    assert!(d.entity_trim().await.unwrap().is_some());
    let c = store.connector(&owner, &conn);
    let lease = c.acquire_lease(&Holder::new("h").unwrap(), Duration::from_secs(5)).await.unwrap();
    let s = lease.session();
    s.document(&doc)
        .set_entity_trim(&owner, &conn, Json::parse("x", "{\"a\":2}").unwrap())
        .await
        .unwrap();
    let lease2 = c.acquire_lease(&Holder::new("h").unwrap(), Duration::from_secs(5)).await.unwrap();
    let lost = s
        .document(&doc)
        .set_entity_trim(&owner, &conn, Json::parse("x", "{\"a\":3}").unwrap())
        .await;
    assert!(matches!(lost, Err(Error::LeaseLost { .. })), "{lost:?}");
    assert_eq!(d.entity_trim().await.unwrap().unwrap().trimmed_fields.as_str(), "{\"a\":2}");
    lease2.release().await.unwrap();
    let v = c
        .update_sync_progress(|s| SyncProgress {
            checkpoint: None,
            recovery: Some(Json::parse("r", "[1]").unwrap()),
            last_synced_at: Rfc3339::from_timestamp(Timestamp::default()),
            entity_count: s.map_or(0, |s| s.entity_count + 1),
            error: None,
        })
        .await
        .unwrap();
    assert_eq!(v.version, 0);
    d.sweep_document_rows().await.unwrap();
    assert!(d.entity_trim().await.unwrap().is_none());
    let mut feed = store.events(0, EventFilter::default());
    let mut n = 0;
    while let Some(item) = feed.next_ready().await.unwrap() {
        println!("{item:?}");
        n += 1;
    }
    assert_eq!(n, 5);
    store.close().await.unwrap();
}

#[tokio::test]
async fn memory() {
    scenario(Store::builder().memory(&MemoryJournal::new()).open().await.unwrap()).await;
}

#[tokio::test]
async fn sqlite() {
    let dir = tempfile::tempdir().unwrap();
    scenario(Store::builder().sqlite(dir.path().join("s.db")).open().await.unwrap()).await;
}

#[tokio::test]
async fn shared() {
    let j = MemoryJournal::shared(std::sync::Arc::new(|| Timestamp::from_millis(5)));
    scenario(Store::builder().memory(&j).open().await.unwrap()).await;
}
