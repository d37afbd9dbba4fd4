//! What a whole store makes of a disk that is full, and of its own death.

use std::sync::Arc;

use super::{Chances, Fault, FaultyStorage};
use crate::base::StorageFault;
use crate::testing::{SeededIds, SimClock};
use crate::{ConnectorName, DocumentId, Error, Json, MemoryJournal, OwnerDid, Result, Store};

async fn open(journal: &MemoryJournal, seed: u64) -> (Arc<FaultyStorage>, Store) {
    let inner = Arc::new(journal.open().unwrap());
    let storage = Arc::new(FaultyStorage::random(inner, seed, Chances::default()));
    let builder = Store::builder().storage(Arc::clone(&storage) as _);
    let clock = Arc::new(SimClock::default());
    let builder = builder.clock(clock).ids(Arc::new(SeededIds::new(seed)));
    (storage, builder.open().await.unwrap())
}

async fn set_trim(store: &Store, value: i64) -> Result<()> {
    let handle = store.document(&DocumentId::new("d").unwrap());
    let (owner, connector) = (OwnerDid::new("did:web:o"), ConnectorName::new("caldav"));
    let fields = Json::parse("json", &value.to_string())?;
    handle.set_entity_trim(&owner?, &connector?, fields).await
}

async fn trim(store: &Store) -> Option<i64> {
    let trim = store.document(&DocumentId::new("d").unwrap()).entity_trim().await.unwrap();
    trim.and_then(|trim| trim.trimmed_fields.as_str().parse().ok())
}

#[tokio::test]
async fn a_store_works_on_once_its_disk_has_room() {
    let (storage, store) = open(&MemoryJournal::new(), 1).await;
    set_trim(&store, 1).await.unwrap();
    storage.set_full(true);
    let refused = set_trim(&store, 2).await.unwrap_err();
    let is_full = matches!(refused, Error::Storage { fault: StorageFault::Full, .. });
    assert!(is_full && refused.is_retryable(), "{refused:?}");
    assert_eq!(trim(&store).await, Some(1), "nothing was written, and reads go on");
    storage.set_full(false);
    set_trim(&store, 3).await.unwrap();
    assert_eq!(trim(&store).await, Some(3));
}

#[tokio::test]
async fn a_store_that_loses_to_a_rival_decides_again() {
    let (storage, store) = open(&MemoryJournal::new(), 1).await;
    set_trim(&store, 1).await.unwrap();
    for _ in 0..3 {
        storage.next_append(Fault::Rival);
    }
    set_trim(&store, 2).await.unwrap();
    assert_eq!((trim(&store).await, storage.faults_done()), (Some(2), 3));
}

#[tokio::test]
async fn what_a_store_acknowledged_outlives_it_and_what_it_did_not_is_there_or_not() {
    let mut survived = [0, 0];
    for seed in 0..20 {
        let journal = MemoryJournal::new();
        let (storage, store) = open(&journal, seed).await;
        set_trim(&store, 1).await.unwrap();
        storage.next_append(Fault::Kill);
        let dying = store.clone();
        let unanswered = tokio::spawn(async move { set_trim(&dying, 2).await });
        // The journal is free again once the process is gone.
        let (_storage, reopened) = loop {
            if let Ok(probe) = journal.open() {
                drop(probe);
                break open(&journal, seed + 100).await;
            }
            tokio::task::yield_now().await;
        };
        assert!(!unanswered.is_finished());
        let found = trim(&reopened).await;
        assert!(found == Some(1) || found == Some(2), "seed {seed}: {found:?}");
        survived[usize::from(found == Some(2))] += 1;
        unanswered.abort();
        drop(store);
    }
    assert!(survived.iter().all(|times| *times > 3), "{survived:?}");
}
