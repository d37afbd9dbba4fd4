//! The end of a run: everything that is owed is done, and what the hosts show is what there is.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use connector_store::domain::{RowKey, Table, Value};
use connector_store::{DocumentId, OwnerDid};

use super::visit;
use crate::engine::graph::Entity;
use crate::engine::work::Worker;
use crate::engine::world::World;

const RULE: &str = "once nothing goes wrong, all is found and nothing is owed";
/// Visits of an account in which it has to be done.
const VISITS: usize = 12;

/// Visits every account that was ever visited until nothing is left to do, and holds what there is
/// against the truth. Of the others there is nothing.
pub async fn converge(world: &Rc<World>) {
    let host = Rc::clone(&world.hosts[0]);
    let Some(life) = host.life() else { return };
    let name = "finish".to_owned();
    let worker = Worker { world: Rc::clone(world), host, store: life.store, name };
    let mut left: BTreeMap<usize, Option<String>> =
        world.accounts.visited.borrow().iter().map(|at| (*at, None)).collect();
    let all = left.len();
    for _ in 0..VISITS {
        // Leases end, and what waits for a time is due by then.
        world.rest(1_000_000, 4_000_000).await;
        for at in left.keys().copied().collect::<Vec<_>>() {
            if world.is_broken() {
                return;
            }
            world.stage("accounts are visited until nothing is owed", all - left.len(), all);
            let still = if visit(&worker, at, true).await {
                what_is_left(world, at)
            } else {
                Some("no visit went through".to_owned())
            };
            if still.is_some() {
                left.insert(at, still);
            } else {
                left.remove(&at);
            }
        }
        if left.is_empty() {
            break;
        }
    }
    world.hold(RULE, left.is_empty(), || format!("{left:?}"));
    world.hold(RULE, untouched(world).is_none(), || format!("{:?}", untouched(world)));
}

/// A row that waits, or of an entity, and is of an account that was never visited.
fn untouched(world: &World) -> Option<RowKey> {
    let visited = world.accounts.visited.borrow();
    let is_stray = |key: &&RowKey| {
        let of_document = || match key.table {
            Table::EntityTrim | Table::DocumentSweep => entity_of(key).map(|of| of.account),
            _ => None,
        };
        let of_owner = || match key.table {
            Table::SweepCandidate | Table::OwedSweep => {
                let owner = key.values[0].as_text()?;
                world.accounts.number(&OwnerDid::new(owner).ok()?)
            }
            _ => None,
        };
        of_document().or_else(of_owner).is_some_and(|of| !visited.contains(&of))
    };
    world.journal.tamper(|tables| tables.rows.keys().find(is_stray).cloned())
}

fn entity_of(key: &RowKey) -> Option<Entity> {
    Entity::of(&DocumentId::new(key.values[0].as_text()?).ok()?)
}

fn what_is_left(world: &World, at: usize) -> Option<String> {
    differs(world, at).or_else(|| bare(world, at)).or_else(|| owed(world, at))
}

/// Where the graph is not what the provider has.
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
    None
}

/// Where the rows of the store are not what the graph has.
fn bare(world: &World, at: usize) -> Option<String> {
    let graph = world.graph.borrow();
    let rows: BTreeSet<Entity> =
        of_account(world, Table::EntityTrim, at).iter().filter_map(entity_of).collect();
    let stray = rows.iter().find(|entity| graph.get(entity).is_none());
    // What stood in for the account may have gone before its rows could be written.
    let own = world.accounts.all[at].remote;
    let bare = graph
        .of_account(at)
        .filter(|(entity, shown)| shown.is_written || entity.remote == own)
        .find(|(entity, _)| !rows.contains(entity));
    stray
        .map(|entity| format!("a row of {entity:?}, which is not shown"))
        .or_else(|| bare.map(|(entity, _)| format!("{entity:?} is shown without a row")))
}

/// The rows of the account's documents.
fn of_account(world: &World, table: Table, at: usize) -> Vec<RowKey> {
    let before = Entity::before(at);
    let first = RowKey::new(table, vec![Value::text(before.as_str())]);
    world.journal.tamper(|tables| {
        let keys = tables.rows.range(first..).map(|(key, _)| key);
        let own = keys.take_while(|key| {
            let name = key.values[0].as_text();
            key.table == table && name.is_some_and(|name| name.starts_with(before.as_str()))
        });
        own.cloned().collect()
    })
}

/// What waits in the store.
fn owed(world: &World, at: usize) -> Option<String> {
    let begun = of_account(world, Table::DocumentSweep, at);
    let owner = Value::text(world.accounts.all[at].owner.as_str());
    let of_owner = [Table::SweepCandidate, Table::OwedSweep].into_iter().filter_map(|table| {
        let first = RowKey::new(table, vec![owner.clone()]);
        world.journal.tamper(|tables| {
            let next = tables.rows.range(first..).next().map(|(key, _)| key.clone());
            next.filter(|key| key.table == table && key.values[0] == owner)
        })
    });
    let waits = begun.into_iter().chain(of_owner).next();
    waits.map(|key| format!("{key:?} waits")).or_else(|| {
        let audit = world.audit.borrow();
        let mut partitions = world.accounts.partitions.iter();
        let behind = partitions.find(|partition| audit.receipts.is_behind(at, partition));
        behind.map(|of| format!("the checkpoint of {of} is behind"))
    })
}
