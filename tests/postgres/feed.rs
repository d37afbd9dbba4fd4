//! The feed over several hosts: no event is skipped, whatever commits late, and none is waited for
//! that will never come.

use connector_store::{EventFilter, EventStream, FeedCursor, FeedItem, StreamKey};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use crate::common::*;
use crate::proxy::Cut;
use crate::world::{Host, World, run};

/// The document of the next event, and the event's position.
async fn next(feed: &mut EventStream) -> (String, i64) {
    match bounded(feed.next()).await.unwrap() {
        FeedItem::Event { cursor, key: StreamKey::Document(document), .. } => {
            (document.as_str().to_owned(), cursor.position)
        }
        item => panic!("{item:?}"),
    }
}

async fn write(host: &Host, name: &str) {
    set_trim(&host.store.document(&document(name)), 1).await.unwrap();
}

fn feed(host: &Host) -> EventStream {
    host.store.events(FeedCursor::START, EventFilter::default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_commits_late_is_delivered_once_and_in_its_place() {
    let Some(world) = World::new() else { return };
    let (proxy, late) = world.proxied(COMMAND_TIMEOUT).await;
    let other = world.host().await;
    write(&late, "before").await;
    let mut feed = feed(&other);
    assert_eq!(next(&mut feed).await.0, "before");
    proxy.at_commit(Cut::Hold);
    let handle = late.store.document(&document("late"));
    let held = tokio::spawn(async move { set_trim(&handle, 1).await });
    bounded(proxy.seen(1)).await;
    write(&other, "other").await;
    // Its position is behind one that may still come.
    for _ in 0..5 {
        settle().await;
        assert!(feed.next_ready().await.unwrap().is_none());
    }
    proxy.release();
    bounded(held).await.unwrap().unwrap();
    let (first, second) = (next(&mut feed).await, next(&mut feed).await);
    assert_eq!((first.0.as_str(), second.0.as_str()), ("late", "other"));
    assert!(first.1 < second.1);
    write(&late, "behind").await;
    assert_eq!(next(&mut feed).await.0, "behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_whose_transaction_was_rolled_back_is_not_waited_for() {
    let Some(world) = World::new() else { return };
    let (proxy, late) = world.proxied(COMMAND_TIMEOUT).await;
    let other = world.host().await;
    let mut feed = feed(&other);
    write(&late, "before").await;
    assert_eq!(next(&mut feed).await.0, "before");
    proxy.at_commit(Cut::Hold);
    let handle = late.store.document(&document("late"));
    let held = tokio::spawn(async move { set_trim(&handle, 1).await });
    bounded(proxy.seen(1)).await;
    write(&other, "other").await;
    proxy.cut_all();
    bounded(held).await.unwrap().unwrap();
    let (first, second) = (next(&mut feed).await, next(&mut feed).await);
    assert_eq!((first.0.as_str(), second.0.as_str()), ("other", "late"));
    assert_eq!(world.events(), 3);
    let last = world.number("SELECT max(position) FROM connector_journal");
    assert!(last > 3, "a position was given and its transaction rolled back: {last}");
}

// On one thread, so that the gauge is this feed's and not that of a test beside it.
#[tokio::test]
async fn an_idle_session_holds_the_feed_up_only_while_it_has_a_transaction_id() {
    let Some(world) = World::new() else { return };
    let [writer, reader] = world.hosts().await;
    let mut feed = feed(&reader);
    let (mut idle, mut open) = (world.session().await, world.session().await);
    run(&mut idle, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM connector_journal")
        .await;
    write(&writer, "a").await;
    assert_eq!(next(&mut feed).await.0, "a");
    let gauges = DebuggingRecorder::new();
    let seen = gauges.snapshotter();
    let _here = metrics::set_default_local_recorder(&gauges);
    run(&mut open, "BEGIN; SELECT pg_current_xact_id()").await;
    for name in ["b", "c"] {
        write(&writer, name).await;
    }
    assert!(feed.next_ready().await.unwrap().is_none());
    let held = seen.snapshot().into_vec().into_iter().find_map(|(key, _, _, value)| {
        (key.key().name() == "connector_store_feed_held_back_positions").then_some(value)
    });
    assert_eq!(held, Some(DebugValue::Gauge(2.0.into())), "how far the feed is behind");
    run(&mut open, "ROLLBACK").await;
    assert_eq!([next(&mut feed).await.0, next(&mut feed).await.0], ["b", "c"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_follows_another_host_also_when_nobody_tells_it() {
    let Some(world) = World::new() else { return };
    let [writer, reader] = world.hosts().await;
    let mut feed = feed(&reader);
    write(&writer, "told").await;
    assert_eq!(next(&mut feed).await.0, "told");
    let listeners = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                     WHERE datname = current_database() AND query ILIKE 'LISTEN%'";
    let follows = tokio::spawn(async move {
        let item = next(&mut feed).await;
        (feed, item)
    });
    assert!(world.number(listeners) >= 1, "nobody listens");
    write(&writer, "untold").await;
    let (mut feed, item) = bounded(follows).await.unwrap();
    assert_eq!(item.0, "untold");
    write(&writer, "again").await;
    assert_eq!(next(&mut feed).await.0, "again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_on_two_hosts_see_every_event_of_both_once_and_in_order() {
    const WRITERS: usize = 4;
    const EACH: usize = 50;
    let Some(world) = World::new() else { return };
    let hosts = world.hosts().await;
    let readers = [0, 1].map(|at| {
        let mut feed = feed(&hosts[at]);
        tokio::spawn(async move {
            let mut positions = Vec::new();
            while positions.len() < 2 * WRITERS * EACH {
                positions.push(next(&mut feed).await.1);
            }
            positions
        })
    });
    let writers = hosts.iter().zip(0..).flat_map(|(host, at)| {
        (0..WRITERS).map(move |writer| {
            let handle = host.store.document(&document(format!("{at}-{writer}")));
            tokio::spawn(async move {
                for value in 0..EACH {
                    set_trim(&handle, i64::try_from(value).unwrap()).await.unwrap();
                }
            })
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        bounded(writer).await.unwrap();
    }
    let stored = "SELECT string_agg(position::text, ',' ORDER BY position) FROM connector_journal";
    let stored = world.server.sql(&world.database, stored).unwrap();
    for reader in readers {
        let read: Vec<_> = bounded(reader).await.unwrap().iter().map(i64::to_string).collect();
        assert_eq!(read.join(","), stored);
    }
}
