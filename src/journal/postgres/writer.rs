//! The writing side: batches, snapshots and doubtful commits.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sqlx::postgres::PgRow;
use tokio::time::timeout;

use super::commit::{Commit, TakenInDoubt, Writes, batch_error};
use super::connect::{Connector, Seen, Session};
use super::fault::timed_out;
use super::known::{Known, KnownStreams};
use super::opening::{self, Locked, Opening, decode};
use super::query::bound;
use super::read::get;
use super::script::Script;
use super::statement::Statement;
use super::transaction::{End, Failure, Sessions, Transaction, Worked};
use crate::base::{Error, Result, StorageFault, StreamName, Timestamp};
use crate::domain::{RowChange, RowKey};
use crate::journal::batch::{Judged, Plan, judge};
use crate::journal::chain::snapshot_checksum;
use crate::journal::{Append, AppendOutcome, BatchError, Expected, Head, NewSnapshot};

/// How often a transaction begins anew because another host took a head away between its creation and
/// its lock, or because something was not as the batch presumed.
const MAX_BEGINNINGS: u32 = 16;

/// What a batch came to that was judged.
struct Verdict {
    outcomes: Vec<AppendOutcome>,
    newest: Option<Seen>,
    /// Its streams as it leaves them.
    streams: HashMap<StreamName, Known>,
    /// None where there is nothing to write.
    writes: Option<Writes>,
}

/// A batch that was judged.
pub(super) struct Begun {
    pub(super) outcomes: Vec<AppendOutcome>,
    /// None where there is nothing to write.
    pub(super) commit: Option<Commit>,
}

/// The writing side of a store. It judges one batch at a time; the one before may be written and committed
/// meanwhile.
#[derive(Debug)]
pub(super) struct Writer {
    connector: Arc<Connector>,
    sessions: Arc<Sessions>,
    pub(super) known: KnownStreams,
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

    /// Judges a batch, under locks or on what it presumes. Where it stands on more of a batch under way
    /// than the heads that one leaves, it waits for its end. The next one may be begun then.
    pub(super) async fn begin_append(&mut self, batch: &[Append]) -> Result<Begun, BatchError> {
        let (generation, context) = (self.generation, "writing a batch");
        for _ in 0..MAX_BEGINNINGS {
            self.known.settle();
            let opening = bound(Opening::of_batch(batch, &self.known));
            let opening = opening.map_err(BatchError::Failed)?;
            if opening.is_behind() {
                self.no_batch_is_under_way().await.map_err(BatchError::Passing)?;
                continue;
            }
            let worked = self.sessions.begin(context, opening.text(), async |session, rows| {
                match opening.read(&rows)? {
                    Some(at) => judge_batch(session, batch, at, generation).await,
                    None => Ok(End::RollBack(None)),
                }
            });
            match worked.await {
                Ok(Worked::Open(Some(verdict), transaction)) => {
                    return Ok(self.begun(batch, verdict, transaction));
                }
                Ok(Worked::Ended(Some(Verdict { outcomes, .. }))) => {
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

    /// Judges, writes and commits a batch. Gives the newest position that this store has written, where
    /// there was something to write.
    pub(super) async fn append(
        &mut self,
        batch: &[Append],
    ) -> Result<(Vec<AppendOutcome>, Option<i64>), BatchError> {
        for _ in 0..MAX_BEGINNINGS {
            let Begun { outcomes, commit } = self.begin_append(batch).await?;
            let Some(commit) = commit else { return Ok((outcomes, None)) };
            if let Some(newest) = commit.run().await? {
                return Ok((outcomes, Some(newest)));
            }
        }
        Err(BatchError::Passing(in_the_way()))
    }

    fn begun(&mut self, batch: &[Append], verdict: Verdict, transaction: Transaction) -> Begun {
        let Verdict { outcomes, newest, streams, writes } = verdict;
        let Some(writes) = writes else { return Begun { outcomes, commit: None } };
        let taken = batch.iter().zip(&outcomes).filter_map(|(append, outcome)| match outcome {
            AppendOutcome::Committed { taken } if !taken.is_empty() => {
                Some((append.command_id, taken.clone()))
            }
            _ => None,
        });
        let commit = Commit {
            transaction,
            tell: self.known.begin(streams, Arc::clone(&writes.rows)),
            writes,
            newest,
            connector: Arc::clone(&self.connector),
            taken: taken.collect(),
            taken_in_doubt: self.taken_in_doubt.clone(),
        };
        Begun { outcomes, commit: Some(commit) }
    }

    /// Waits for the ends of the batches under way, which may have to write what another transaction
    /// would have locked before them.
    pub(super) async fn no_batch_is_under_way(&mut self) -> Result<()> {
        let limit = self.connector.options().command_timeout;
        let ended = timeout(limit, self.known.ended()).await;
        ended.map_err(|_| timed_out("waiting for the batch before"))
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
        let taken = self.taken_in_doubt.remove(append.command_id);
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
        self.no_batch_is_under_way().await?;
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

/// Judges a batch under its locks, and says what it writes. `None`: something can't be confirmed that was
/// presumed, and the batch must be judged on what is there.
async fn judge_batch(
    session: &mut Session,
    batch: &[Append],
    mut locked: Locked,
    generation: i64,
) -> sqlx::Result<End<Option<Verdict>>> {
    let drawn = locked.drawn.take().ok_or(sqlx::Error::RowNotFound)?;
    if drawn.generation != generation {
        return Err(decode(another_life()));
    }
    for row in opening::secret_rows(session, batch).await? {
        locked.view.standing.insert(row.key(), row);
    }
    let stamp = locked.stamped_at.map(|last| drawn.now.max(last.plus_millis(1)));
    let now = stamp.unwrap_or(drawn.now);
    let Judged { outcomes, plan } = judge(batch, &locked.view, now);
    let is_put = |key: &RowKey| plan.rows.get(key).is_some_and(Option::is_some);
    if !locked.presumed.iter().all(|name| plan.streams.contains_key(name))
        || !locked.unread.iter().all(is_put)
    {
        return Ok(End::RollBack(None));
    }
    if plan.is_empty() {
        let (newest, streams, writes) = (None, HashMap::new(), None);
        return Ok(End::RollBack(Some(Verdict { outcomes, newest, streams, writes })));
    }
    let erasures = Script::of_erasures(&plan, &locked.ids)?;
    // The last ones, so that the newest event has the newest position.
    let unused = drawn.positions.len().saturating_sub(plan.journal.len());
    let positions = drawn.positions.get(unused..).unwrap_or_default();
    let (statement, guarded) = script_of(&plan, &locked, positions, batch, now, stamp)?.finish();
    let trims = plan.streams.values().any(|write| write.trim_through.is_some());
    let before = || drawn.positions.first().map_or(0, |first| first.saturating_sub(1));
    let newest = plan.journal.last().zip(positions.last());
    let newest = newest.map(|(event, &position)| Seen {
        position,
        stream: event.stream.clone(),
        version: event.version,
    });
    // Heads that stayed empty are gone again.
    let heads = &locked.view.heads;
    let streams = locked.ids.into_iter().filter_map(|(name, stream)| {
        let written = plan.streams.get(&name).map(|write| write.head);
        let head = written.filter(|head| head.version > 0).or_else(|| heads.get(&name).copied())?;
        Some((name, Known { stream, head }))
    });
    let streams = streams.collect();
    let writes = Writes {
        erasures: (!erasures.is_empty()).then(|| erasures.finish().0),
        statement,
        guarded,
        rows: Arc::new(plan.rows),
        presumes: !locked.presumed.is_empty() || !locked.unread.is_empty(),
        trimmed_up_to: trims.then(before),
    };
    Ok(End::Commit(Some(Verdict { outcomes, newest, streams, writes: Some(writes) })))
}

/// Again and again a head was taken away between its creation and its lock, or a row was there that a
/// batch must be the first to have.
pub(super) fn in_the_way() -> Error {
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
