//! Faults of writes: each is done once, and none is forgotten.

use connector_store::OperationKind;
use connector_store::testing::{Provider, ProviderError, ProviderFault, SimClock};

use crate::common::*;

fn writes(provider: &Provider, name: &str) -> u32 {
    provider.effective_writes(&operation(name))
}

/// Sends until it is answered well, three times at most, without a pause: so do most.
fn naive_create(provider: &Provider, name: &str) {
    let write = plain_write(name, OperationKind::Create, Some(titled(name)));
    for _ in 0..3 {
        if provider.write(&write).is_ok() {
            return;
        }
    }
}

/// The user makes a document under these faults, and a minute passes.
async fn created(faults: &[ProviderFault]) -> (Mirror, Provider) {
    let (provider, clock) = provider();
    let mut mirror = synced(&provider, &clock).await;
    faults.iter().for_each(|fault| provider.plan(*fault));
    mirror.create("c", titled("mine")).await.unwrap();
    mirror.rounds().await;
    for fault in faults {
        assert_eq!(provider.struck(*fault), 1, "{}", fault.name());
    }
    (mirror, provider)
}

fn assert_written_once(mirror: &Mirror, provider: &Provider) {
    assert_eq!(writes(provider, "op-c"), 1);
    assert!(truth(provider).contains(&("c".to_owned(), Some("mine".to_owned()))));
    assert_eq!(mirror.shown(), truth(provider));
    assert!(mirror.graph.values().all(|it| it.edit.is_none() && !it.is_watched));
}

#[tokio::test]
async fn a_write_that_landed_without_an_answer_is_not_sent_again() {
    for fault in [ProviderFault::WriteTimedOut, ProviderFault::UnavailableButDone] {
        let (provider, _) = provider();
        provider.plan(fault);
        naive_create(&provider, "n");
        assert_eq!(writes(&provider, "op-n"), 2, "{}", fault.name());

        let (mirror, provider) = created(&[fault]).await;
        assert_written_once(&mirror, &provider);
    }
}

#[tokio::test]
async fn a_write_that_was_lost_is_sent_again_once_it_is_certain() {
    let (provider, _) = provider();
    provider.plan(ProviderFault::WriteLost);
    let write = plain_write("n", OperationKind::Create, Some(titled("n")));
    // A client that has learnt that a time-out may have landed leaves it at that.
    assert_eq!(provider.write(&write), Err(ProviderError::TimedOut));
    assert_eq!(writes(&provider, "op-n"), 0, "the user's write is lost");

    let (mirror, provider) = created(&[ProviderFault::WriteLost]).await;
    assert_written_once(&mirror, &provider);
}

#[tokio::test]
async fn a_write_that_is_shown_late_is_not_sent_again() {
    let late = ProviderFault::WriteVisibleLater { after: SECOND * 2 };
    let (provider, _) = provider();
    provider.plan(late);
    provider.plan(ProviderFault::WriteTimedOut);
    let write = plain_write("n", OperationKind::Create, Some(titled("n")));
    assert!(provider.write(&write).is_err());
    // It asks, as it should, but too early.
    if provider.get(&home(), &source("n")).is_err() {
        provider.write(&write).unwrap();
    }
    assert_eq!(writes(&provider, "op-n"), 2);

    let (mirror, provider) = created(&[late, ProviderFault::WriteTimedOut]).await;
    assert_written_once(&mirror, &provider);
}

/// The document is missing from the listing behind the write, and from the answer of the provider
/// that is asked about it.
#[tokio::test]
async fn what_was_just_written_is_not_deleted_because_it_is_not_shown_yet() {
    let late = ProviderFault::WriteVisibleLater { after: SECOND * 2 };
    let (provider, clock) = provider();
    let mut naive = Naive::synced(&provider);
    provider.plan(late);
    naive_create(&provider, "n");
    naive.documents.insert("n".to_owned(), Some("n".to_owned()));
    naive.list(&provider).unwrap();
    assert!(!naive.documents.contains_key("n"), "what the user has just made is deleted");
    clock.advance(SECOND * 2);

    let mut mirror = synced(&provider, &clock).await;
    provider.plan(late);
    let id = mirror.create("c", titled("mine")).await.unwrap();
    mirror.forget_cursor().await.unwrap();
    mirror.round().await.unwrap();
    assert_eq!(provider.struck(late), 2);
    let connector = mirror.store.connector(&owner(), &calendar());
    assert_eq!(connector.candidates(&home(), None, 10).await.unwrap().len(), 1);
    assert!(mirror.graph.contains_key(&id), "an absence is only a mismatch");
    mirror.rounds().await;
    assert!(connector.candidates(&home(), None, 10).await.unwrap().is_empty());
    assert!(mirror.graph.contains_key(&id));
    assert_written_once(&mirror, &provider);
}

#[tokio::test]
async fn a_write_that_the_provider_spells_in_its_own_way_is_not_made_again() {
    let sent = titled("mine");
    let (provider, _) = provider();
    for _ in 0..5 {
        provider.plan(ProviderFault::WriteNormalised);
    }
    let write = plain_write("n", OperationKind::Create, Some(sent.clone()));
    for _round in 0..5 {
        let standing = provider.get(&home(), &source("n"));
        if standing.map(|item| item.content).as_ref() != Ok(&sent) {
            provider.write(&write).unwrap();
        }
    }
    assert_eq!(writes(&provider, "op-n"), 5, "it writes in each round");

    let (mirror, provider) = created(&[ProviderFault::WriteNormalised]).await;
    assert_written_once(&mirror, &provider);
    let id = mirror.by_source(&source("c")).unwrap();
    assert_eq!(mirror.graph[&id].content.as_str(), r#"{"normalised":true,"title":"mine"}"#);
}

#[tokio::test]
async fn a_write_waits_for_the_end_of_a_rate_limit() {
    let storm = ProviderFault::RateLimitStorm { lasts: SECOND * 20 };
    let (provider, _) = provider();
    provider.plan(storm);
    naive_create(&provider, "n");
    assert_eq!(writes(&provider, "op-n"), 0, "it gave up, and the user's write is lost");

    let (mirror, provider) = created(&[storm]).await;
    assert_written_once(&mirror, &provider);
}

async fn deleted(fault: ProviderFault) -> (Mirror, Provider, SimClock) {
    let (provider, clock) = provider();
    let mut mirror = synced(&provider, &clock).await;
    let id = mirror.by_source(&source("e3")).unwrap();
    provider.plan(fault);
    mirror.remove(&id, "op-d").await.unwrap();
    mirror.rounds().await;
    assert_eq!(provider.struck(fault), 1);
    (mirror, provider, clock)
}

#[tokio::test]
async fn a_delete_that_is_answered_gone_already_is_done() {
    let (provider, _) = provider();
    let naive = Naive::synced(&provider);
    provider.plan(ProviderFault::GoneAlready);
    if provider.write(&plain_write("e3", OperationKind::Delete, None)).is_err() {
        // The delete has failed, so the document is put back; and the next round finds it missing
        // at the provider.
        let title = naive.documents["e3"].clone().unwrap();
        let write = plain_write("e3", OperationKind::Create, Some(titled(title)));
        provider.write(&write).unwrap();
    }
    assert!(truth(&provider).iter().any(|(id, _)| id == "e3"), "what was deleted is back");

    let (mirror, provider, _) = deleted(ProviderFault::GoneAlready).await;
    assert_eq!(writes(&provider, "op-d"), 1);
    assert_eq!((mirror.graph.len(), truth(&provider).len()), (9, 9));
    assert_eq!(mirror.shown(), truth(&provider));
}

#[tokio::test]
async fn a_delete_without_an_answer_is_made_once() {
    for fault in [ProviderFault::WriteTimedOut, ProviderFault::WriteLost] {
        let (mirror, provider, _) = deleted(fault).await;
        assert_eq!(writes(&provider, "op-d"), 1, "{}", fault.name());
        assert_eq!(mirror.shown(), truth(&provider));
        assert_eq!(mirror.graph.len(), 9);
    }
}
