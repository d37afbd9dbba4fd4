//! The end of a run: everything that is owed is done, and what the hosts show is what there is.

use std::collections::BTreeMap;
use std::rc::Rc;

use connector_store::domain::Table;

use super::visit;
use crate::engine::graph::{Entity, Shown};
use crate::engine::work::Worker;
use crate::engine::world::World;

const RULE: &str = "once nothing goes wrong, all is found and nothing is owed";
/// Visits of an account in which it has to be done.
const VISITS: usize = 12;

/// Visits every account until nothing is left to do, and holds what there is against the truth.
pub async fn converge(world: &Rc<World>) {
    let host = Rc::clone(&world.hosts[0]);
    let Some(life) = host.life() else { return };
    let name = "finish".to_owned();
    let worker = Worker { world: Rc::clone(world), host, store: life.store, name };
    for at in 0..world.accounts.all.len() {
        let mut left = None;
        for _ in 0..VISITS {
            if world.is_broken() {
                return;
            }
            // Leases end, and what waits for a time is due by then.
            world.rest(1_000_000, 4_000_000).await;
            if visit(&worker, at, true).await {
                left = what_is_left(&worker, at).await;
                if left.is_none() {
                    break;
                }
            } else {
                left = Some("no visit went through".to_owned());
            }
        }
        world.hold(RULE, left.is_none(), || format!("a{at}: {left:?}"));
    }
}

async fn what_is_left(worker: &Worker, at: usize) -> Option<String> {
    differs(&worker.world, at).or_else(|| owed(&worker.world, at))
}

/// Where the graph, or the rows of the store, are not what the provider has.
fn differs(world: &World, at: usize) -> Option<String> {
    let account = &world.accounts.all[at];
    for partition in &world.accounts.partitions {
        let truth: BTreeMap<String, String> = account
            .provider
            .truth(partition)
            .into_iter()
            .map(|item| (item.source_id.to_string(), item.version.to_string()))
            .collect();
        let graph = world.graph.borrow();
        let shown: BTreeMap<String, String> = graph
            .of(at, partition, account.remote)
            .map(|(entity, shown)| (entity.source_id.to_string(), shown.version.clone()))
            .collect();
        if truth != shown {
            return Some(format!("{partition}: there is {truth:?} and shown is {shown:?}"));
        }
    }
    let graph = world.graph.borrow();
    let rows: Vec<Entity> = world.journal.tamper(|tables| {
        let trims = tables.rows.keys().filter(|key| key.table == Table::EntityTrim);
        let documents = trims.filter_map(|key| key.values[0].as_text());
        let ids = documents.filter_map(|text| connector_store::DocumentId::new(text).ok());
        ids.filter_map(|id| Entity::of(&id)).filter(|of| of.account == at).collect()
    });
    let stray = rows.iter().find(|entity| graph.get(entity).is_none());
    // A host shows before it writes. What it then could not write of an account that stood in for the
    // own one, nobody can be asked about again.
    let has_row = |entity: &Entity, shown: &Shown| {
        rows.contains(entity) || entity.remote != account.remote && !shown.is_written
    };
    let bare = graph.all().find(|(of, shown)| of.account == at && !has_row(of, shown));
    stray
        .map(|entity| format!("a row of {entity:?}, which is not shown"))
        .or_else(|| bare.map(|(entity, _)| format!("{entity:?} is shown without a row")))
}

/// What waits in the store.
fn owed(world: &World, at: usize) -> Option<String> {
    let owner = world.accounts.all[at].owner.as_str();
    let left = world.journal.tamper(|tables| {
        let waits = |key: &&connector_store::domain::RowKey| match key.table {
            Table::SweepCandidate | Table::OwedSweep => key.values[0].as_text() == Some(owner),
            Table::DocumentSweep => key.values[0]
                .as_text()
                .and_then(|text| connector_store::DocumentId::new(text).ok())
                .and_then(|id| Entity::of(&id))
                .is_some_and(|entity| entity.account == at),
            _ => false,
        };
        tables.rows.keys().find(waits).map(|key| format!("{key:?} waits"))
    });
    left.or_else(|| {
        let audit = world.audit.borrow();
        audit.receipts.behind(at).map(|of| format!("the checkpoint of {of:?} is behind"))
    })
}
