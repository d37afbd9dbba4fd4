//! Another server takes the place of the first: a standby that takes no writes, one that has every
//! commit, one that has lost the newest.

use connector_store::testing::Stop;
use connector_store::{Error, StorageFault};

use crate::common::*;
use crate::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_answers_nothing_and_once_promoted_it_is_used() {
    let Some(world) = World::new() else { return };
    let (proxy, host) = world.proxied(COMMAND_TIMEOUT).await;
    let handle = host.store.document(&document("a"));
    set_trim(&handle, 1).await.unwrap();
    let standby = world.server.standby(true).unwrap();
    set_trim(&handle, 2).await.unwrap();
    proxy.move_to(standby.port());
    for _ in 0..2 {
        // Also what changes nothing: a standby may be behind.
        let calls = [
            set_trim(&handle, 3).await,
            handle.entity_trim().await.map(drop),
            count_up(&connector(&host.store, "o")).await.map(drop),
            connector(&host.store, "o").sync_state().await.map(drop),
        ];
        for call in calls {
            let error = call.unwrap_err();
            assert!(error.is_retryable(), "{error:?}");
        }
    }
    let refused = world.builder().postgres(standby.url(&world.database)).open().await.unwrap_err();
    assert!(matches!(refused, Error::Storage { fault: StorageFault::ReadOnly, .. }), "{refused:?}");
    world.server.stop(Stop::Immediate).unwrap();
    standby.promote().unwrap();
    bounded(async { while set_trim(&handle, 4).await.is_err() {} }).await;
    assert_eq!(trim(&handle).await, Some(4));
    let events = "SELECT count(*) FROM connector_journal";
    assert_eq!(standby.sql(&world.database, events).unwrap(), "3", "none of what failed");
    assert_sound(&host.store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_standby_that_takes_over_has_all_that_was_acknowledged() {
    const KEYS: i64 = 8;
    let Some(world) = World::new() else { return };
    let (proxy, host) = world.proxied(COMMAND_TIMEOUT).await;
    set_trim(&host.store.document(&document("a")), 1).await.unwrap();
    let standby = world.server.standby(true).unwrap();
    let writers = (0..KEYS).map(|key| {
        let handle = connector(&host.store, &format!("o{key}"));
        tokio::spawn(async move {
            let mut acknowledged = 0;
            while acknowledged < 40 {
                match count_up(&handle).await {
                    Ok(_) => acknowledged += 1,
                    Err(Error::OutcomeUnknown { .. }) => {
                        acknowledged = bounded(async {
                            loop {
                                if let Ok(state) = handle.sync_state().await {
                                    break state.map_or(0, |state| state.entity_count);
                                }
                            }
                        })
                        .await;
                    }
                    Err(error) => assert!(error.is_retryable(), "{error:?}"),
                }
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    world.until_events(80).await;
    world.server.stop(Stop::Immediate).unwrap();
    standby.promote().unwrap();
    proxy.move_to(standby.port());
    for writer in writers {
        bounded(writer).await.unwrap();
    }
    for key in 0..KEYS {
        assert_eq!(count(&connector(&host.store, &format!("o{key}"))).await, 40);
    }
    assert_sound(&host.store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_has_lost_its_newest_events_is_refused_and_not_written() {
    let Some(world) = World::new() else { return };
    let (proxy, host) = world.proxied(COMMAND_TIMEOUT / 10).await;
    let (known, lost) =
        (host.store.document(&document("known")), host.store.document(&document("lost")));
    set_trim(&known, 1).await.unwrap();
    let behind = world.server.standby(false).unwrap();
    behind.promote().unwrap();
    for value in 2..5 {
        set_trim(&lost, value).await.unwrap();
    }
    proxy.move_to(behind.port());
    for _ in 0..3 {
        let error = set_trim(&known, 9).await.unwrap_err();
        assert!(matches!(error, Error::Storage { .. }), "{error:?}");
        assert!(set_trim(&host.store.document(&document("new")), 9).await.is_err());
        // What it has acknowledged is not there: it is not told that it never was.
        assert!(lost.entity_trim().await.is_err());
    }
    let events = "SELECT count(*) FROM connector_journal";
    assert_eq!(behind.sql(&world.database, events).unwrap(), "1");
    // A host that is started on it has seen nothing of what is lost.
    let store = world.builder().postgres(behind.url(&world.database)).open().await.unwrap();
    set_trim(&store.document(&document("known")), 10).await.unwrap();
    assert_sound(&store).await;
}
