//! The database's time and heads, asked for all who wait at once, by a statement that does not come
//! back in time.

use std::time::Duration;

use connector_store::journal::PostgresOptions;
use tokio::time::Instant;

use crate::common::*;
use crate::world::{World, run};

const LIMIT: Duration = Duration::from_secs(2);
/// What the machine may be slower by.
const SLACK: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_who_wait_for_a_statement_that_hangs_are_answered_in_time() {
    let Some(world) = World::new() else { return };
    let options = PostgresOptions::new(world.url()).command_timeout(LIMIT);
    let host = world.open(options, |builder| builder.command_timeout(LIMIT)).await.unwrap();
    set_trim(&host.store.document(&document("a")), 1).await.unwrap();
    let mut holder = world.session().await;
    run(&mut holder, "BEGIN; LOCK TABLE connector_stream IN ACCESS EXCLUSIVE MODE").await;
    let mut calls = Vec::new();
    for number in 0..60 {
        // They come while a statement hangs, not only before.
        if number == 1 {
            world.until_locked_out(1).await;
        }
        let store = host.store.clone();
        calls.push(tokio::spawn(async move {
            let begun = Instant::now();
            let result = match number % 3 {
                0 => store.document(&document("a")).entity_trim().await.map(drop),
                1 => store.document(&document(number)).entity_trim().await.map(drop),
                _ => store.unit_of_work([document_key("a"), document_key("b")]).await.map(drop),
            };
            (begun.elapsed(), result)
        }));
    }
    for call in calls {
        let (took, result) = bounded(call).await.unwrap();
        let error = result.unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert!(took < LIMIT + SLACK, "{took:?}");
    }
    run(&mut holder, "COMMIT").await;
    assert_eq!(bounded(trim(&host.store.document(&document("a")))).await, Some(1));
    set_trim(&host.store.document(&document("a")), 2).await.unwrap();
    // Nobody is left who waits when the store closes.
    run(&mut holder, "BEGIN; LOCK TABLE connector_stream IN ACCESS EXCLUSIVE MODE").await;
    let waiting: Vec<_> = (0..20)
        .map(|number| {
            let handle = host.store.document(&document(number % 5));
            tokio::spawn(async move { handle.entity_trim().await })
        })
        .collect();
    world.until_locked_out(1).await;
    let closed = bounded(host.store.close()).await;
    for call in waiting {
        assert!(bounded(call).await.unwrap().is_err());
    }
    drop(closed);
    run(&mut holder, "COMMIT").await;
    assert_eq!(world.events(), 2);
}
