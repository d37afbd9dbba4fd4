//! Progress: sync states that everybody moves on, replaces, deletes and reads.

use connector_store::{
    ConnectorRef, Error, Json, ProgressVersion, Result, Rfc3339, StreamKey, SyncProgress,
    SyncState, SyncStateInput, SyncStatus, Timestamp,
};

use super::Worker;

/// Its states are moved on by nobody else.
pub const CONNECTOR: &str = "progress";

pub async fn work(worker: &Worker) {
    let at = worker.account(CONNECTOR);
    let _ = match worker.world.chance(|chance| chance.below(12)) {
        0..4 => update(worker, &at).await,
        4..7 => update_with(worker, &at).await,
        7 => set(worker, &at).await,
        8 => delete(worker, &at).await,
        9 => anew(worker, &at).await,
        _ => read(worker, &at).await,
    };
}

/// The number that a checkpoint bears.
pub fn number(checkpoint: Option<&Json>) -> u64 {
    checkpoint.and_then(|checkpoint| checkpoint.as_str().parse().ok()).unwrap_or(0)
}

fn key(at: &ConnectorRef) -> StreamKey {
    StreamKey::Connector(at.owner().clone(), at.name().clone())
}

fn json(number: u64) -> Option<Json> {
    Some(Json::parse("number", &number.to_string()).unwrap())
}

/// One more, under this number.
fn next(number: u64, standing: Option<&SyncState>) -> SyncProgress {
    SyncProgress {
        checkpoint: json(number),
        recovery: json(number),
        last_synced_at: Rfc3339::from_timestamp(Timestamp::from_millis(0)),
        entity_count: standing.map_or(0, |state| state.entity_count) + 1,
        error: None,
    }
}

/// A state that replaces another, under this number.
pub fn input(number: u64, status: SyncStatus) -> SyncStateInput {
    SyncStateInput {
        checkpoint: json(number),
        recovery: None,
        last_synced_at: Rfc3339::from_timestamp(Timestamp::from_millis(0)),
        entity_count: i64::try_from(number % 1_000).unwrap(),
        status,
        error: None,
    }
}

/// What the writer of a number was told, where no id of its own says what became of it.
fn told(
    worker: &Worker,
    at: &ConnectorRef,
    number: u64,
    result: Result<ProgressVersion>,
) -> Result<()> {
    let mut audit = worker.world.audit.borrow_mut();
    match &result {
        Ok(version) => audit.progress.done(&worker.world, &key(at), number, Some(*version)),
        Err(Error::OutcomeUnknown { .. }) => {}
        Err(_) => audit.progress.refused(&worker.world, number),
    }
    result.map(drop)
}

async fn update(worker: &Worker, at: &ConnectorRef) -> Result<()> {
    let number = worker.world.draw() >> 12;
    let call = at.update_sync_progress(move |standing| next(number, standing));
    let what = format!("move progress: {} to {number}", at.owner());
    let result = worker.world.call(&worker.host, &what, call).await;
    told(worker, at, number, result)
}

/// The computation takes its time, in which others write.
async fn update_with(worker: &Worker, at: &ConnectorRef) -> Result<()> {
    let world = &worker.world;
    let number = world.draw() >> 12;
    world.audit.borrow_mut().progress.is_slow(number);
    let retries = world.chance(|chance| [None, Some(0), Some(1)][chance.below(3)]);
    let call = at.update_sync_progress_with(retries, |standing| async move {
        world.rest(1, 400).await;
        next(number, standing.as_ref())
    });
    let what = format!("move progress slowly: {} to {number}", at.owner());
    let result = world.call(&worker.host, &what, call).await;
    told(worker, at, number, result)
}

async fn set(worker: &Worker, at: &ConnectorRef) -> Result<()> {
    let world = &worker.world;
    let number = world.draw() >> 12;
    let status = world.chance(|chance| {
        [SyncStatus::Idle, SyncStatus::Syncing, SyncStatus::Error][chance.below(3)]
    });
    let input = input(number, status);
    let set = |id| {
        let (at, input) = (at.with_command_id(id), input.clone());
        async move { at.set_sync_state(input).await }
    };
    world
        .command(&worker.host, &format!("set a sync state: {} to {number}", at.owner()), set)
        .await?;
    world.audit.borrow_mut().progress.done(world, &key(at), number, None);
    Ok(())
}

/// What was read before is of another state, though its version may be the same.
async fn anew(worker: &Worker, at: &ConnectorRef) -> Result<()> {
    delete(worker, at).await?;
    set(worker, at).await
}

async fn delete(worker: &Worker, at: &ConnectorRef) -> Result<()> {
    let delete = |id| {
        let at = at.with_command_id(id);
        async move { at.delete_sync_state().await }
    };
    worker
        .world
        .command(&worker.host, &format!("delete a sync state: {}", at.owner()), delete)
        .await
}

async fn read(worker: &Worker, at: &ConnectorRef) -> Result<()> {
    let (world, key) = (&worker.world, key(at));
    worker.host.unpaused().await;
    let floor = world.audit.borrow().progress.floor(&key);
    let what = format!("read a sync state: {}", at.owner());
    let state = world.call(&worker.host, &what, at.sync_state()).await?;
    world.audit.borrow_mut().progress.read(world, &key, state.as_ref(), floor);
    Ok(())
}
