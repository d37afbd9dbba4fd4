//! Faults of listings: what a listing does not show is not gone, and what it shows twice is not two.

use connector_store::testing::{Provider, ProviderFault, SimClock};

use crate::common::*;

/// A client that has everything and lists it anew under the fault.
async fn relisted(fault: ProviderFault) -> (Mirror, Provider, SimClock, Result<(), Failure>) {
    let (provider, clock) = provider();
    let mut mirror = synced(&provider, &clock).await;
    mirror.forget_cursor().await.unwrap();
    provider.plan(fault);
    let result = mirror.round().await;
    assert_eq!(provider.struck(fault), 1);
    (mirror, provider, clock, result)
}

fn naive_relisted(fault: ProviderFault) -> (Naive, Provider) {
    let (provider, _) = provider();
    let mut naive = Naive::synced(&provider);
    assert_eq!(naive.shown(), truth(&provider));
    provider.plan(fault);
    naive.list(&provider).unwrap();
    assert_eq!(provider.struck(fault), 1);
    (naive, provider)
}

async fn assert_recovers(mirror: &mut Mirror) {
    mirror.provider.remove(&home(), &source("e4"));
    mirror.round().await.unwrap();
    assert_eq!(mirror.shown(), truth(&mirror.provider), "the next listing is believed");
    assert_eq!(mirror.graph.len(), 9);
}

#[tokio::test]
async fn an_empty_page_deletes_nothing() {
    let (naive, _) = naive_relisted(ProviderFault::EmptyPage);
    assert_eq!(naive.shown(), [], "all that the user has is deleted");

    let (mut mirror, provider, _, result) = relisted(ProviderFault::EmptyPage).await;
    assert_eq!(code(result), "CONNECTOR_SWEEP_TOO_LARGE");
    assert_eq!(mirror.shown(), truth(&provider));
    assert_recovers(&mut mirror).await;
}

/// The rest of the listing becomes candidates, and the provider has them all but one.
#[tokio::test]
async fn of_a_truncated_listing_only_what_the_provider_says_is_gone_is_deleted() {
    let (naive, _) = naive_relisted(ProviderFault::TruncatedListing);
    assert_eq!(naive.documents.len(), PAGE, "the other pages are deleted");

    let (provider, clock) = provider();
    let mut mirror = synced(&provider, &clock).await;
    mirror.forget_cursor().await.unwrap();
    provider.remove(&home(), &source("e8"));
    provider.plan(ProviderFault::TruncatedListing);
    mirror.round().await.unwrap();
    assert_eq!(provider.struck(ProviderFault::TruncatedListing), 1);
    assert_eq!(mirror.shown(), truth(&provider));
    assert_eq!(mirror.graph.len(), 9);
}

#[tokio::test]
async fn a_repeated_page_is_mirrored_once() {
    let (naive, _) = naive_relisted(ProviderFault::PageRepeated);
    assert_eq!(naive.rows, 10 + PAGE, "entities are mirrored twice");

    let (mut mirror, provider, _, result) = relisted(ProviderFault::PageRepeated).await;
    assert_eq!(code(result), "ok", "the receipt counts each entity once, as the total does");
    let state = mirror.store.connector(&owner(), &calendar()).sync_state().await.unwrap();
    assert_eq!((mirror.graph.len(), state.unwrap().entity_count), (10, 10));
    assert_eq!(mirror.shown(), truth(&provider));
    assert_recovers(&mut mirror).await;
}

#[tokio::test]
async fn a_skipped_page_is_found_by_the_total_and_deletes_nothing() {
    let (naive, _) = naive_relisted(ProviderFault::PageSkipped);
    assert_eq!(naive.documents.len(), 10 - PAGE, "the page is deleted");

    let (mut mirror, provider, _, result) = relisted(ProviderFault::PageSkipped).await;
    assert_eq!(code(result), "CONNECTOR_RECEIPT_INCOMPLETE");
    assert_eq!(mirror.shown(), truth(&provider));
    assert_recovers(&mut mirror).await;
}

#[tokio::test]
async fn two_entities_with_one_id_are_neither_believed_nor_counted() {
    let (naive, provider) = naive_relisted(ProviderFault::TwoWithOneId);
    assert_ne!(naive.shown(), truth(&provider), "one has the content of another");

    let (mut mirror, provider, _, result) = relisted(ProviderFault::TwoWithOneId).await;
    assert_eq!(code(result), "CONNECTOR_RECEIPT_INCOMPLETE");
    assert_eq!(mirror.shown(), truth(&provider));
    assert_recovers(&mut mirror).await;
}

/// What was mirrored of it stays, everything behind it is mirrored, and it heals with the next edit.
#[tokio::test]
async fn a_poisoned_item_is_there_though_it_cannot_be_mirrored() {
    let (naive, _) = naive_relisted(ProviderFault::ItemPoisoned);
    assert_eq!(naive.documents.len(), 9, "what cannot be read is deleted");

    let (mut mirror, provider, _, result) = relisted(ProviderFault::ItemPoisoned).await;
    assert_eq!(code(result), "ok");
    let poisoned: Vec<_> =
        provider.truth(&home()).into_iter().filter(|it| title(&it.content).is_none()).collect();
    assert_eq!(poisoned.len(), 1);
    assert_eq!(mirror.graph.len(), 10);
    assert!(mirror.shown().iter().all(|(_, title)| title.is_some()), "{:?}", mirror.shown());
    provider.put(&home(), &poisoned[0].source_id, &titled("healed"));
    assert_recovers(&mut mirror).await;
}
