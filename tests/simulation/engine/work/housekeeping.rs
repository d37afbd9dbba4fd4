//! Housekeeping: what a host does to its store beside the work, while the work goes on.

use connector_store::{ConnectorName, Result};

use super::{Worker, leases, plans, progress};

/// Rounds in which all connections that are being forgotten are.
const LAST_ROUNDS: usize = 20;

pub async fn work(worker: &Worker) {
    let (world, host, store) = (&worker.world, &worker.host, &worker.store);
    let _ = match world.chance(|chance| chance.below(16)) {
        0..4 => {
            world
                .call(host, "passivate", async {
                    store.passivate_all();
                    Ok(())
                })
                .await
        }
        4..6 => {
            let age = world.chance(|chance| chance.millis(5_000, 300_000));
            world.call(host, "apply retention", store.apply_retention(age)).await.map(drop)
        }
        6 => verify(worker).await,
        7 => world.call(host, "rebuild", store.rebuild()).await.map(drop),
        8..10 => health(worker).await,
        10..12 => forget(worker).await,
        _ => resume(worker).await.map(drop),
    };
}

/// Others write meanwhile, and nothing of that is damage.
async fn verify(worker: &Worker) -> Result<()> {
    let report = worker.world.call(&worker.host, "verify", worker.store.verify()).await?;
    let is_sound = report.damages.is_empty();
    worker
        .world
        .hold("the journal and its rows are sound", is_sound, || format!("{:?}", report.damages));
    Ok(())
}

async fn health(worker: &Worker) -> Result<()> {
    let grace = worker.world.chance(|chance| chance.millis(1_000, 60_000));
    let health = worker.world.call(&worker.host, "health", worker.store.health(grace)).await?;
    let until = health.at.plus_millis(-i64::try_from(grace.as_millis()).unwrap());
    let is_late = health.overdue.oldest.iter().all(|work| work.due_at <= until);
    worker.world.hold("what is overdue is late", is_late, || format!("{health:?}"));
    worker.world.call(&worker.host, "next due time", worker.store.next_due()).await.map(drop)
}

async fn forget(worker: &Worker) -> Result<()> {
    let world = &worker.world;
    let names = [plans::CONNECTOR, progress::CONNECTOR, leases::CONNECTOR];
    let (account, name) =
        world.chance(|chance| (chance.below(world.accounts.all.len()), names[chance.below(3)]));
    let (owner, connector) =
        (&world.accounts.all[account].owner, ConnectorName::new(name).unwrap());
    let call = worker.store.forget_connection(owner, &connector);
    world.call(&worker.host, &format!("forget a connection: {name} of {owner}"), call).await
}

/// Goes on with what was begun, and says whether there was something.
async fn resume(worker: &Worker) -> Result<bool> {
    let world = &worker.world;
    let call = worker.store.forgetting(None, 10);
    let begun = world.call(&worker.host, "list what is being forgotten", call).await?;
    for one in &begun {
        let what = format!("go on forgetting: {} of {}", one.connector, one.owner);
        let call = worker.store.resume_forgetting(&one.owner, &one.connector);
        world.call(&worker.host, &what, call).await?;
    }
    Ok(!begun.is_empty())
}

/// What is being forgotten is forgotten once nothing fails.
pub async fn finish(worker: &Worker) {
    for _ in 0..LAST_ROUNDS {
        if matches!(resume(worker).await, Ok(false)) {
            return;
        }
        worker.world.rest(100, 1_000).await;
    }
    worker.world.violate("all comes to its end once nothing fails", "a forgetting does not");
}
