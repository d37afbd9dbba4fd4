//! Two hosts on one PostgreSQL database, each a whole store.
#![cfg(all(unix, feature = "postgres", feature = "testing"))]
// A test may panic.
#![allow(clippy::unwrap_used)]

use connector_store::testing::TestPostgres;
use connector_store::{DocumentId, Error, EventFilter, FeedCursor, FeedItem, Store, StreamKey};

#[tokio::test]
async fn what_one_host_writes_the_other_reads_and_hears_of() {
    let Some(server) = TestPostgres::start(&[]).unwrap() else { return };
    let url = server.url(&server.create_database().unwrap());
    let one = Store::builder().postgres(&url).open().await.unwrap();
    let other = Store::builder().postgres(&url).open().await.unwrap();
    let document = DocumentId::new("d").unwrap();
    let mut feed = other.events(FeedCursor::START, EventFilter::default());
    one.document(&document).begin_document_sweep().await.unwrap();
    let FeedItem::Event { key, version, .. } = feed.next().await.unwrap() else {
        panic!("the sweep has begun")
    };
    assert_eq!((key, version), (StreamKey::Document(document.clone()), 1));
    // The other host decides on what the first one wrote.
    other.document(&document).begin_document_sweep().await.unwrap();
    assert!(other.verify().await.unwrap().is_sound());
    one.close().await.unwrap();
    assert!(matches!(one.document(&document).begin_document_sweep().await, Err(Error::Closed)));
    drop(other);
    let again = Store::builder().postgres(&url).open().await.unwrap();
    assert!(again.verify().await.unwrap().is_sound());
    again.close().await.unwrap();
}
