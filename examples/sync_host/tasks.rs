//! Many futures at once, but not too many.

use std::future::Future;

use tokio::task::JoinSet;

use crate::Failure;

/// Runs the futures, at most `limit` of them at a time, and gives their results in any order.
///
/// The store commits in groups: sixty-four commands that are sent together cost little more than
/// one, where sent one after the other each would wait for the disk alone.
pub async fn at_once<F>(
    limit: usize,
    futures: impl IntoIterator<Item = F>,
) -> Result<Vec<F::Output>, Failure>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let mut running = JoinSet::new();
    let mut results = Vec::new();
    for future in futures {
        if running.len() >= limit
            && let Some(result) = running.join_next().await
        {
            results.push(result?);
        }
        running.spawn(future);
    }
    while let Some(result) = running.join_next().await {
        results.push(result?);
    }
    Ok(results)
}
