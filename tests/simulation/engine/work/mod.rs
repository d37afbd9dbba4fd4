//! What the people of a host do. A file for each family of work.

pub mod observations;
pub mod trims;

use std::rc::Rc;

use connector_store::testing::SimClock;
use connector_store::{ConnectorName, OwnerDid, Store};

use super::Config;
use super::host::Host;
use super::world::World;

/// The accounts that are mirrored.
#[derive(Debug)]
pub struct Accounts {
    pub connector: ConnectorName,
    pub all: Vec<Account>,
}

/// An owner's account at the provider.
#[derive(Debug)]
pub struct Account {
    pub owner: OwnerDid,
}

impl Accounts {
    pub fn new(config: &Config, _clock: &SimClock) -> Self {
        let account =
            |number| Account { owner: OwnerDid::new(format!("did:web:o{number}")).unwrap() };
        Self {
            connector: ConnectorName::new("folder").unwrap(),
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
    Observations,
}

const TASKS: [(usize, Task); 2] = [(4, Task::Trims), (4, Task::Observations)];

/// Works until all is done.
pub async fn labour(world: Rc<World>, host: Rc<Host>, store: Store, number: usize) {
    let name = format!("{}.{number}", host.name);
    let worker = Worker { world, host, store, name };
    while worker.world.goes_on() {
        worker.world.rest(1, 200).await;
        match worker.world.chance(|chance| chance.weighted(&TASKS)) {
            Task::Trims => trims::work(&worker).await,
            Task::Observations => observations::work(&worker).await,
        }
    }
}

/// Brings to an end what was begun, once nothing goes wrong any more.
pub async fn finish(world: &Rc<World>) {
    observations::converge(world).await;
}
