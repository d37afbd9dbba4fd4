//! Sync leases: taken, kept, lost and given back by everybody, with writes under them that go on for
//! longer than the lease.

use connector_store::domain::Fence;
use connector_store::{
    ConnectorName, ConnectorRef, DocumentId, Error, Holder, Json, Lease, LeaseScope, Result,
    StreamKey, SyncStatus,
};

use super::{Worker, progress};
use crate::engine::audit::leases::Step;
use crate::engine::world::World;

pub const CONNECTOR: &str = "leases";
/// Documents that are written under leases.
const DOCUMENTS: usize = 4;
const LONGEST_MILLIS: u64 = 12_000;

pub async fn work(worker: &Worker) {
    let at = worker.account(CONNECTOR);
    let Ok(mut lease) = acquire(worker, &at).await else { return };
    let scope = scope(&at);
    let mut lost = false;
    while worker.world.goes_on() && !worker.world.chance(|chance| chance.per_mille(250)) {
        worker.world.rest(1, 6_000).await;
        let result = match worker.world.chance(|chance| chance.below(5)) {
            0 => renew(worker, &scope, &mut lease).await,
            1 => write_two(worker, &scope, &lease).await,
            2 => write_connector(worker, &scope, &lease).await,
            _ => write(worker, &scope, &lease).await,
        };
        worker.world.hold("a lost lease stays lost", !lost || result.is_err(), || {
            format!("{} did something under {lease:?}", worker.name)
        });
        lost |= matches!(result, Err(Error::LeaseLost { .. }));
        if lost && worker.world.chance(|chance| chance.per_mille(600)) {
            return;
        }
    }
    // Some die with it in hand.
    if worker.world.chance(|chance| chance.per_mille(600)) {
        let _ = release(worker, &scope, &lease).await;
    }
}

fn scope(at: &ConnectorRef) -> LeaseScope {
    LeaseScope::Sync { owner: at.owner().clone(), connector: at.name().clone() }
}

async fn acquire(worker: &Worker, at: &ConnectorRef) -> Result<Lease> {
    let world = &worker.world;
    world.audit.borrow_mut().leases.is_told(&scope(at));
    // Under the name of the host, its people take it from each other.
    let (whole, ttl) =
        world.chance(|chance| (chance.per_mille(200), chance.millis(500, LONGEST_MILLIS)));
    let holder = if whole { worker.host.holder() } else { Holder::new(&worker.name).unwrap() };
    let acquire = |id| {
        let (at, holder) = (at.with_command_id(id), holder.clone());
        async move { at.acquire_lease(&holder, ttl).await }
    };
    world
        .command(
            &worker.host,
            &format!("acquire a sync lease: {} for {holder}", at.owner()),
            acquire,
        )
        .await
}

async fn renew(worker: &Worker, scope: &LeaseScope, lease: &mut Lease) -> Result<()> {
    let world = &worker.world;
    world.audit.borrow_mut().leases.call(scope, Step::Renew, lease.token());
    let ttl = world.chance(|chance| chance.millis(500, LONGEST_MILLIS));
    *lease =
        world.call(&worker.host, &format!("renew a sync lease: {scope}"), lease.renew(ttl)).await?;
    Ok(())
}

async fn release(worker: &Worker, scope: &LeaseScope, lease: &Lease) -> Result<()> {
    worker.world.audit.borrow_mut().leases.call(scope, Step::Release, lease.token());
    worker
        .world
        .call(&worker.host, &format!("release a sync lease: {scope}"), lease.release())
        .await
}

fn document(at: usize) -> DocumentId {
    DocumentId::new(format!("l{at}")).unwrap()
}

fn numbered(number: u64) -> Json {
    Json::parse("number", &number.to_string()).unwrap()
}

/// A number that is good under this lease alone.
fn fenced_number(world: &World, scope: &LeaseScope, lease: &Lease) -> u64 {
    let number = world.draw() >> 12;
    let fence = Fence { scope: scope.clone(), token: lease.token() };
    world.audit.borrow_mut().leases.fence_number(number, fence);
    number
}

async fn write(worker: &Worker, scope: &LeaseScope, lease: &Lease) -> Result<()> {
    let world = &worker.world;
    let document = document(world.chance(|chance| chance.below(DOCUMENTS)));
    let number = fenced_number(world, scope, lease);
    let fence = Fence { scope: scope.clone(), token: lease.token() };
    let handle = lease.session().document(&document);
    let account = &world.accounts.all[0].owner;
    let set = |id| {
        world.audit.borrow_mut().leases.fence(id, fence.clone());
        let (handle, account) = (handle.with_command_id(id), account.clone());
        async move {
            handle.set_entity_trim(&account, &world.accounts.connector, numbered(number)).await
        }
    };
    world
        .command(&worker.host, &format!("set a trim: {document} to {number} under {scope}"), set)
        .await
}

async fn write_connector(worker: &Worker, scope: &LeaseScope, lease: &Lease) -> Result<()> {
    let world = &worker.world;
    let fence = Fence { scope: scope.clone(), token: lease.token() };
    let handle = lease.session().connector();
    let input = progress::input(world.draw() >> 12, SyncStatus::Syncing);
    let set = |id| {
        world.audit.borrow_mut().leases.fence(id, fence.clone());
        let (handle, input) = (handle.with_command_id(id), input.clone());
        async move { handle.set_sync_state(input).await }
    };
    world.command(&worker.host, &format!("set a sync state: under {scope}"), set).await
}

async fn write_two(worker: &Worker, scope: &LeaseScope, lease: &Lease) -> Result<()> {
    let world = &worker.world;
    let first = world.chance(|chance| chance.below(DOCUMENTS));
    let documents = [document(first), document((first + 1) % DOCUMENTS)];
    let number = fenced_number(world, scope, lease);
    let account = &world.accounts.all[0].owner;
    let both = async {
        let unit = lease.session().unit_of_work(documents.clone().map(StreamKey::Document)).await?;
        for document in &documents {
            let handle = unit.document(document);
            handle.set_entity_trim(account, &world.accounts.connector, numbered(number)).await?;
        }
        unit.commit().await
    };
    world.call(&worker.host, &format!("set two trims: to {number} under {scope}"), both).await
}

/// No lease is held for ever: those whose holders are gone end, and anybody takes them.
pub async fn finish(worker: &Worker) {
    let world = &worker.world;
    world.rest(LONGEST_MILLIS, LONGEST_MILLIS + 1).await;
    for account in &world.accounts.all {
        let at = worker.store.connector(&account.owner, &ConnectorName::new(CONNECTOR).unwrap());
        // Of the others nobody has ever asked for the lease.
        if !world.audit.borrow().leases.is_known(&scope(&at)) {
            continue;
        }
        match acquire(worker, &at).await {
            Ok(lease) => drop(release(worker, &scope(&at), &lease).await),
            Err(error) => world.violate("no lease is held for ever", error),
        }
    }
    let audit = world.audit.borrow();
    let held = audit.leases.standing().find(|(scope, _)| match scope {
        LeaseScope::Sync { connector, .. } => connector.as_str() == CONNECTOR,
        LeaseScope::Operation { document_id, .. } => document_id.as_str().starts_with('e'),
        _ => false,
    });
    world.hold("no lease is held for ever", held.is_none(), || format!("{held:?}"));
}
