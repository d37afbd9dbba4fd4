//! The event feed: it catches up, then follows, skips nothing, and says where something is gone.

use connector_store::{
    EventFilter, EventStream, FeedCursor, FeedItem, MemoryJournal, Store, StreamKind,
};

use crate::common::*;

fn position(item: &FeedItem) -> i64 {
    match item {
        FeedItem::Event { cursor, .. }
        | FeedItem::Swept { cursor, .. }
        | FeedItem::Unreadable { cursor, .. } => cursor.position,
        FeedItem::Trimmed { up_to } => *up_to,
        _ => panic!("an unknown item"),
    }
}

/// A place in the feed of a store in memory.
const fn behind(position: i64) -> FeedCursor {
    FeedCursor { generation: 1, position }
}

async fn ready(feed: &mut EventStream) -> Vec<FeedItem> {
    let mut items = Vec::new();
    while let Some(item) = feed.next_ready().await.unwrap() {
        items.push(item);
    }
    items
}

#[tokio::test]
async fn a_feed_catches_up_and_then_follows() {
    let host = host().await;
    let a = host.store.document(&document("a"));
    for value in 0..3 {
        set_trim(&a, value).await.unwrap();
    }
    let mut feed = host.store.events(behind(1), EventFilter::default());
    assert_eq!(position(&feed.next().await.unwrap()), 2);
    assert_eq!(position(&feed.next().await.unwrap()), 3);
    let follow = tokio::spawn(async move { (feed.next().await.unwrap(), feed.cursor()) });
    settle().await;
    assert!(!follow.is_finished());
    set_trim(&a, 4).await.unwrap();
    let (item, read_to) = bounded(follow).await.unwrap();
    assert_eq!((position(&item), read_to), (4, behind(4)));
}

#[tokio::test]
async fn a_filter_lets_through_what_it_names() {
    let host = host().await;
    set_trim(&host.store.document(&document("a")), 1).await.unwrap();
    count_up(&connector(&host.store, "o")).await.unwrap();
    set_trim(&host.store.document(&document("b")), 1).await.unwrap();
    host.store.create_pending_auth(pending_auth("s", 1)).await.unwrap();
    let cases = [
        (EventFilter::default(), vec![1, 2, 3, 4]),
        (EventFilter { kinds: vec![StreamKind::Document], key: None }, vec![1, 3]),
        (
            EventFilter { kinds: vec![StreamKind::Auth, StreamKind::Connector], key: None },
            vec![2, 4],
        ),
        (EventFilter { kinds: Vec::new(), key: Some(document_key("b")) }, vec![3]),
        (EventFilter { kinds: vec![StreamKind::Auth], key: Some(document_key("b")) }, vec![]),
    ];
    for (filter, expected) in cases {
        let items = ready(&mut host.store.events(FeedCursor::START, filter.clone())).await;
        assert_eq!(items.iter().map(position).collect::<Vec<_>>(), expected, "{filter:?}");
    }
}

#[tokio::test]
async fn erased_events_are_swept_in_their_place() {
    let host = host().await;
    let a = host.store.document(&document("a"));
    set_trim(&a, 1).await.unwrap();
    set_trim(&host.store.document(&document("b")), 1).await.unwrap();
    a.sweep_document_rows().await.unwrap();
    set_trim(&a, 2).await.unwrap();
    let items = ready(&mut host.store.events(FeedCursor::START, EventFilter::default())).await;
    assert_eq!(items.iter().map(position).collect::<Vec<_>>(), [2, 3, 4]);
    let swept = |item: &FeedItem| matches!(item, FeedItem::Swept { version: 2, .. });
    assert!(swept(&items[1]), "{items:?}");
    assert!(matches!(items[2], FeedItem::Event { version: 3, .. }));
}

#[tokio::test]
async fn trimmed_events_are_told_to_who_has_not_read_them_and_only_to_them() {
    let host = host_with(|builder| builder.snapshot_every_events(4)).await;
    let a = host.store.document(&document("a"));
    for value in 0..10 {
        set_trim(&a, value).await.unwrap();
    }
    let mut has_read = host.store.events(FeedCursor::START, EventFilter::default());
    assert_eq!(ready(&mut has_read).await.len(), 10);
    let mut half = host.store.events(behind(6), EventFilter::default());
    host.clock.advance(SECOND * 100);
    assert_eq!(host.store.apply_retention(SECOND).await.unwrap().events, 8);
    set_trim(&a, 10).await.unwrap();
    let items = ready(&mut has_read).await;
    assert!(
        matches!(items[..], [FeedItem::Event { cursor, .. }] if cursor == behind(11)),
        "{items:?}"
    );
    let items = ready(&mut half).await;
    assert!(matches!(items[0], FeedItem::Trimmed { up_to: 8 }), "{items:?}");
    assert_eq!(items[1..].iter().map(position).collect::<Vec<_>>(), [9, 10, 11]);
    let items = ready(&mut host.store.events(FeedCursor::START, EventFilter::default())).await;
    assert!(matches!(items[0], FeedItem::Trimmed { up_to: 8 }), "{items:?}");
    assert_eq!(items.len(), 4);
}

async fn read_all(store: Store, count: usize) -> Vec<i64> {
    let mut feed = store.events(FeedCursor::START, EventFilter::default());
    let mut positions = Vec::new();
    while positions.len() < count {
        positions.push(position(&feed.next().await.unwrap()));
    }
    positions
}

/// Readers follow while writers write, and see every position once, in order.
async fn no_skip(store: &Store) {
    let readers: Vec<_> = (0..3).map(|_| tokio::spawn(read_all(store.clone(), 800))).collect();
    let writers = (0..8_u32).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for value in 0..100 {
                let name = document(format!("{writer}-{}", value % 3));
                set_trim(&store.document(&name), value).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        bounded(writer).await.unwrap();
    }
    for reader in readers {
        assert_eq!(bounded(reader).await.unwrap(), (1..=800).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_event_is_skipped_under_concurrent_writers() {
    let store = Store::builder().memory(&MemoryJournal::new()).open().await.unwrap();
    no_skip(&store).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Store::builder().sqlite(path).open().await.unwrap();
    no_skip(&store).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_reader_on_one_host_hears_of_the_others_writes() {
    let (a, b, _) = two_hosts().await;
    let mut feed = b.store.events(FeedCursor::START, EventFilter::default());
    let next = tokio::spawn(async move { feed.next().await.unwrap() });
    settle().await;
    set_trim(&a.store.document(&document("a")), 1).await.unwrap();
    assert_eq!(position(&bounded(next).await.unwrap()), 1);
}
