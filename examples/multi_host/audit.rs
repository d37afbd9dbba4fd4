//! What came of it, counted when all hosts have ended: the journal and the standing states beside what
//! the hosts noted.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use connector_store::domain::connector::ConnectorEvent;
use connector_store::{
    ConnectorName, Event, EventFilter, FeedCursor, FeedItem, Holder, Store, StreamKey,
};
use serde::Deserialize;
use uuid::Uuid;

use crate::cli::Work;
use crate::fleet::Host;
use crate::witness::{self, Entry};
use crate::{Failure, names};

/// Accounts whose standing is read at once.
const STATES_PER_READ: u32 = 10_000;

/// What is counted for a host.
#[derive(Debug, Default)]
pub struct Counts {
    /// Syncs that count, by the journal.
    pub synced: u64,
    /// Leases that it was given.
    pub leases: u64,
    /// Leases that another had held and not given back.
    pub takeovers: u64,
    /// Refusals that it met because a lease was lost.
    pub fenced: u64,
}

/// What is counted over all.
#[derive(Debug, Default)]
pub struct Audit {
    pub hosts: BTreeMap<String, Counts>,
    /// Commands that the hosts noted as acknowledged.
    pub acknowledged: u64,
    /// Those of them that are not in the journal.
    pub lost: u64,
    /// Accounts that were synced more often than they should, or twice for one round.
    pub doubles: u64,
    /// Accounts that were synced less often.
    pub missing: u64,
}

/// What the journal says.
#[derive(Default)]
struct Journal {
    hosts: BTreeMap<String, Counts>,
    syncs: HashMap<u32, i64>,
    leases: HashSet<(u32, String)>,
    holders: HashMap<u32, Holder>,
    /// The ids of commands and of syncs.
    ids: HashSet<Uuid>,
}

/// A checkpoint, as a host writes it.
#[derive(Deserialize)]
struct Checkpoint {
    host: String,
    sync: Uuid,
}

impl Audit {
    /// Counts.
    pub async fn of(
        store: &Store,
        connector: &ConnectorName,
        work: &Work,
        hosts: &[Host],
    ) -> Result<Self, Failure> {
        let journal = Journal::read(store, connector).await?;
        let mut audit = Self { hosts: journal.hosts, ..Self::default() };
        let mut rounds = HashSet::new();
        let mut doubles = BTreeSet::new();
        for host in hosts {
            let counts = audit.hosts.entry(names::host(host.number)).or_default();
            for path in &host.witnesses {
                // A host that was killed before it had opened the store has noted nothing.
                let entries = if path.exists() { witness::read(path)? } else { Vec::new() };
                for entry in entries {
                    let is_there = match entry {
                        Entry::Fenced { .. } => {
                            counts.fenced += 1;
                            continue;
                        }
                        Entry::Leased { key, token } => journal.leases.contains(&(key, token)),
                        Entry::Trimmed { command } => journal.ids.contains(&command),
                        Entry::Synced { key, round, sync } => {
                            if !rounds.insert((key, round)) {
                                doubles.insert(key);
                            }
                            journal.ids.contains(&sync)
                        }
                    };
                    audit.acknowledged += 1;
                    audit.lost += u64::from(!is_there);
                }
            }
        }
        let wanted = i64::from(work.rounds);
        let standing = standing(store, connector).await?;
        for key in 0..work.keys {
            let stands = standing.get(&key).copied().unwrap_or_default();
            let happened = journal.syncs.get(&key).copied().unwrap_or_default();
            if stands.max(happened) > wanted {
                doubles.insert(key);
            }
            audit.missing += u64::from(stands.min(happened) < wanted);
        }
        audit.doubles = doubles.len() as u64;
        Ok(audit)
    }

    /// Every account was synced as often as it should, and nothing is lost.
    pub const fn is_well(&self) -> bool {
        self.lost == 0 && self.doubles == 0 && self.missing == 0
    }
}

impl Journal {
    async fn read(store: &Store, connector: &ConnectorName) -> Result<Self, Failure> {
        let mut journal = Self::default();
        let mut feed = store.events(FeedCursor::START, EventFilter::default());
        while let Some(item) = feed.next_ready().await? {
            match item {
                FeedItem::Event { key, command_id, event, .. } => match (key, *event) {
                    (StreamKey::Connector(owner, name), Event::Connector(event)) => {
                        if name == *connector
                            && let Some(key) = names::key_of(&owner)
                        {
                            journal.take(key, event)?;
                        }
                    }
                    _ => drop(journal.ids.insert(command_id)),
                },
                FeedItem::Unreadable { error, .. } => return Err(error.into()),
                // Another's, as a run sweeps nothing and keeps all.
                _ => {}
            }
        }
        Ok(journal)
    }

    fn take(&mut self, key: u32, event: ConnectorEvent) -> Result<(), Failure> {
        match event {
            ConnectorEvent::LeaseAcquired(lease) => {
                let counts = self.hosts.entry(lease.holder.to_string()).or_default();
                counts.leases += 1;
                self.leases.insert((key, lease.token.to_string()));
                let before = self.holders.insert(key, lease.holder.clone());
                counts.takeovers += u64::from(before.is_some_and(|before| before != lease.holder));
            }
            ConnectorEvent::LeaseReleased => drop(self.holders.remove(&key)),
            ConnectorEvent::SyncProgressUpdated(record) => {
                *self.syncs.entry(key).or_default() += 1;
                let checkpoint = record.checkpoint.ok_or("a sync without a checkpoint")?;
                let Checkpoint { host, sync } = serde_json::from_str(checkpoint.as_str())?;
                self.ids.insert(sync);
                self.hosts.entry(host).or_default().synced += 1;
            }
            _ => {}
        }
        Ok(())
    }
}

/// How often each account was synced, as its state says.
async fn standing(store: &Store, connector: &ConnectorName) -> Result<HashMap<u32, i64>, Failure> {
    let mut standing = HashMap::new();
    let mut after = None;
    loop {
        let page = store.sync_states(connector, after.as_ref(), STATES_PER_READ).await?;
        for entry in &page {
            if let Some(key) = names::key_of(&entry.owner) {
                standing.insert(key, entry.state.entity_count);
            }
        }
        match page.last() {
            Some(last) => after = Some(last.owner.clone()),
            None => return Ok(standing),
        }
    }
}
