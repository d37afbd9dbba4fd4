//! The judging of a batch: which appends pass, and what is then written.
//!
//! Pure. A backend locks and loads a [`View`] of what the batch speaks of, [`judge`] goes through
//! the appends in their order of arrival, each on the result of those that passed before it, and
//! the backend writes the [`Plan`]. No check relies on a constraint, and one bad append never
//! fails its neighbours.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use uuid::Uuid;

use super::chain::{ChainHash, EventHashInput, snapshot_checksum, start_hash};
use super::port::{Append, AppendOutcome, Base, CommandRecord, Expected, Head, NewEvent, Part};
use crate::base::planted::{PlantedBug, is_planted};
use crate::base::{Digest, StreamKind, StreamName, Timestamp};
use crate::domain::{Fence, Row, RowChange, RowKey, Value};

/// The column of a lease row that holds the token.
pub const LEASE_TOKEN_COLUMN: usize = 2;

/// What a batch is judged on: the stored state of all that it names.
#[derive(Debug, Default)]
pub struct View {
    /// The heads of the batch's streams that have one.
    pub heads: HashMap<StreamName, Head>,
    /// The token of each lease row that a fence names and that is there.
    pub leases: HashMap<RowKey, Value>,
    /// The recorded outcomes of the batch's command ids that are known.
    pub commands: HashMap<Uuid, CommandRecord>,
    /// The rows that the batch takes, or expects to be absent, and that are there.
    pub standing: HashMap<RowKey, Row>,
}

/// An event of a plan.
#[derive(Debug)]
pub struct JournalWrite<'a> {
    /// The stream's name.
    pub stream: &'a StreamName,
    /// The place in the stream.
    pub version: i64,
    /// The event.
    pub event: &'a NewEvent,
    /// The command that writes it.
    pub command_id: Uuid,
    /// The chain hash at it.
    pub hash: ChainHash,
}

/// A snapshot of a plan.
#[derive(Debug)]
pub struct SnapshotWrite<'a> {
    /// The version after which it was taken.
    pub version: i64,
    /// The schema of the payload.
    pub schema: u16,
    /// The encoded state.
    pub payload: &'a [u8],
    /// The chain hash at its version.
    pub hash: ChainHash,
    /// What proves it whole.
    pub checksum: Digest,
}

/// What a plan does to one stream.
#[derive(Debug)]
pub struct StreamWrite<'a> {
    /// The stream's name.
    pub name: &'a StreamName,
    /// The stream's kind.
    pub kind: StreamKind,
    /// The stream had a head before.
    pub existed: bool,
    /// The head after the batch.
    pub head: Head,
    /// Stored events up to this version, and stored snapshots, are deleted.
    pub erase_through: Option<i64>,
    /// Stored events up to this version are deleted, and count as trimmed in the feed.
    pub trim_through: Option<i64>,
    /// The stream's base behind what is deleted; none where the chain starts anew.
    pub base: Option<Base>,
    /// The snapshot to write.
    pub snapshot: Option<SnapshotWrite<'a>>,
}

impl StreamWrite<'_> {
    /// Stored events up to this version are deleted, and the base is written.
    #[must_use]
    pub fn cut_through(&self) -> Option<i64> {
        self.erase_through.max(self.trim_through)
    }
}

/// What a batch writes: everything of the appends that passed, folded.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// The streams that change, by name.
    pub streams: BTreeMap<&'a StreamName, StreamWrite<'a>>,
    /// The events, in the order of their positions.
    pub journal: Vec<JournalWrite<'a>>,
    /// The last change of each row: the row to put, or none to delete it.
    pub rows: BTreeMap<RowKey, Option<Row>>,
    /// The outcomes of callers' command ids to keep.
    pub commands: Vec<(Uuid, &'a CommandRecord)>,
}

impl Plan<'_> {
    /// There is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
            && self.journal.is_empty()
            && self.rows.is_empty()
            && self.commands.is_empty()
    }
}

/// The result of [`judge`].
#[derive(Debug)]
pub struct Judged<'a> {
    /// What became of each append, in their order; commits hold once the plan is durable.
    pub outcomes: Vec<AppendOutcome>,
    /// What is to be written.
    pub plan: Plan<'a>,
}

/// Judges a batch in its order of arrival.
#[must_use]
pub fn judge<'a>(batch: &'a [Append], view: &View, recorded_at: Timestamp) -> Judged<'a> {
    let mut plan = Plan::default();
    let mut known: HashMap<Uuid, &'a CommandRecord> = HashMap::new();
    let mut refused: HashSet<Uuid> = HashSet::new();
    let outcomes = batch
        .iter()
        .map(|append| {
            // What stands on a refused append stands on a state that never was, also where another
            // host's decision of the same command has left a head that looks like it.
            let stands = |part: &Part| {
                part.expected.version > 0 && refused.contains(&part.expected.command_id)
            };
            let is_behind = append.parts.iter().any(stands);
            let conflict = is_behind.then_some(AppendOutcome::Conflict);
            if let Some(outcome) = conflict.or_else(|| refusal(append, view, &plan, &known)) {
                refused.insert(append.command_id);
                return outcome;
            }
            if let Some(record) = &append.record {
                known.insert(append.command_id, record);
                plan.commands.push((append.command_id, record));
            }
            let mut taken = Vec::new();
            for part in &append.parts {
                write_part(part, append.command_id, view, &mut plan, recorded_at);
                fold_rows(part, view, &mut plan, &mut taken, recorded_at);
            }
            AppendOutcome::Committed { taken }
        })
        .collect();
    Judged { outcomes, plan }
}

fn refusal(
    append: &Append,
    view: &View,
    plan: &Plan<'_>,
    known: &HashMap<Uuid, &CommandRecord>,
) -> Option<AppendOutcome> {
    if append.record.is_some() && !is_planted(PlantedBug::KnownCommandRunsAgain) {
        let earlier = known.get(&append.command_id).copied();
        if let Some(record) = earlier.or_else(|| view.commands.get(&append.command_id)) {
            return Some(AppendOutcome::CommandKnown(record.clone()));
        }
    }
    if let Some(fence) = append.fences.iter().find(|fence| !is_current(fence, view, plan)) {
        return Some(AppendOutcome::FenceLost { fence: fence.clone() });
    }
    if conflicts(append, view, plan) {
        return Some(AppendOutcome::Conflict);
    }
    let exists = append.absent.iter().find(|key| match plan.rows.get(*key) {
        Some(folded) => folded.is_some(),
        None => view.standing.contains_key(*key),
    });
    exists.map(|key| AppendOutcome::RowExists(key.clone()))
}

fn conflicts(append: &Append, view: &View, plan: &Plan<'_>) -> bool {
    append.parts.iter().any(|part| {
        let head = head_of(&part.stream, view, plan);
        let found = head.map_or(Expected::NONE, |head| Expected {
            version: head.version,
            command_id: head.command_id,
        });
        found != part.expected && !is_planted(PlantedBug::HeadNotCompared)
    })
}

/// The rows that a batch must be judged on: those that it takes, and those that it expects to be
/// absent.
#[must_use]
pub fn named_rows(batch: &[Append]) -> BTreeSet<&RowKey> {
    let parts = batch.iter().flat_map(|append| &append.parts);
    let taken = parts.flat_map(|part| &part.rows).filter_map(|change| match change {
        RowChange::Take(key) => Some(key),
        RowChange::Put(_) | RowChange::Delete(_) => None,
    });
    taken.chain(batch.iter().flat_map(|append| &append.absent)).collect()
}

fn is_current(fence: &Fence, view: &View, plan: &Plan<'_>) -> bool {
    let key = fence.scope.row_key();
    let token = match plan.rows.get(&key) {
        Some(Some(row)) => row.values.get(LEASE_TOKEN_COLUMN),
        Some(None) => None,
        None => view.leases.get(&key),
    };
    token == Some(&fence.token.to_value()) || is_planted(PlantedBug::FenceNotJudged)
}

fn head_of(stream: &StreamName, view: &View, plan: &Plan<'_>) -> Option<Head> {
    match plan.streams.get(stream) {
        Some(write) => Some(write.head),
        None => view.heads.get(stream).copied(),
    }
}

fn write_part<'a>(
    part: &'a Part,
    command_id: Uuid,
    view: &View,
    plan: &mut Plan<'a>,
    recorded_at: Timestamp,
) {
    if part.events.is_empty() && part.snapshot.is_none() && !part.erase {
        return;
    }
    let before = head_of(&part.stream, view, plan);
    let existed = view.heads.contains_key(&part.stream);
    let mut head = before.unwrap_or_else(|| Head {
        version: 0,
        command_id: Uuid::nil(),
        hash: start_hash(&part.stream),
    });
    let trims = part.trim && part.snapshot.is_some();
    let version_before = head.version;
    let base = base_of(part, head);
    if part.erase || trims {
        plan.journal.retain(|write| write.stream != &part.stream);
    }
    for event in &part.events {
        let input = EventHashInput {
            version: head.version + 1,
            event_type: event.event_type,
            schema: event.schema,
            command_id,
            recorded_at,
            payload: &event.payload,
        };
        let previous = if event.is_swept { start_hash(&part.stream) } else { head.hash };
        let hash = input.chain(&previous);
        head = Head { version: input.version, command_id, hash };
        plan.journal.push(JournalWrite {
            stream: &part.stream,
            version: head.version,
            event,
            command_id,
            hash,
        });
    }
    let snapshot = part.snapshot.as_ref().map(|new| SnapshotWrite {
        version: head.version,
        schema: new.schema,
        payload: &new.payload,
        hash: head.hash,
        checksum: snapshot_checksum(
            &part.stream,
            head.version,
            new.schema,
            &new.payload,
            &head.hash,
        ),
    });
    let write = plan.streams.entry(&part.stream).or_insert_with(|| StreamWrite {
        name: &part.stream,
        kind: part.kind,
        existed,
        head,
        erase_through: None,
        trim_through: None,
        base: None,
        snapshot: None,
    });
    write.head = head;
    if part.erase && !is_planted(PlantedBug::ErasureLeavesEvents) {
        write.erase_through = Some(version_before);
        write.snapshot = None;
    }
    if trims {
        write.trim_through = Some(version_before);
    }
    if part.erase || trims {
        write.base = base;
    }
    if snapshot.is_some() {
        write.snapshot = snapshot;
    }
}

/// What the events of a part follow when all before them goes.
fn base_of(part: &Part, before: Head) -> Option<Base> {
    let starts_anew = before.version == 0 || part.events.first().is_some_and(|it| it.is_swept);
    (!starts_anew).then_some(Base { version: before.version, hash: before.hash })
}

/// The batch stamps a row, so its time must be greater than that of every batch that did.
#[must_use]
pub fn stamps(batch: &[Append]) -> bool {
    let mut parts = batch.iter().flat_map(|append| &append.parts);
    parts.any(|part| part.rows.iter().any(RowChange::stamps))
}

fn fold_rows(
    part: &Part,
    view: &View,
    plan: &mut Plan<'_>,
    taken: &mut Vec<Row>,
    recorded_at: Timestamp,
) {
    for change in &part.rows {
        match change {
            RowChange::Put(row) => {
                let key = row.key();
                let mut folded = match plan.rows.get(&key) {
                    Some(earlier) => keep_from(row, earlier.as_ref()),
                    None => row.clone(),
                };
                if change.stamps() {
                    folded = folded.stamped(recorded_at);
                    taken.push(folded.clone());
                }
                plan.rows.insert(key, Some(folded));
            }
            RowChange::Delete(key) => {
                plan.rows.insert(key.clone(), None);
            }
            RowChange::Take(key) => {
                let standing = match plan.rows.insert(key.clone(), None) {
                    Some(folded) => folded,
                    None => view.standing.get(key).cloned(),
                };
                if is_planted(PlantedBug::AuthorizationStays) {
                    plan.rows.insert(key.clone(), standing.clone());
                }
                taken.extend(standing);
            }
        }
    }
}

/// A row that keeps columns, after a change of the same batch: they come from that change, and a
/// row that was deleted before has nothing to keep.
fn keep_from(row: &Row, earlier: Option<&Row>) -> Row {
    let values = row.values.iter().enumerate().map(|(at, value)| match value {
        Value::Keep => earlier.and_then(|row| row.values.get(at)).cloned().unwrap_or(Value::Null),
        other => other.clone(),
    });
    Row::new(row.table, values.collect())
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
