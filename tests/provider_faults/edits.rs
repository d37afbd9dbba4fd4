//! Local edits that are not yet written: neither a wrong clock nor a rename takes them away.

use connector_store::Clock;
use connector_store::testing::ProviderFault;

use crate::common::*;

/// The user has edited `e3` while the provider takes nothing.
async fn edited() -> (Mirror, connector_store::DocumentId) {
    let (provider, clock) = provider();
    let mut mirror = synced(&provider, &clock).await;
    let id = mirror.by_source(&source("e3")).unwrap();
    provider.plan(ProviderFault::RateLimitStorm { lasts: SECOND });
    mirror.update(&id, "op-e", titled("mine")).await.unwrap();
    assert!(mirror.graph[&id].edit.is_some());
    (mirror, id)
}

#[tokio::test]
async fn a_wrong_clock_at_the_provider_does_not_make_an_old_value_newer_than_an_edit() {
    let fault = ProviderFault::ClockWrong { by_millis: 3_600_000 };
    let (provider, clock) = provider();
    let mut naive = Naive::synced(&provider);
    clock.advance(SECOND);
    let edited_at = clock.wall();
    naive.documents.insert("e3".to_owned(), Some("mine".to_owned()));
    // The later one wins, by the time of the answer.
    provider.plan(fault);
    let fetched_at = provider.now();
    let fetched = provider.get(&home(), &source("e3")).unwrap();
    if fetched_at > edited_at {
        naive.documents.insert("e3".to_owned(), title(&fetched.content));
    }
    assert_eq!(naive.documents["e3"].as_deref(), Some("event 3"), "the edit is lost");

    let (mut mirror, id) = edited().await;
    let (provider, clock) = (mirror.provider.clone(), mirror.clock.clone());
    provider.plan(fault);
    let skew = provider.now().as_millis() - clock.wall().as_millis();
    assert_eq!(skew, 3_600_000);
    // The host's own clock takes no stamp from the future.
    let theirs = format!("{:015}-00000000-provider", provider.now().as_millis() + skew);
    let stamp = connector_store::Hlc::parse(&theirs).unwrap();
    let refused = mirror.stamps.observe(&stamp, clock.wall().as_millis()).unwrap_err();
    assert_eq!(refused.code(), "CONNECTOR_HLC_DRIFT");
    clock.advance(SECOND);
    mirror.forget_cursor().await.unwrap();
    mirror.round().await.unwrap();
    assert_eq!(title(&mirror.graph[&id].content).as_deref(), Some("mine"));
    mirror.rounds().await;
    assert_eq!(provider.effective_writes(&operation("op-e")), 1);
    assert_eq!(mirror.shown(), truth(&provider));
    assert!(truth(&provider).contains(&("e3".to_owned(), Some("mine".to_owned()))));
}

/// The write then finds nothing under the old name, and what the user wrote is made anew beside the renamed
/// entity.
#[tokio::test]
async fn a_rename_that_looks_like_a_deletion_does_not_take_an_edit_along() {
    let fault = ProviderFault::RenameAsDeleteCreate;
    let (provider, _) = provider();
    let mut naive = Naive::synced(&provider);
    naive.documents.insert("e3".to_owned(), Some("mine".to_owned()));
    provider.plan(fault);
    assert!(provider.rename(&home(), &source("e3"), &source("moved")));
    naive.follow(&provider).unwrap();
    assert!(!naive.documents.values().any(|title| title.as_deref() == Some("mine")), "lost");

    let (mut mirror, id) = edited().await;
    let provider = mirror.provider.clone();
    provider.plan(fault);
    assert!(provider.rename(&home(), &source("e3"), &source("moved")));
    mirror.clock.advance(SECOND);
    mirror.round().await.unwrap();
    assert_eq!(provider.struck(fault), 1);
    assert_eq!(title(&mirror.graph[&id].content).as_deref(), Some("mine"));
    mirror.rounds().await;
    assert_eq!(provider.effective_writes(&operation("op-e")), 0);
    assert_eq!(provider.effective_writes(&operation("op-e-again")), 1);
    let standing = truth(&provider);
    assert!(standing.contains(&("e3".to_owned(), Some("mine".to_owned()))));
    assert!(standing.contains(&("moved".to_owned(), Some("event 3".to_owned()))));
    assert_eq!(mirror.shown(), standing);
}

#[tokio::test]
async fn a_rename_that_is_told_keeps_the_document() {
    let (provider, clock) = provider();
    let mut mirror = synced(&provider, &clock).await;
    let id = mirror.by_source(&source("e3")).unwrap();
    assert!(provider.rename(&home(), &source("e3"), &source("moved")));
    mirror.round().await.unwrap();
    assert_eq!(mirror.by_source(&source("moved")), Some(id));
    assert_eq!(mirror.shown(), truth(&provider));
}
