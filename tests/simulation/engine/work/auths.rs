//! Authorizations: begun, answered by several hosts at once, and left to expire.

use std::cell::RefCell;
use std::rc::Rc;

use connector_store::domain::auth::auth_key;
use connector_store::{Clock as _, Error, PendingAuthRecord, Secret, StreamKey, Timestamp};
use tokio::task::JoinSet;

use super::{Worker, leases, progress};
use crate::engine::audit::auths::MARK;

/// Those that were begun. Nobody else knows the secrets.
#[derive(Default)]
pub struct Begun(RefCell<Vec<PendingAuthRecord>>);

impl std::fmt::Debug for Begun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Begun")
    }
}

pub async fn work(worker: &Worker) {
    match worker.world.chance(|chance| chance.below(6)) {
        0..3 => create(worker).await,
        3..5 => consume(worker).await,
        _ => expire(worker).await,
    }
}

async fn create(worker: &Worker) {
    let world = &worker.world;
    let (number, account, millis, is_ours, again) = world.chance(|chance| {
        let account = chance.below(world.accounts.all.len());
        (chance.draw(), account, chance.below(120_000), chance.below(3), chance.per_mille(200))
    });
    let now = world.clock.wall();
    let record = PendingAuthRecord {
        state: Secret::new(format!("state-{MARK}-{number}")),
        code_verifier: Secret::new(format!("verifier-{MARK}-{number}")),
        // The connection's when it has its name: then it goes with it.
        provider: [leases::CONNECTOR, progress::CONNECTOR, "another"][is_ours].to_owned(),
        owner: world.accounts.all[account].owner.clone(),
        owner_wrappable_did: None,
        controller_wrappable_did: None,
        created_at: now,
        redirect_url: format!("https://host.example/?state={MARK}"),
        scopes: vec![format!("read-{MARK}")],
        is_incremental: false,
        expires_at: now.plus_millis(i64::try_from(millis).unwrap()),
    };
    world.accounts.begun.0.borrow_mut().push(record.clone());
    let key = auth_key(&record.state);
    let call = worker.store.create_pending_auth(record.clone());
    let created = world
        .call(&worker.host, &format!("begin an authorization: {}", key.stream_name()), call)
        .await;
    not_told(worker, created.err());
    if again && world.audit.borrow().auths.is_pending(&key) {
        let call = worker.store.create_pending_auth(record);
        let again = world.call(&worker.host, "begin an authorization: again", call).await;
        let is_free = world.audit.borrow().auths.is_begun_again(&key);
        world.hold("an authorization is begun once", again.is_err() || is_free, || {
            format!("{again:?}")
        });
        not_told(worker, again.err());
    }
}

/// An error says nothing of a secret.
fn not_told(worker: &Worker, error: Option<Error>) {
    let Some(error) = error else { return };
    let text = format!("{error} {error:?}");
    worker.world.hold("a secret is in its row alone", !text.contains(MARK), || text.clone());
}

/// The answer comes to several hosts at once, as where somebody reloads the page.
async fn consume(worker: &Worker) {
    let world = &worker.world;
    let drawn = world.chance(|chance| {
        let begun = world.accounts.begun.0.borrow();
        let record = begun.get(chance.below(begun.len())).cloned();
        record.map(|record| (record, 1 + chance.below(4)))
    });
    let Some((record, count)) = drawn else { return };
    let record = Rc::new(record);
    let mut all = JoinSet::new();
    for at in 0..count {
        let host = &world.hosts[(worker.host.number + at) % world.hosts.len()];
        let Some(life) = host.life() else { continue };
        let (worker, host) = (worker.clone(), Rc::clone(host));
        let record = Rc::clone(&record);
        let other = Worker { host, store: life.store, ..worker };
        all.spawn_local(async move { consume_one(&other, &record).await });
    }
    while all.join_next().await.is_some() {}
}

async fn consume_one(worker: &Worker, record: &PendingAuthRecord) {
    let key: StreamKey = auth_key(&record.state);
    let call = worker.store.consume_pending_auth(&record.state);
    let what = format!("consume an authorization: {}", key.stream_name());
    match worker.world.call(&worker.host, &what, call).await {
        Ok(taken) => {
            worker.world.audit.borrow_mut().auths.handed_out(&worker.world, &key);
            worker.world.hold("an authorization is handed out whole", taken == *record, || {
                key.stream_name().to_string()
            });
        }
        Err(error) => not_told(worker, Some(error)),
    }
}

async fn expire(worker: &Worker) {
    let now = worker.world.clock.wall();
    delete_before(worker, now).await;
}

async fn delete_before(worker: &Worker, cutoff: Timestamp) {
    worker.world.audit.borrow_mut().auths.deletes_before(cutoff);
    let call = worker.store.delete_expired_pending_auths(cutoff);
    let deleted = worker.world.call(&worker.host, "delete expired authorizations", call).await;
    not_told(worker, deleted.err());
}

/// All that has expired goes, and its secrets with it.
pub async fn finish(worker: &Worker) {
    delete_before(worker, worker.world.clock.wall().plus_millis(600_000)).await;
    let left = worker.world.audit.borrow().auths.pending();
    worker.world.hold("what has expired goes", left == 0, || format!("{left} are left"));
}
