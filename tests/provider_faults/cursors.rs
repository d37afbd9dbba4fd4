//! Cursors that expire: what was deleted in between is found, and half a listing is no listing.

use connector_store::testing::{Next, Provider, ProviderError, ProviderFault};

use crate::common::*;

const EXPIRED: ProviderFault = ProviderFault::CursorExpired;

/// Many do so: what is listed is mirrored, and deletions are left to the tombstones.
fn list_again(naive: &mut Naive, provider: &Provider) {
    let mut cursor = None;
    loop {
        let listing = provider.list(&home(), cursor.as_ref(), PAGE).unwrap();
        for item in listing.items {
            let title = title(&item.content);
            naive.documents.insert(item.source_id.as_str().to_owned(), title);
        }
        match listing.next {
            Next::Page(next) => cursor = Some(next),
            Next::Last { sync, .. } => {
                naive.cursor = Some(sync);
                return;
            }
        }
    }
}

#[tokio::test]
async fn after_an_expired_cursor_the_deletions_of_the_gap_are_found() {
    let (provider, clock) = provider();
    let mut naive = Naive::synced(&provider);
    let mut mirror = synced(&provider, &clock).await;

    provider.remove(&home(), &source("e3"));
    provider.plan(EXPIRED);
    assert_eq!(naive.follow(&provider), Err(ProviderError::CursorExpired));
    list_again(&mut naive, &provider);
    naive.follow(&provider).unwrap();
    assert!(naive.documents.contains_key("e3"), "what is gone stays for ever");

    let connector = mirror.store.connector(&owner(), &calendar());
    let expired = mirror.round().await;
    assert!(matches!(expired, Err(Failure::Provider(ProviderError::CursorExpired))));
    assert_eq!(connector.owed_sweeps().await.unwrap().len(), 1);
    mirror.round().await.unwrap();
    assert!(connector.owed_sweeps().await.unwrap().is_empty());
    assert_eq!(mirror.shown(), truth(&provider));
    assert_eq!(mirror.graph.len(), 9);
}

#[tokio::test]
async fn a_listing_that_breaks_off_in_the_middle_deletes_nothing() {
    let (provider, clock) = provider();
    let mut mirror = synced(&provider, &clock).await;
    let first = provider.list(&home(), None, PAGE).unwrap();
    provider.plan(EXPIRED);
    let Next::Page(cursor) = first.next else { panic!("{first:?}") };
    let second = provider.list(&home(), Some(&cursor), PAGE);
    // A client that takes an error for the end has three entities now.
    assert_eq!((second, first.items.len()), (Err(ProviderError::CursorExpired), PAGE));

    mirror.forget_cursor().await.unwrap();
    provider.remove(&home(), &source("e0"));
    provider.plan(EXPIRED);
    let expired = mirror.round().await;
    assert!(matches!(expired, Err(Failure::Provider(ProviderError::CursorExpired))));
    assert_eq!(provider.struck(EXPIRED), 2);
    assert_eq!(mirror.graph.len(), 10, "nothing is deleted by half a listing");
    mirror.round().await.unwrap();
    assert_eq!(mirror.shown(), truth(&provider));
    assert_eq!(mirror.graph.len(), 9);
}
