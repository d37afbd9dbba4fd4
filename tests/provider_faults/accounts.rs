//! The credential leads to another account: nothing is mirrored from it, deleted by it or written to it.

use connector_store::OperationKind;
use connector_store::testing::ProviderFault;

use crate::common::*;

const SWAPPED: ProviderFault = ProviderFault::AccountSwapped { lasts: SECOND };

#[tokio::test]
async fn another_account_is_neither_mirrored_nor_believed() {
    let (provider, clock) = provider();
    let mut naive = Naive::synced(&provider);
    provider.plan(SWAPPED);
    naive.list(&provider).unwrap();
    let shown: Vec<_> = naive.documents.into_keys().collect();
    assert_eq!(shown, ["stranger"], "all is deleted, and a stranger's entity mirrored");
    clock.advance(SECOND);

    let mut mirror = synced(&provider, &clock).await;
    mirror.forget_cursor().await.unwrap();
    provider.plan(SWAPPED);
    assert_eq!(code(mirror.round().await), "CONNECTOR_SCOPE_CHANGED");
    assert_eq!(mirror.shown(), truth(&provider));
    clock.advance(SECOND);
    provider.remove(&home(), &source("e1"));
    mirror.round().await.unwrap();
    assert_eq!(mirror.shown(), truth(&provider));
    assert_eq!(mirror.graph.len(), 9);
}

/// To the other account the cursor means nothing, so it looks expired; the list that is owed then is
/// not taken from there either.
#[tokio::test]
async fn changes_of_another_account_are_not_followed() {
    let (provider, clock) = provider();
    let mut mirror = synced(&provider, &clock).await;
    provider.plan(SWAPPED);
    assert!(mirror.round().await.is_err());
    assert_eq!(code(mirror.round().await), "CONNECTOR_SCOPE_CHANGED");
    assert_eq!(mirror.shown(), truth(&provider));
    clock.advance(SECOND);
    provider.put(&home(), &source("new"), &titled("new"));
    mirror.round().await.unwrap();
    assert_eq!(mirror.shown(), truth(&provider));
}

#[tokio::test]
async fn nothing_is_written_to_another_account() {
    let (provider, clock) = provider();
    provider.plan(SWAPPED);
    assert_eq!(provider.account(), "account-2");
    provider.write(&plain_write("n", OperationKind::Create, Some(titled("n")))).unwrap();
    clock.advance(SECOND);
    assert_eq!(truth(&provider).len(), 10, "what the user wrote is in a stranger's account");

    let mut mirror = synced(&provider, &clock).await;
    provider.plan(SWAPPED);
    mirror.create("c", titled("mine")).await.unwrap();
    assert_eq!(provider.effective_writes(&operation("op-c")), 0);
    mirror.rounds().await;
    assert_eq!(provider.effective_writes(&operation("op-c")), 1);
    assert_eq!(truth(&provider).len(), 11);
    assert_eq!(mirror.shown(), truth(&provider));
}
