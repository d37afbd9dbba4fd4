//! One host: takes the lease of an account, syncs it, gives the lease back, until every account was
//! synced as often as it should. It looks at the database alone to know what is left; no host knows of
//! the others.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::ExitCode;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use connector_store::{
    Error, ErrorClass, Holder, Json, PostgresOptions, Rfc3339, Store, SyncProgress, Work,
};
use serde_json::json;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::Failure;
use crate::cli::HostArgs;
use crate::names;
use crate::tasks::at_once;
use crate::witness::{Entry, Witness};

/// By this variable of the environment a host is told the URL.
pub const URL: &str = "MULTI_HOST_URL";

/// A stopped host can keep what it has locked in the database for so long, and others from it.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
/// Accounts between two looks at what is left.
const KEYS_AT_ONCE: usize = 256;
/// Accounts whose standing is read at once.
const STATES_PER_READ: u32 = 10_000;
/// Documents of an account that are trimmed by each sync.
const DOCUMENTS: u32 = 2;
/// Pause when all that is left is held by others, or the database does not answer.
const PAUSE: Duration = Duration::from_millis(200);

/// A host at work.
struct Host {
    args: HostArgs,
    store: Store,
    holder: Holder,
    notes: Sender<Entry>,
    /// The accounts that this process is at. A second lease of the same holder would end the first.
    under_way: Mutex<BTreeSet<u32>>,
}

/// What came of an account.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Synced,
    /// Nothing was left to do, or somebody else is at it.
    Left,
}

/// Works until nothing is left, or the parent is gone.
pub async fn run(args: HostArgs) -> Result<ExitCode, Failure> {
    let url = std::env::var(URL).map_err(|_| format!("{URL} is not set"))?;
    let options = PostgresOptions::new(url).command_timeout(COMMAND_TIMEOUT);
    let store = Store::builder().postgres_options(options).arbiters(1).open().await?;
    let witness = Witness::begin(&args.witness)?;
    let host = Arc::new(Host {
        holder: Holder::new(names::host(args.number))?,
        notes: witness.notes(),
        under_way: Mutex::default(),
        args,
        store: store.clone(),
    });
    tokio::select! {
        ended = host.work() => ended?,
        // It ends with an error alone.
        ended = host.take_over() => ended?,
        () = until_parent_is_gone() => return Ok(ExitCode::FAILURE),
    }
    store.close().await?;
    drop(host);
    tokio::task::spawn_blocking(|| witness.end()).await??;
    Ok(ExitCode::SUCCESS)
}

/// The parent holds the other end of standard input, and lets go of it when it ends, however it does.
async fn until_parent_is_gone() {
    let (gone, is_gone) = oneshot::channel();
    // A thread that nobody waits for: it reads for as long as the process lives.
    std::thread::spawn(move || {
        // Nothing is ever sent, and where reading fails there is no parent either.
        let _ = std::io::stdin().read(&mut [0]);
        let _ = gone.send(());
    });
    let _ = is_gone.await;
}

impl Host {
    /// Syncs what is left, its own part first.
    async fn work(self: &Arc<Self>) -> Result<(), Failure> {
        loop {
            let left = match self.left().await {
                Ok(left) if left.is_empty() => return Ok(()),
                Ok(left) => left,
                Err(error) if error.class() == ErrorClass::Refused => return Err(error.into()),
                Err(_) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let some = left.into_iter().take(KEYS_AT_ONCE).collect();
            if !self.sync_all(some).await?.contains(&Outcome::Synced) {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Syncs these accounts, many at once.
    async fn sync_all(self: &Arc<Self>, keys: Vec<u32>) -> Result<Vec<Outcome>, Failure> {
        let limit = usize::try_from(self.args.work.callers)?;
        let syncs = keys.into_iter().map(|key| {
            let host = Arc::clone(self);
            async move { host.sync(key).await }
        });
        at_once(limit, syncs).await?.into_iter().collect()
    }

    /// Syncs the accounts whose lease has expired: their holder is paused or gone.
    async fn take_over(self: &Arc<Self>) -> Result<(), Failure> {
        let mut due = self.store.due_work();
        let mut expired = Vec::new();
        loop {
            match due.next_ready().await {
                Ok(Some(work)) => {
                    if let Work::SyncLease { owner, connector } = work.work
                        && connector == self.args.connector
                    {
                        expired.extend(names::key_of(&owner));
                    }
                }
                Err(error) if error.class() == ErrorClass::Refused => return Err(error.into()),
                Ok(None) | Err(_) if expired.is_empty() => tokio::time::sleep(PAUSE).await,
                Ok(None) | Err(_) => drop(self.sync_all(std::mem::take(&mut expired)).await?),
            }
        }
    }

    /// The accounts that are not synced yet as often as they should, the host's own part first.
    async fn left(&self) -> Result<Vec<u32>, Error> {
        let (work, rounds) = (&self.args.work, i64::from(self.args.work.rounds));
        let mut done = BTreeSet::new();
        let mut after = None;
        loop {
            let connector = &self.args.connector;
            let page = self.store.sync_states(connector, after.as_ref(), STATES_PER_READ).await?;
            let whole = page.iter().filter(|entry| entry.state.entity_count >= rounds);
            done.extend(whole.filter_map(|entry| names::key_of(&entry.owner)));
            match page.last() {
                Some(last) => after = Some(last.owner.clone()),
                None => break,
            }
        }
        let part = work.keys / work.hosts * (self.args.number - 1);
        Ok((part..work.keys).chain(0..part).filter(|key| !done.contains(key)).collect())
    }

    /// Syncs an account, unless this process is at it or it is somebody else's.
    async fn sync(&self, key: u32) -> Result<Outcome, Failure> {
        if !self.under_way().insert(key) {
            return Ok(Outcome::Left);
        }
        let synced = self.sync_leased(key).await;
        self.under_way().remove(&key);
        match synced {
            Ok(outcome) => Ok(outcome),
            Err(failure) => match failure.downcast_ref::<Error>() {
                Some(Error::LeaseHeld { .. }) => Ok(Outcome::Left),
                Some(Error::LeaseLost { .. }) => {
                    self.note(Entry::Fenced { key });
                    Ok(Outcome::Left)
                }
                // Done or not: the next look at what is left tells.
                Some(error) if error.class() != ErrorClass::Refused => Ok(Outcome::Left),
                _ => Err(failure),
            },
        }
    }

    async fn sync_leased(&self, key: u32) -> Result<Outcome, Failure> {
        let (owner, connector) = (names::owner(key)?, &self.args.connector);
        let account = self.store.connector(&owner, connector);
        let lease = account.acquire_lease(&self.holder, self.args.work.ttl()).await?;
        self.note(Entry::Leased { key, token: lease.token().to_string() });

        // From here on nothing is written that a host wrote which has lost the lease meanwhile.
        let session = lease.session();
        let standing = session.connector().sync_state().await?;
        let synced = standing.map_or(0, |state| state.entity_count);
        if synced >= self.args.work.rounds.into() {
            lease.release().await?;
            return Ok(Outcome::Left);
        }
        for part in 0..DOCUMENTS {
            let document = session.document(&names::document(connector, key, part)?);
            let trimmed = json!({ "body": { "bytes": 20_000 + synced, "cap": 4_096 } });
            let trimmed = Json::parse("trimmed_fields", &trimmed.to_string())?;
            let command = Uuid::new_v4();
            let document = document.with_command_id(command);
            document.set_entity_trim(&owner, connector, trimmed).await?;
            self.note(Entry::Trimmed { command });
        }
        let sync = Uuid::new_v4();
        let checkpoint = json!({ "host": self.holder.as_str(), "sync": sync }).to_string();
        let checkpoint = Json::parse("checkpoint", &checkpoint)?;
        let account = session.connector();
        let progress = account.update_sync_progress(move |standing| SyncProgress {
            checkpoint: Some(checkpoint.clone()),
            recovery: None,
            // The epoch, where a host gives the time of its clock.
            last_synced_at: Rfc3339::from_timestamp(Default::default()),
            // One more, and not the number from above: two that both sync are to be seen.
            entity_count: standing.map_or(0, |state| state.entity_count) + 1,
            error: None,
        });
        progress.await?;
        self.note(Entry::Synced { key, round: synced + 1, sync });
        lease.release().await?;
        Ok(Outcome::Synced)
    }

    fn note(&self, entry: Entry) {
        // The writer ends early only where the disk fails, which is told at the end.
        let _ = self.notes.send(entry);
    }

    fn under_way(&self) -> std::sync::MutexGuard<'_, BTreeSet<u32>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
