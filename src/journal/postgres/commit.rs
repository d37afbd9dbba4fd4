//! The second step of a batch: what was judged is written, confirms what it was judged on, and commits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::postgres::PgRow;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::connect::{Connector, Seen, Session};
use super::fault::Cause;
use super::known::{Ended, RowWrites};
use super::opening::decode;
use super::read::int;
use super::script::Script;
use super::statement::Statement;
use super::transaction::{End, Failure, Transaction, Worked};
use crate::domain::Row;
use crate::journal::BatchError;

/// What a batch writes.
pub(super) struct Writes {
    /// What it erases before.
    pub(super) erasures: Option<Statement>,
    /// All the rest.
    pub(super) statement: Statement,
    /// How many rows its guarded parts must write.
    pub(super) guarded: Vec<usize>,
    /// The rows among it.
    pub(super) rows: RowWrites,
    /// It locks heads no sooner than by the statement.
    pub(super) presumes: bool,
    /// Events up to this position may be missing behind it.
    pub(super) trimmed_up_to: Option<i64>,
}

impl Writes {
    /// Writes it. `false`: something is not as the batch was judged on, and nothing may be committed.
    async fn run(self, session: &mut Session) -> sqlx::Result<bool> {
        if let Some(erasures) = self.erasures {
            session.all(erasures).await?;
        }
        let written = session.all(self.statement).await?;
        if !has_written(&written, &self.guarded)? {
            return Ok(false);
        }
        // Where heads were locked no sooner than by this statement, it may not have seen what a rebuild
        // had put. Another one does.
        let removals = self.rows.values().filter(|row| row.is_none()).count();
        if self.presumes && !has_written(&written, &[self.guarded, vec![removals]].concat())? {
            session.all(Script::of_removals(&self.rows)?.finish().0).await?;
        }
        if let Some(up_to) = self.trimmed_up_to {
            note_trimmed(session, up_to).await?;
        }
        Ok(true)
    }
}

/// The rows that the appends of a doubtful batch took: nobody can read them any more if the batch did
/// commit.
#[derive(Clone, Debug, Default)]
pub(super) struct TakenInDoubt(Arc<Mutex<HashMap<Uuid, Vec<Row>>>>);

impl TakenInDoubt {
    fn set(&self, taken: HashMap<Uuid, Vec<Row>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = taken;
    }

    /// The rows that an append took, once.
    pub(super) fn remove(&self, command_id: Uuid) -> Vec<Row> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.remove(&command_id).unwrap_or_default()
    }
}

/// A batch that was judged, in a transaction that is to write and commit it.
pub(super) struct Commit {
    pub(super) transaction: Transaction,
    pub(super) writes: Writes,
    /// Where its end is told. Nothing is told of one that is dropped.
    pub(super) tell: oneshot::Sender<Ended>,
    pub(super) newest: Option<Seen>,
    pub(super) connector: Arc<Connector>,
    pub(super) taken: HashMap<Uuid, Vec<Row>>,
    pub(super) taken_in_doubt: TakenInDoubt,
}

impl Commit {
    /// Writes and commits. Gives the newest position that this store has written; none where something
    /// was not as the batch was judged on, and nothing was written.
    pub(super) async fn run(self) -> Result<Option<i64>, BatchError> {
        let (connector, presumes) = (self.connector, self.writes.presumes);
        let written = self.transaction.go_on(async |session| {
            Ok(if self.writes.run(session).await? { End::Commit(()) } else { End::RollBack(()) })
        });
        let committed = match written.await {
            Ok(Worked::Open((), transaction)) => transaction.commit().await.map(|()| true),
            Ok(Worked::Ended(())) => Ok(false),
            Err(failure) => Err(failure),
        };
        let ended = match &committed {
            Ok(true) => Some(Ended::Committed),
            Ok(false) | Err(_) => presumes.then_some(Ended::Doubted),
        };
        if let Ok(true) = committed
            && let Some(newest) = self.newest
        {
            connector.has_written(newest);
        }
        // Nobody waits for it where the writer is gone.
        let _ = ended.map(|ended| self.tell.send(ended));
        match committed {
            Ok(is_committed) => Ok(is_committed.then(|| connector.last_written())),
            Err(failure) => {
                let error = batch_error(failure);
                if matches!(error, BatchError::Unknown(_)) {
                    self.taken_in_doubt.set(self.taken);
                }
                Err(error)
            }
        }
    }
}

pub(super) fn batch_error(failure: Failure) -> BatchError {
    let Failure { error, cause, at_commit } = failure;
    match cause {
        Cause::Lost | Cause::Slow if at_commit => BatchError::Unknown(error),
        Cause::Busy | Cause::Lost => BatchError::Passing(error),
        Cause::Crowded | Cause::Slow | Cause::Full | Cause::ReadOnly | Cause::Damaged => {
            BatchError::Failed(error)
        }
    }
}

/// Whether each guarded part has written all its rows.
pub(super) fn has_written(rows: &[PgRow], guarded: &[usize]) -> sqlx::Result<bool> {
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    for (at, wanted) in guarded.iter().enumerate() {
        if usize::try_from(int(row, at).map_err(decode)?) != Ok(*wanted) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Notes that events up to a position may be missing, so that a reader of the feed learns of the
/// gap. The last statement of its transaction: other hosts' wait for the row.
pub(super) async fn note_trimmed(session: &mut Session, up_to: i64) -> sqlx::Result<()> {
    let mut statement = Statement::new(
        "UPDATE connector_meta SET value = greatest(value, $1) WHERE key = 'trimmed_up_to'",
    );
    statement.add(up_to)?;
    session.all(statement).await.map(drop)
}
