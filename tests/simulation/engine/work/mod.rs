//! What the people of a host do. A file for each family of work.

pub mod remote;
pub mod sync;
pub mod trims;

use std::rc::Rc;
use std::sync::Arc;

use connector_store::testing::{Provider, ProviderFault, SimClock};
use connector_store::{ConnectorName, OwnerDid, PartitionId, Store};

use super::Config;
use super::host::Host;
use super::world::World;

/// The accounts that are mirrored.
#[derive(Debug)]
pub struct Accounts {
    pub connector: ConnectorName,
    pub partitions: Vec<PartitionId>,
    pub all: Vec<Account>,
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
        Self {
            connector: ConnectorName::new("folder").unwrap(),
            partitions: ["inbox", "later"].map(|name| PartitionId::new(name).unwrap()).into(),
            all: (0..config.owners).map(account).collect(),
        }
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

#[derive(Clone, Copy)]
enum Task {
    Trims,
    Sync,
}

const TASKS: [(usize, Task); 2] = [(4, Task::Trims), (8, Task::Sync)];

/// Works until all is done.
pub async fn labour(world: Rc<World>, host: Rc<Host>, store: Store, number: usize) {
    let name = format!("{}.{number}", host.name);
    let worker = Worker { world, host, store, name };
    while worker.world.goes_on() {
        worker.world.rest(1, 200).await;
        match worker.world.chance(|chance| chance.weighted(&TASKS)) {
            Task::Trims => trims::work(&worker).await,
            Task::Sync => sync::work(&worker).await,
        }
    }
}

/// Brings to an end what was begun, once nothing goes wrong any more.
pub async fn finish(world: &Rc<World>) {
    sync::finish::converge(world).await;
}
