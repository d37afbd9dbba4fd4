//! Watches: whether the provider shows what was written to it.

use connector_store::testing::ProviderError;
use connector_store::{Digest, DocumentId, Result, Verification};

use super::Worker;

/// Looks whether the provider shows what was written.
pub async fn verify(worker: &Worker, document: &DocumentId) -> Result<()> {
    let world = &worker.world;
    let edits = &world.accounts.edits;
    worker.host.unpaused().await;
    let fetched_at = edits.stamp(world);
    let observed = match edits.read(document) {
        Ok(content) => Some(Digest::of(content.as_str().as_bytes())),
        Err(ProviderError::Gone) => None,
        Err(_) => return Ok(()),
    };
    let handle = worker.store.document(document);
    let verify = |id| {
        let (handle, fetched_at) = (handle.with_command_id(id), fetched_at.clone());
        async move { handle.record_verification(&fetched_at, observed).await }
    };
    let seen =
        world.command(&worker.host, &format!("record a verification: {document}"), verify).await?;
    if seen == Verification::Expired {
        // The provider's own spelling, which somebody has looked at.
        let disarm = |id| {
            let handle = handle.with_command_id(id);
            async move { handle.disarm_watch().await }
        };
        world.command(&worker.host, &format!("disarm a watch: {document}"), disarm).await?;
    }
    Ok(())
}
