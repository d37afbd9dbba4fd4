//! Behind a pooler that gives each transaction another connection.

use connector_store::journal::{PostgresOptions, PostgresStorage, suite};
use connector_store::testing::TestPgBouncer;
use connector_store::{EventFilter, FeedCursor};
use uuid::Uuid;

use crate::common::*;
use crate::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storage_keeps_its_rules_through_a_pooler() {
    let Some(world) = World::new() else { return };
    let Some(pooler) = TestPgBouncer::start(&world.server, 2).unwrap() else { return };
    let open = async || {
        let database = world.server.create_database().unwrap();
        PostgresStorage::open(PostgresOptions::new(pooler.url(&database))).await.unwrap()
    };
    suite::run(open).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_behind_a_pooler_work_like_others() {
    const EACH: i64 = 30;
    let Some(world) = World::new() else { return };
    let Some(pooler) = TestPgBouncer::start(&world.server, 2).unwrap() else { return };
    let url = pooler.url(&world.database);
    let hosts = [world.host_at(&url).await, world.host_at(&url).await, world.host().await];
    let workers = hosts.iter().map(|host| {
        let store = host.store.clone();
        tokio::spawn(async move {
            for value in 0..EACH {
                count_up(&connector(&store, "o")).await.unwrap();
                let name = document(value % 5);
                let handle = store.document(&name).with_command_id(Uuid::now_v7());
                set_trim(&handle, value).await.unwrap();
                set_trim(&handle, value).await.unwrap();
                assert!(store.document(&name).entity_trim().await.unwrap().is_some());
                store.begun_sweeps(None, 10).await.unwrap();
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        bounded(worker).await.unwrap();
    }
    assert_eq!(count(&connector(&hosts[1].store, "o")).await, 3 * EACH);
    assert_eq!(world.events(), 6 * EACH);
    let mut feed = hosts[0].store.events(FeedCursor::START, EventFilter::default());
    for _ in 0..6 * EACH {
        bounded(feed.next()).await.unwrap();
    }
    let follows = tokio::spawn(async move { feed.next().await });
    set_trim(&hosts[2].store.document(&document("new")), 1).await.unwrap();
    bounded(follows).await.unwrap().unwrap();
    hosts[0].store.rebuild().await.unwrap();
    for host in &hosts {
        assert_sound(&host.store).await;
    }
}
