//! The process that works until it is killed: it says what it sends, what was answered, and where a
//! commit begins and ends.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use connector_store::testing::{FaultyStorage, Stage};
use connector_store::{
    Error, Lease, MassDeleteGuard, Result, Store, StreamKey, SweepOutcome, Timestamp,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::names;
use crate::work::{LeaseSeen, Op, Random, TASKS, TaskState, Way};

/// What a round is begun with.
#[derive(Serialize, Deserialize)]
pub struct Start {
    pub seed: u64,
    pub tasks: Vec<TaskState>,
}

/// A line of the child. `E` and `C` are kept apart from it: they say where a commit stands.
#[derive(Debug, Serialize, Deserialize)]
pub enum Line {
    /// A task is about to send a command.
    Sending(usize, Op),
    /// Its answer has come, with the lease that it gave.
    Acknowledged(usize, Option<LeaseSeen>),
    /// A batch is handed to the storage.
    CommitBegins,
    /// The storage has acknowledged it.
    CommitEnds,
    /// Something is not as it should be.
    Failed(usize, String),
}

pub const MARK: &str = "crash-test ";

/// Writes a line at once and whole.
fn say(line: &Line) {
    let text = format!("{MARK}{}\n", serde_json::to_string(line).unwrap());
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).unwrap();
    out.flush().unwrap();
}

pub async fn work(database: &Path, start: Start) {
    let storage = FaultyStorage::new(names::open(database).await);
    storage.observe(|stage, _| {
        say(match stage {
            Stage::BeforeCommit => &Line::CommitBegins,
            Stage::AfterCommit => &Line::CommitEnds,
        });
    });
    let mut random = Random(start.seed);
    // Few events make a snapshot and few keys stay in memory, so that these happen too.
    let snapshot_every_events = u32::try_from(2 + random.below(12)).unwrap();
    let store = Store::builder()
        .storage(Arc::new(storage))
        .arbiters(2)
        .snapshot_every_events(snapshot_every_events)
        .max_active_keys(40 + random.below(200))
        .open()
        .await
        .unwrap();
    let mut tasks = Vec::new();
    for (task, state) in start.tasks.into_iter().enumerate() {
        let random = Random(random.next());
        let worker = Worker { store: store.clone(), task, state, random, lease: None, stale: None };
        tasks.push(tokio::spawn(worker.run()));
    }
    assert_eq!(tasks.len(), TASKS);
    for task in tasks {
        task.await.unwrap();
    }
}

struct Worker {
    store: Store,
    task: usize,
    state: TaskState,
    random: Random,
    lease: Option<Lease>,
    stale: Option<Lease>,
}

impl Worker {
    async fn run(mut self) {
        loop {
            let op = self.state.choose(self.task, &mut self.random);
            say(&Line::Sending(self.task, op.clone()));
            match self.send(&op).await {
                Ok(lease) => {
                    self.state.apply(&op, lease.as_ref());
                    say(&Line::Acknowledged(self.task, lease));
                }
                Err(error) => {
                    say(&Line::Failed(self.task, format!("{op:?}: {error}")));
                    return;
                }
            }
        }
    }

    async fn send(&mut self, op: &Op) -> Result<Option<LeaseSeen>> {
        let connector = self.store.connector(&names::owner(self.task), &names::connector());
        match op {
            Op::Acquire => {
                let ttl = Duration::from_secs(3_600);
                let lease = connector.acquire_lease(&names::holder(self.task), ttl).await?;
                let seen = seen(&lease);
                self.stale = self.lease.replace(lease);
                return Ok(Some(seen));
            }
            Op::Renew => {
                let lease = self.lease()?.renew(Duration::from_secs(7_200)).await?;
                let seen = seen(&lease);
                self.lease = Some(lease);
                return Ok(Some(seen));
            }
            Op::Release => {
                self.lease()?.release().await?;
                self.lease = None;
            }
            Op::SetState { n } => connector.set_sync_state(names::state_input(*n)).await?,
            Op::Progress { n } => {
                let n = *n;
                let version = connector
                    .update_sync_progress(move |standing| {
                        names::progress(n, standing.map(|standing| standing.entity_count))
                    })
                    .await?
                    .version;
                let wanted = self.state.seen.sync.as_ref().map_or(0, |sync| sync.version + 1);
                expect(version == wanted, format!("version {version}, not {wanted}"))?;
            }
            Op::DeleteState => connector.delete_sync_state().await?,
            Op::CreateAuth { n } => {
                self.store.create_pending_auth(names::auth(self.task, *n)).await?;
            }
            Op::ConsumeAuth { n } => {
                let state = names::auth_state(self.task, *n);
                let record = self.store.consume_pending_auth(&state).await?;
                expect(record == names::auth(self.task, *n), "another record".to_owned())?;
            }
            Op::ExpireAuths { below } => {
                let cutoff = Timestamp::from_millis(i64::try_from(*below).unwrap());
                self.store.delete_expired_pending_auths(cutoff).await?;
            }
            Op::BeginReceipt
            | Op::Extend { .. }
            | Op::Complete
            | Op::Commit
            | Op::Confirm { .. }
            | Op::Applied { .. }
            | Op::LoseCursor => self.sweep(op).await?,
            _ => self.document(op).await?,
        }
        Ok(None)
    }

    fn lease(&self) -> Result<&Lease> {
        self.lease.as_ref().ok_or(Error::NotFound { what: "the task's lease" })
    }

    async fn document(&self, op: &Op) -> Result<()> {
        let (owner, connector) = (names::owner(self.task), names::connector());
        let handle = |doc: &usize| self.store.document(&names::document(self.task, *doc));
        match op {
            Op::SetTrim { doc, n, way } => {
                let document = match way {
                    Way::Plain => handle(doc),
                    Way::WithId(id) => handle(doc).with_command_id(Uuid::from_u128(*id)),
                    Way::Fenced => {
                        self.lease()?.session().document(&names::document(self.task, *doc))
                    }
                };
                document.set_entity_trim(&owner, &connector, names::trim(*n)).await
            }
            Op::StaleTrim { doc, n } => {
                let Some(stale) = &self.stale else { return Ok(()) };
                let document = stale.session().document(&names::document(self.task, *doc));
                let refused = document.set_entity_trim(&owner, &connector, names::trim(*n)).await;
                let is_lost = matches!(refused, Err(Error::LeaseLost { .. }));
                expect(is_lost, format!("a stale lease gave {refused:?}"))
            }
            Op::Unit { doc, n } => {
                let (n, document) = (*n, names::document(self.task, *doc));
                let keys = [
                    StreamKey::Document(document.clone()),
                    StreamKey::Connector(owner.clone(), connector.clone()),
                ];
                let unit = self.store.unit_of_work(keys).await?;
                let held = unit.document(&document);
                held.set_entity_trim(&owner, &connector, names::trim(n)).await?;
                unit.connector(&owner, &connector)
                    .update_sync_progress(move |standing| {
                        names::progress(n, standing.map(|standing| standing.entity_count))
                    })
                    .await?;
                unit.commit().await
            }
            Op::ClearTrim { doc } => handle(doc).clear_entity_trim().await,
            Op::BeginSweep { doc } => handle(doc).begin_document_sweep().await,
            Op::AbandonSweep { doc } => handle(doc).abandon_document_sweep().await,
            Op::SweepRows { doc } => handle(doc).sweep_document_rows().await,
            other => expect(false, format!("{other:?} is not a document's")),
        }
    }

    async fn sweep(&self, op: &Op) -> Result<()> {
        let connector = self.store.connector(&names::owner(self.task), &names::connector());
        let receipt = self.state.seen.receipt.as_ref();
        let (sequence, pages, ids) =
            receipt.map_or((0, 0, 0), |it| (it.sequence, it.next_page, it.ids));
        let key = names::receipt_key(sequence);
        match op {
            Op::BeginReceipt => {
                let begun = connector.begin_receipt(names::begin_receipt()).await?.sequence;
                expect(begun == sequence + 1, format!("sequence {begun} after {sequence}"))
            }
            Op::Extend { page, ids } => {
                let ids = ids.iter().map(|doc| names::source(*doc)).collect();
                connector.extend_receipt(&key, *page, ids, names::FINGERPRINT).await
            }
            Op::Complete => {
                connector.complete_receipt(&key, pages, Some(ids), names::FINGERPRINT).await
            }
            Op::Commit => {
                let known = names::known(self.task);
                connector.commit_receipt(&key, known, MassDeleteGuard::default()).await.map(|_| ())
            }
            Op::Confirm { doc } => {
                let candidate = names::candidate_key(self.task, *doc);
                connector.record_sweep_outcome(&candidate, SweepOutcome::Absent).await.map(|_| ())
            }
            Op::Applied { doc } => {
                connector.sweep_applied(&names::candidate_key(self.task, *doc)).await
            }
            _ => connector.cursor_lost(&names::partition()).await,
        }
    }
}

pub fn seen(lease: &Lease) -> LeaseSeen {
    LeaseSeen { token: lease.token().to_string(), expires_at: lease.expires_at().as_millis() }
}

fn expect(holds: bool, otherwise: String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::InvalidInput { field: "test", reason: otherwise }) }
}
