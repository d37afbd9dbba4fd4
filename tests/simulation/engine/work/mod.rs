//! What the people of a host do. A file for each family of work.

pub mod auths;
pub mod edits;
pub mod housekeeping;
pub mod leases;
pub mod observations;
pub mod plans;
pub mod progress;
pub mod remote;
pub mod sync;
pub mod trims;
pub mod watches;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use connector_store::testing::{Provider, ProviderFault, SimClock};
use connector_store::{ConnectorName, ConnectorRef, OwnerDid, PartitionId, Store};

use super::Config;
use super::host::Host;
use super::world::World;

/// The accounts that are mirrored.
#[derive(Debug)]
pub struct Accounts {
    pub connector: ConnectorName,
    pub partitions: Vec<PartitionId>,
    pub all: Vec<Account>,
    numbers: BTreeMap<OwnerDid, usize>,
    pub edits: plans::Edits,
    pub begun: auths::Begun,
    /// Those whose sync has begun at least once.
    pub visited: RefCell<BTreeSet<usize>>,
}

/// An owner's account at the provider.
#[derive(Debug)]
pub struct Account {
    pub owner: OwnerDid,
    pub provider: Provider,
    /// What the provider calls it.
    pub remote: &'static str,
}

impl Accounts {
    pub fn new(config: &Config, clock: &SimClock) -> Self {
        let account = |number| {
            let seed = config.seed.wrapping_mul(1_000) + number as u64;
            let provider = Provider::new(Arc::new(clock.clone()), seed);
            let remote = provider.account();
            provider.chances(&ProviderFault::ALL.map(|fault| (fault, config.faults.provider)));
            Account {
                owner: OwnerDid::new(format!("did:web:o{number}")).unwrap(),
                provider,
                remote,
            }
        };
        let all: Vec<Account> = (0..config.owners).map(account).collect();
        let owners = all.iter().map(|account| account.owner.clone());
        Self {
            connector: ConnectorName::new("folder").unwrap(),
            partitions: ["inbox", "later"].map(|name| PartitionId::new(name).unwrap()).into(),
            numbers: owners.zip(0..).collect(),
            all,
            edits: plans::Edits::new(config, clock),
            begun: auths::Begun::default(),
            visited: RefCell::default(),
        }
    }

    /// The number of an owner's account.
    pub fn number(&self, owner: &OwnerDid) -> Option<usize> {
        self.numbers.get(owner).copied()
    }
}

/// One of a host's people, at work on its store.
#[derive(Clone)]
pub struct Worker {
    pub world: Rc<World>,
    pub host: Rc<Host>,
    pub store: Store,
    pub name: String,
}

impl Worker {
    /// Somebody's connector of this name.
    pub fn account(&self, name: &str) -> ConnectorRef {
        let all = &self.world.accounts.all;
        let at = self.world.chance(|chance| chance.below(all.len()));
        self.store.connector(&all[at].owner, &ConnectorName::new(name).unwrap())
    }
}

#[derive(Clone, Copy)]
enum Task {
    Trims,
    Edits,
    Progress,
    Leases,
    Auths,
    Housekeeping,
    Observations,
    Sync,
}

const TASKS: [(usize, Task); 8] = [
    (4, Task::Trims),
    (10, Task::Edits),
    (5, Task::Progress),
    (3, Task::Leases),
    (3, Task::Auths),
    (1, Task::Housekeeping),
    (6, Task::Observations),
    (10, Task::Sync),
];

/// Works until all is done.
pub async fn labour(world: Rc<World>, host: Rc<Host>, store: Store, number: usize) {
    let name = format!("{}.{number}", host.name);
    let worker = Worker { world, host, store, name };
    while worker.world.goes_on() {
        worker.world.rest(1, 200).await;
        match worker.world.chance(|chance| chance.weighted(&TASKS)) {
            Task::Trims => trims::work(&worker).await,
            Task::Observations => observations::work(&worker).await,
            Task::Sync => sync::work(&worker).await,
            Task::Edits => edits::work(&worker).await,
            Task::Progress => progress::work(&worker).await,
            Task::Leases => leases::work(&worker).await,
            Task::Auths => auths::work(&worker).await,
            Task::Housekeeping => housekeeping::work(&worker).await,
        }
    }
}

/// Brings to an end what was begun, once nothing goes wrong any more.
pub async fn finish(world: &Rc<World>) {
    let host = Rc::clone(&world.hosts[0]);
    let Some(life) = host.life() else { return };
    let name = "finish".to_owned();
    let worker = Worker { world: Rc::clone(world), host, store: life.store, name };
    world.stage("connections are forgotten", 0, 1);
    housekeeping::finish(&worker).await;
    world.stage("operations and watches end", 0, 1);
    edits::finish(&worker).await;
    world.stage("leases end", 0, 1);
    leases::finish(&worker).await;
    world.stage("authorizations expire", 0, 1);
    auths::finish(&worker).await;
    world.stage("sites exchange their records", 0, 1);
    observations::converge(world).await;
    sync::finish::converge(world).await;
}
