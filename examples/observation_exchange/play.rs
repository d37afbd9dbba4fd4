//! What happens: the random steps, then the last exchanges.

use std::collections::{BTreeMap, BTreeSet};

use connector_store::DocumentId;
use connector_store::records::SignedRecord;

use crate::Failure;
use crate::chance::Chance;
use crate::host::Host;
use crate::network::{Message, Network};

/// When the play begins: the first of January 2024. It is long ago, so no honest stamp is ahead of
/// the stores, which have the machine's clock.
pub const BEGINNING_MS: i64 = 1_704_067_200_000;
/// At most so much time passes between two steps.
const MAX_PAUSE_MS: usize = 2_000;
/// An exchange is given up after so many rounds. Even if nine of ten messages are lost, nearly
/// every one has arrived by then.
const MAX_ROUNDS: u32 = 100;

/// The world of the play.
#[derive(Debug)]
pub struct Play {
    pub hosts: Vec<Host>,
    /// The DIDs of the hosts' devices, in the order of the hosts.
    pub devices: Vec<String>,
    pub documents: Vec<DocumentId>,
    pub network: Network,
    pub chance: Chance,
    /// What the hosts observe: the account as its provider has it.
    pub account: BTreeMap<DocumentId, String>,
    pub wall_ms: i64,
}

impl Play {
    /// One thing happens, somewhere.
    pub async fn step(&mut self, number: u32) -> Result<(), Failure> {
        self.wall_ms += i64::try_from(self.chance.below(MAX_PAUSE_MS))?;
        let at = self.chance.below(self.hosts.len());
        let document = self.documents[self.chance.below(self.documents.len())].clone();
        let wall_ms = self.wall_ms;
        let host = &mut self.hosts[at];
        match self.chance.below(100) {
            0..20 => host.begin_fetch(&document, &self.account, wall_ms),
            20..40 => host.end_fetch().await,
            40..46 => {
                let value = format!("{} {number}", host.name);
                self.account.insert(document.clone(), value.clone());
                host.edit(&document, Some(value), wall_ms).await
            }
            46..48 => {
                self.account.remove(&document);
                host.edit(&document, None, wall_ms).await
            }
            48..54 => {
                let issuer = &self.devices[self.chance.below(self.devices.len())];
                for document in &self.documents {
                    host.prune(document, issuer).await?;
                }
                Ok(())
            }
            54..70 => self.send(at, &document).await,
            70..93 => match self.network.deliver(&mut self.chance) {
                Some(message) => self.hosts[message.to].take(&message.record, wall_ms).await,
                None => Ok(()),
            },
            _ => host.repair().await.map(|_| ()),
        }
    }

    /// A host sends its copies of a document to another one.
    async fn send(&mut self, from: usize, document: &DocumentId) -> Result<(), Failure> {
        let other = self.chance.below(self.hosts.len() - 1);
        let to = if other < from { other } else { other + 1 };
        let decision = self.hosts[from].decision(document).await?;
        for record in decision.into_iter().flat_map(|decision| decision.copies) {
            self.network.send(Message { to, record }, &mut self.chance);
        }
        Ok(())
    }

    /// Somebody sends these records to every host, none of which may take one.
    pub async fn intrude(&mut self, records: &[SignedRecord]) -> Result<(), Failure> {
        for host in &mut self.hosts {
            for record in records {
                let refused = host.counts.refused;
                host.take(record, self.wall_ms).await?;
                if host.counts.refused == refused {
                    return Err(format!("{} has taken an intruder's record", host.name).into());
                }
            }
        }
        Ok(())
    }

    /// Each host sends each other one the copies that it has not, over and over, until there is
    /// none; what is lost is sent again. Then each brings its graph to what was decided. The answer
    /// says how many rounds it took.
    pub async fn exchange(&mut self) -> Result<u32, Failure> {
        let mut rounds = 0;
        loop {
            while let Some(message) = self.network.deliver(&mut self.chance) {
                self.hosts[message.to].take(&message.record, self.wall_ms).await?;
            }
            if rounds == MAX_ROUNDS || !self.send_missing().await? {
                break;
            }
            rounds += 1;
        }
        for host in &mut self.hosts {
            while host.repair().await? {}
        }
        Ok(rounds)
    }

    /// The answer says whether there was anything to send.
    async fn send_missing(&mut self) -> Result<bool, Failure> {
        let mut held = Vec::with_capacity(self.hosts.len());
        for host in &self.hosts {
            held.push(host.copies().await?);
        }
        let known = |copies: &Vec<SignedRecord>| {
            copies.iter().map(|copy| copy.op_hash).collect::<BTreeSet<_>>()
        };
        let known: Vec<_> = held.iter().map(known).collect();
        let mut is_any_missing = false;
        for copies in &held {
            for (to, known) in known.iter().enumerate() {
                for record in copies.iter().filter(|copy| !known.contains(&copy.op_hash)) {
                    is_any_missing = true;
                    self.network.send(Message { to, record: record.clone() }, &mut self.chance);
                }
            }
        }
        Ok(is_any_missing)
    }
}
