//! The writing side: batches, snapshots and doubtful commits.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::connect::{Connector, Seen, Session};
use super::fault::Cause;
use super::known::{Known, KnownStreams};
use super::opening::{self, Locked, Opening, decode};
use super::query::bound;
use super::read::{get, int};
use super::script::Script;
use super::statement::Statement;
use super::transaction::{End, Failure, Sessions, Transaction, Worked};
use crate::base::{Error, Result, StorageFault, StreamName, Timestamp};
use crate::domain::{Row, RowChange, RowKey};
use crate::journal::batch::{Plan, judge};
use crate::journal::chain::snapshot_checksum;
use crate::journal::{Append, AppendOutcome, BatchError, Expected, Head, NewSnapshot};

/// How often a transaction begins anew because another host took a head away between its creation and
/// its lock, or because something was not as the batch presumed.
const MAX_BEGINNINGS: u32 = 16;

/// What a batch came to.
struct Written {
    outcomes: Vec<AppendOutcome>,
    newest: Option<Seen>,
    streams: HashMap<StreamName, Known>,
}

/// The rows that the appends of a doubtful batch took: nobody can read them any more if the batch did
/// commit.
type TakenInDoubt = Arc<Mutex<HashMap<Uuid, Vec<Row>>>>;

/// A batch that was judged and written.
pub(super) struct Begun {
    pub(super) outcomes: Vec<AppendOutcome>,
    /// None where nothing was written.
    pub(super) commit: Option<Commit>,
}

/// The commit of a batch.
pub(super) struct Commit {
    transaction: Transaction,
    batch: u64,
    committed: Arc<AtomicU64>,
    newest: Option<Seen>,
    connector: Arc<Connector>,
    taken: HashMap<Uuid, Vec<Row>>,
    taken_in_doubt: TakenInDoubt,
}

impl Commit {
    /// Commits. Gives the newest position that this store has written.
    pub(super) async fn run(self) -> Result<i64, BatchError> {
        match self.transaction.commit().await {
            Ok(()) => {
                self.committed.store(self.batch, Ordering::Release);
                if let Some(newest) = self.newest {
                    self.connector.has_written(newest);
                }
                Ok(self.connector.last_written())
            }
            Err(failure) => {
                let error = batch_error(failure);
                if matches!(error, BatchError::Unknown(_)) {
                    *lock(&self.taken_in_doubt) = self.taken;
                }
                Err(error)
            }
        }
    }
}

fn lock(taken: &TakenInDoubt) -> MutexGuard<'_, HashMap<Uuid, Vec<Row>>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

fn batch_error(failure: Failure) -> BatchError {
    let Failure { error, cause, at_commit } = failure;
    match cause {
        Cause::Lost | Cause::Slow if at_commit => BatchError::Unknown(error),
        Cause::Busy | Cause::Lost => BatchError::Passing(error),
        Cause::Crowded | Cause::Slow | Cause::Full | Cause::ReadOnly | Cause::Damaged => {
            BatchError::Failed(error)
        }
    }
}

/// The writing side of a store. It writes one batch at a time; the one before may still be committed
/// meanwhile.
#[derive(Debug)]
pub(super) struct Writer {
    connector: Arc<Connector>,
    sessions: Arc<Sessions>,
    pub(super) known: KnownStreams,
    /// The batches that were written.
    batches: u64,
    /// The life of the store that this one is of.
    pub(super) generation: i64,
    taken_in_doubt: TakenInDoubt,
}

impl Writer {
    /// A writer on a connection to a database that has this program's schema.
    pub(super) fn new(connector: Arc<Connector>, session: Session, generation: i64) -> Self {
        Self {
            sessions: Sessions::new(Arc::clone(&connector), session),
            connector,
            known: KnownStreams::default(),
            batches: 0,
            generation,
            taken_in_doubt: TakenInDoubt::default(),
        }
    }

    /// Runs a transaction.
    pub(super) async fn transact<T>(
        &self,
        context: &str,
        work: impl AsyncFnOnce(&mut Session) -> sqlx::Result<End<T>>,
    ) -> Result<T, Failure> {
        self.transact_on(context, "", async |session, _| work(session).await).await
    }

    /// Runs a transaction with what stands behind its `BEGIN`, whose rows the work is given.
    pub(super) async fn transact_on<T>(
        &self,
        context: &str,
        opening: &str,
        work: impl AsyncFnOnce(&mut Session, Vec<PgRow>) -> sqlx::Result<End<T>>,
    ) -> Result<T, Failure> {
        match self.sessions.begin(context, opening, work).await? {
            Worked::Ended(done) => Ok(done),
            Worked::Open(done, transaction) => transaction.commit().await.map(|()| done),
        }
    }

    /// Judges and writes a batch. The next one may be begun then: where it has a stream of this one it
    /// waits for the commit, or the end without one.
    pub(super) async fn begin_append(&mut self, batch: &[Append]) -> Result<Begun, BatchError> {
        let (generation, context) = (self.generation, "writing a batch");
        self.batches += 1;
        let number = self.batches;
        for _ in 0..MAX_BEGINNINGS {
            let opening = bound(Opening::of_batch(batch, &self.known));
            let opening = opening.map_err(BatchError::Failed)?;
            let worked = self.sessions.begin(context, opening.text(), async |session, rows| {
                match opening.read(&rows)? {
                    Some(at) => write(session, batch, at, generation, number).await,
                    None => Ok(End::RollBack(None)),
                }
            });
            match worked.await {
                Ok(Worked::Open(Some(written), transaction)) => {
                    return Ok(self.begun(batch, written, transaction));
                }
                Ok(Worked::Ended(Some(Written { outcomes, .. }))) => {
                    return Ok(Begun { outcomes, commit: None });
                }
                Ok(_) if opening.presumes() => self.known.doubt(),
                Ok(_) => self.known.forget(),
                Err(failure) => {
                    if opening.presumes() {
                        self.known.doubt();
                    }
                    return Err(batch_error(failure));
                }
            }
        }
        Err(BatchError::Passing(in_the_way()))
    }

    fn begun(&mut self, batch: &[Append], written: Written, transaction: Transaction) -> Begun {
        let Written { outcomes, newest, streams } = written;
        self.known.learn(streams);
        let taken = batch.iter().zip(&outcomes).filter_map(|(append, outcome)| match outcome {
            AppendOutcome::Committed { taken } if !taken.is_empty() => {
                Some((append.command_id, taken.clone()))
            }
            _ => None,
        });
        let commit = Commit {
            transaction,
            batch: self.batches,
            committed: self.known.committed(),
            newest,
            connector: Arc::clone(&self.connector),
            taken: taken.collect(),
            taken_in_doubt: Arc::clone(&self.taken_in_doubt),
        };
        Begun { outcomes, commit: Some(commit) }
    }

    /// Whether an append whose commit was in doubt is there. Its streams' locks are free only once
    /// the transaction has ended.
    pub(super) async fn look_up(&mut self, append: &Append) -> Result<Option<AppendOutcome>> {
        let context = "looking up a doubtful commit";
        let opening = bound(Opening::of_parts(append.parts.iter()))?;
        let found = self
            .transact_on(context, opening.text(), async |session, rows| {
                opening.read(&rows)?.ok_or_else(|| decode(in_the_way()))?;
                look_up(session, append).await.map(End::RollBack)
            })
            .await
            .map_err(|failure| failure.error)?;
        let taken = lock(&self.taken_in_doubt).remove(&append.command_id).unwrap_or_default();
        Ok(found.map(|outcome| match outcome {
            AppendOutcome::Committed { .. } => AppendOutcome::Committed { taken },
            other => other,
        }))
    }

    /// Writes a snapshot if the stream's head is still the expected one.
    pub(super) async fn write_snapshot(
        &mut self,
        stream: &str,
        expected: Expected,
        snapshot: NewSnapshot,
    ) -> Result<()> {
        let name = StreamName::from(stream);
        let context = "writing a snapshot";
        let names = std::iter::once(&name);
        let opening = bound(Opening::of_standing(names))?;
        let written = self.transact_on(context, opening.text(), async |session, rows| {
            let locked = opening.read(&rows)?.unwrap_or_default();
            let (head, id) = (locked.view.heads.get(&name), locked.ids.get(&name));
            let (Some(head), Some(id)) = (head, id) else { return Ok(End::RollBack(())) };
            if head.expected() != expected {
                return Ok(End::RollBack(()));
            }
            let NewSnapshot { schema, payload } = snapshot;
            let checksum = snapshot_checksum(stream, head.version, schema, &payload, &head.hash);
            let mut statement = Statement::new(
                "INSERT INTO connector_snapshot \
                 (stream, stream_version, schema, payload, hash, checksum) \
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (stream) DO UPDATE SET \
                 stream_version = excluded.stream_version, schema = excluded.schema, \
                 payload = excluded.payload, hash = excluded.hash, checksum = excluded.checksum",
            );
            statement.add(*id)?;
            statement.add(head.version)?;
            statement.add(i64::from(schema))?;
            statement.add(payload)?;
            statement.add(head.hash.as_bytes().as_slice())?;
            statement.add(checksum.as_bytes().as_slice())?;
            session.all(statement).await?;
            Ok(End::Commit(()))
        });
        written.await.map_err(|failure| failure.error)
    }

    /// Writes and removes rows without events, in one transaction, if these heads are standing.
    pub(super) async fn replace_rows(
        &mut self,
        changes: &[RowChange],
        expected: &[(StreamName, Expected)],
    ) -> Result<bool> {
        let context = "replacing rows";
        let opening = bound(Opening::of_told(changes, expected))?;
        let replaced = self.transact_on(context, opening.text(), async |session, rows| {
            let Some(locked) = opening.read(&rows)? else { return Ok(End::RollBack(false)) };
            let head = |name| locked.view.heads.get(name).map_or(Expected::NONE, Head::expected);
            if expected.iter().any(|(name, expected)| head(name) != *expected) {
                return Ok(End::RollBack(false));
            }
            // No event says when, so it is the first time that no reader of stamps has passed.
            let stamp = locked.stamped_at.map(|last| last.plus_millis(1));
            let rows = changes.iter().map(|change| match change {
                RowChange::Put(row) => {
                    (row.key(), Some(stamp.map_or_else(|| row.clone(), |at| row.stamped(at))))
                }
                RowChange::Delete(key) | RowChange::Take(key) => (key.clone(), None),
            });
            let mut script = Script::new();
            script.add_rows(&rows.collect(), &BTreeSet::new())?;
            if script.is_empty() {
                return Ok(End::RollBack(true));
            }
            if !locked.empty.is_empty() {
                script.add_empty(&locked.empty)?;
            }
            if let Some(stamp) = stamp {
                script.add_stamp(stamp)?;
            }
            session.all(script.finish().0).await?;
            Ok(End::Commit(true))
        });
        replaced.await.map_err(|failure| failure.error)
    }

    /// There is nothing to do in a quiet moment: the server cleans up by itself.
    pub(super) fn check_open(&self) -> Result<()> {
        self.sessions.check_open()
    }

    /// Closes the connections for good.
    pub(super) async fn close(&self) {
        self.sessions.close().await;
    }
}

/// Judges and writes a batch under its locks. `None`: another host was the first to insert a row, or
/// something is not as it was presumed, and the batch must be judged on what is there.
async fn write(
    session: &mut Session,
    batch: &[Append],
    mut locked: Locked,
    generation: i64,
    number: u64,
) -> sqlx::Result<End<Option<Written>>> {
    let drawn = locked.drawn.take().ok_or(sqlx::Error::RowNotFound)?;
    if drawn.generation != generation {
        return Err(decode(another_life()));
    }
    for row in opening::secret_rows(session, batch).await? {
        locked.view.standing.insert(row.key(), row);
    }
    let stamp = locked.stamped_at.map(|last| drawn.now.max(last.plus_millis(1)));
    let now = stamp.unwrap_or(drawn.now);
    let judged = judge(batch, &locked.view, now);
    let (streams, rows) = (&judged.plan.streams, &judged.plan.rows);
    let is_put = |key: &RowKey| rows.get(key).is_some_and(Option::is_some);
    if !locked.presumed.iter().all(|name| streams.contains_key(name))
        || !locked.unread.iter().all(is_put)
    {
        return Ok(End::RollBack(None));
    }
    if judged.plan.is_empty() {
        let (outcomes, streams) = (judged.outcomes, HashMap::new());
        return Ok(End::RollBack(Some(Written { outcomes, newest: None, streams })));
    }
    let erasures = Script::of_erasures(&judged.plan, &locked.ids)?;
    if !erasures.is_empty() {
        session.all(erasures.finish().0).await?;
    }
    // The last ones, so that the newest event has the newest position.
    let unused = drawn.positions.len().saturating_sub(judged.plan.journal.len());
    let positions = drawn.positions.get(unused..).unwrap_or_default();
    let script = script_of(&judged.plan, &locked, positions, batch, now, stamp)?;
    let (statement, guarded) = script.finish();
    let written = session.all(statement).await?;
    if !has_written(&written, &guarded)? {
        return Ok(End::RollBack(None));
    }
    // Where heads were locked no sooner than by this statement, it may not have seen what a rebuild had
    // put. Another one does.
    let removals = rows.values().filter(|row| row.is_none()).count();
    if !locked.presumed.is_empty() && !has_written(&written, &[guarded, vec![removals]].concat())? {
        session.all(Script::of_removals(rows)?.finish().0).await?;
    }
    if judged.plan.streams.values().any(|write| write.trim_through.is_some()) {
        let before = drawn.positions.first().map_or(0, |first| first.saturating_sub(1));
        note_trimmed(session, before).await?;
    }
    let newest = judged.plan.journal.last().zip(positions.last());
    let newest = newest.map(|(event, &position)| Seen {
        position,
        stream: event.stream.clone(),
        version: event.version,
    });
    // Heads that stayed empty are gone again.
    let (heads, streams) = (&locked.view.heads, &judged.plan.streams);
    let streams = locked.ids.into_iter().filter_map(|(name, stream)| {
        let written = streams.get(&name).map(|write| write.head).filter(|head| head.version > 0);
        let head = written.or_else(|| heads.get(&name).copied())?;
        Some((name, Known { stream, head, batch: number }))
    });
    let streams = streams.collect();
    Ok(End::Commit(Some(Written { outcomes: judged.outcomes, newest, streams })))
}

/// Again and again a head was taken away between its creation and its lock, or a row was there that a
/// batch must be the first to have.
fn in_the_way() -> Error {
    Error::storage(StorageFault::Unavailable, "other hosts write the same rows again and again")
}

/// Nobody may write with the tokens and the states of a life that is over.
fn another_life() -> Error {
    Error::damaged("the store was restored from a backup since it was opened: open it anew")
}

fn script_of(
    plan: &Plan<'_>,
    locked: &Locked,
    positions: &[i64],
    batch: &[Append],
    now: Timestamp,
    stamp: Option<Timestamp>,
) -> sqlx::Result<Script> {
    let absent: BTreeSet<&RowKey> = batch
        .iter()
        .flat_map(|append| &append.absent)
        .filter(|key| !locked.view.standing.contains_key(*key))
        .collect();
    let mut script = Script::of_plan(plan, locked, positions, now, &absent)?;
    let written = plan.streams.values().filter(|write| write.head.version > 0);
    let written: BTreeSet<i64> =
        written.filter_map(|write| locked.ids.get(write.name)).copied().collect();
    let empty: Vec<i64> =
        locked.empty.iter().filter(|stream| !written.contains(*stream)).copied().collect();
    if !empty.is_empty() {
        script.add_empty(&empty)?;
    }
    if let Some(stamp) = stamp {
        script.add_stamp(stamp)?;
    }
    Ok(script)
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

/// What became of an append whose commit was in doubt. A command's id alone is no proof: another host
/// may have decided the same command, so what it wrote is compared.
async fn look_up(session: &mut Session, append: &Append) -> sqlx::Result<Option<AppendOutcome>> {
    let part = append.parts.iter().find(|part| !part.events.is_empty());
    if let Some((part, event)) = part.and_then(|part| Some((part, part.events.first()?))) {
        let mut statement = Statement::new(
            "SELECT j.command_id = $3 AND j.event_type = $4 AND j.payload = $5 \
             FROM connector_stream AS s LEFT JOIN connector_journal AS j \
             ON j.stream = s.stream AND j.stream_version = $2 WHERE s.name = $1 AND s.version >= $2",
        );
        statement.add(&*part.stream)?;
        statement.add(part.expected.version.saturating_add(1))?;
        statement.add(append.command_id.as_bytes().as_slice())?;
        statement.add(i64::from(event.event_type))?;
        statement.add(event.payload.as_slice())?;
        let rows = session.all(statement).await?;
        let found = rows.first().map(|row| get::<Option<bool>>(row, 0)).transpose();
        match found.map_err(decode)? {
            None | Some(Some(false)) => return Ok(None),
            Some(Some(true)) => {
                return Ok(Some(AppendOutcome::Committed { taken: Vec::new() }));
            }
            // A later append has erased or trimmed the event at its place, whosever it was.
            Some(None) if append.record.is_none() => {
                return Err(decode(Error::OutcomeUnknown { command_id: append.command_id }));
            }
            Some(None) => {}
        }
    }
    let Some(record) = &append.record else { return Ok(None) };
    // An insertion of the same id that is under way is waited for; this one is rolled back.
    let mut statement = Statement::new(
        "INSERT INTO connector_command (command_id, digest, answer, at) VALUES ($1, '', '', 0) \
         ON CONFLICT (command_id) DO NOTHING RETURNING 1",
    );
    statement.add(append.command_id.as_bytes().as_slice())?;
    if !session.all(statement).await?.is_empty() {
        return Ok(None);
    }
    let found = opening::stored_command(session, append.command_id).await?;
    Ok(found.map(|found| match found == *record {
        true => AppendOutcome::Committed { taken: Vec::new() },
        false => AppendOutcome::CommandKnown(found),
    }))
}

#[cfg(test)]
#[cfg(unix)]
#[path = "writer_tests.rs"]
mod tests;
