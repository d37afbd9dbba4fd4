//! The people who use the accounts at the provider: they add, change, rename and delete.

use std::rc::Rc;

use connector_store::{Json, PartitionId, SourceId};

use crate::engine::world::World;

/// Names that entities of a partition have: few, so that they come back.
const NAMES: usize = 24;

#[derive(Clone, Copy)]
enum Deed {
    Put,
    Rename,
    Remove,
    /// Nearly everything goes at once.
    Purge,
}

const DEEDS: [(usize, Deed); 4] =
    [(120, Deed::Put), (30, Deed::Rename), (100, Deed::Remove), (1, Deed::Purge)];

/// Lives as long as the work goes on.
pub async fn live(world: Rc<World>) {
    let partitions = world.accounts.partitions.clone();
    for account in 0..world.accounts.all.len() {
        for partition in &partitions {
            for _ in 0..16 {
                put(&world, account, partition);
            }
        }
    }
    while world.goes_on() {
        world.rest(10, 250).await;
        let account = world.chance(|chance| chance.below(world.accounts.all.len()));
        let at = world.chance(|chance| chance.below(partitions.len()));
        act(&world, account, &partitions[at]);
    }
}

fn act(world: &World, account: usize, partition: &PartitionId) {
    let provider = &world.accounts.all[account].provider;
    match world.chance(|chance| chance.weighted(&DEEDS)) {
        Deed::Put => put(world, account, partition),
        Deed::Rename => {
            let (from, to) = (name(world), name(world));
            if provider.rename(partition, &from, &to) {
                born(world, account, partition, &to);
                tell(world, account, format_args!("{partition}: {from} is {to} now"));
            }
        }
        Deed::Remove => {
            let name = name(world);
            if provider.remove(partition, &name) {
                tell(world, account, format_args!("{partition}: {name} is deleted"));
            }
        }
        Deed::Purge => {
            for item in provider.truth(partition) {
                if world.chance(|chance| chance.per_mille(900)) {
                    provider.remove(partition, &item.source_id);
                }
            }
            tell(world, account, format_args!("{partition}: nearly all is deleted"));
        }
    }
}

fn put(world: &World, account: usize, partition: &PartitionId) {
    let provider = &world.accounts.all[account].provider;
    let name = name(world);
    let is_new = provider.truth(partition).iter().all(|item| item.source_id != name);
    let content = Json::parse("content", &format!("{:?}", world.draw().to_string())).unwrap();
    let version = provider.put(partition, &name, &content);
    if is_new {
        born(world, account, partition, &name);
    }
    tell(world, account, format_args!("{partition}: {name} is {version}"));
}

fn name(world: &World) -> SourceId {
    SourceId::new(format!("x{}", world.chance(|chance| chance.below(NAMES)))).unwrap()
}

fn born(world: &World, account: usize, partition: &PartitionId, name: &SourceId) {
    world.audit.borrow_mut().deletions.born(account, partition, name);
}

fn tell(world: &World, account: usize, what: std::fmt::Arguments<'_>) {
    world.note(&format!("a{account}"), what);
}
