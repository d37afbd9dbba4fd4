//! What a batch is judged on: locked first, in one order for all hosts, then read.
//!
//! The order is: lease rows, heads that are missing, heads, the row of stamps; each kind sorted, each
//! row once, in the strongest mode that the batch needs. So no two batches wait for each other. What
//! locked statements give back is the newest version of a row, also where they had to wait for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::connect::Session;
use super::read::{blob_digest, blob_uuid, get, head_of, int, row_of, text};
use super::statement::Statement;
use crate::base::{
    ConnectorName, Error, OwnerDid, Result, StreamKey, StreamKind, StreamName, Timestamp,
};
use crate::domain::{Row, RowChange, RowKey, Table, Value};
use crate::journal::batch::{View, named_rows, stamps};
use crate::journal::{Append, CommandRecord, Expected, Part};

/// How often heads are created anew that another host took away between their creation and their
/// lock.
const MAX_CREATIONS: u32 = 16;

/// A batch's locks, and what was found under them.
#[derive(Debug, Default)]
pub(super) struct Locked {
    pub(super) view: View,
    /// The ids of the batch's streams; all that it can write to are there.
    pub(super) ids: HashMap<StreamName, i64>,
    /// The streams without an event.
    pub(super) empty: Vec<i64>,
    /// The newest stamp, if the batch stamps.
    pub(super) stamped_at: Option<Timestamp>,
}

/// Takes the locks of a batch and reads its view.
pub(super) async fn load(session: &mut Session, batch: &[Append]) -> sqlx::Result<Locked> {
    let mut locked = Locked::default();
    lock_leases(session, batch, &mut locked.view).await?;
    lock_heads(session, streams_of(batch), &mut locked).await?;
    if stamps(batch) {
        locked.stamped_at = Some(lock_stamps(session).await?);
    }
    load_commands(session, batch, &mut locked.view).await?;
    for row in load_standing(session, &named_rows(batch)).await? {
        locked.view.standing.insert(row.key(), row);
    }
    Ok(locked)
}

/// The leases that fences name, and those that the batch writes.
async fn lock_leases(session: &mut Session, batch: &[Append], view: &mut View) -> sqlx::Result<()> {
    let parts = batch.iter().flat_map(|append| &append.parts);
    let written = written_leases(parts.flat_map(|part| &part.rows));
    let fences = batch.iter().flat_map(|append| &append.fences);
    let mode = if written.is_empty() { "SHARE" } else { "UPDATE" };
    let keys = fences.map(|fence| fence.scope.row_key()).chain(written).collect();
    lock_lease_rows(session, &keys, mode, view).await
}

fn written_leases<'a>(changes: impl Iterator<Item = &'a RowChange>) -> BTreeSet<RowKey> {
    let keys = changes.map(|change| match change {
        RowChange::Put(row) => row.key(),
        RowChange::Delete(key) | RowChange::Take(key) => key.clone(),
    });
    keys.filter(|key| key.table == Table::Lease).collect()
}

async fn lock_lease_rows(
    session: &mut Session,
    keys: &BTreeSet<RowKey>,
    mode: &str,
    view: &mut View,
) -> sqlx::Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let scopes: Vec<Option<&str>> =
        keys.iter().map(|key| key.values.first().and_then(Value::as_text)).collect();
    let mut statement =
        Statement::new("SELECT scope, token FROM connector_lease WHERE scope = ANY (");
    statement.bind(scopes)?;
    statement.push(") ORDER BY scope FOR ");
    statement.push(mode);
    for row in &session.all(statement).await? {
        let key = RowKey::new(Table::Lease, vec![Value::text(text(row, 0).map_err(decode)?)]);
        view.leases.insert(key, Value::text(text(row, 1).map_err(decode)?));
    }
    Ok(())
}

/// Takes the locks of rows that were told from these streams, in the order of a batch's. A stream
/// that is expected to be none gets a head, so that nobody else begins it meanwhile.
pub(super) async fn lock_told(
    session: &mut Session,
    changes: &[RowChange],
    expected: &[(StreamName, Expected)],
) -> sqlx::Result<Locked> {
    let mut locked = Locked::default();
    let leases = written_leases(changes.iter());
    lock_lease_rows(session, &leases, "UPDATE", &mut locked.view).await?;
    let mut wanted = BTreeMap::new();
    for (name, expected) in expected {
        let key = StreamKey::from_stream_name(name)
            .ok_or_else(|| decode(Error::damaged(format_args!("a stream is named {name}"))))?;
        let stream = Wanted { kind: key.kind(), creates: *expected == Expected::NONE };
        wanted.insert(name.clone(), stream);
    }
    lock_heads(session, wanted, &mut locked).await?;
    Ok(locked)
}

/// A stream to be locked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    kind: StreamKind,
    /// It is created if it is missing: an append may be its first.
    creates: bool,
}

fn streams_of(batch: &[Append]) -> BTreeMap<StreamName, Wanted> {
    let parts = batch.iter().flat_map(|append| &append.parts);
    let mut wanted = wanted(parts);
    for key in batch.iter().flat_map(|append| &append.absent) {
        if let Some(stream) = guard_of(key) {
            let guard = Wanted { kind: stream.kind(), creates: true };
            wanted.insert(stream.stream_name(), guard);
        }
    }
    wanted
}

fn wanted<'a>(parts: impl Iterator<Item = &'a Part>) -> BTreeMap<StreamName, Wanted> {
    let mut wanted = BTreeMap::new();
    for part in parts {
        let stream = wanted
            .entry(StreamName::clone(&part.stream))
            .or_insert(Wanted { kind: part.kind, creates: false });
        stream.creates |= part.expected.version == 0;
    }
    wanted
}

/// The stream whose appends alone put a row that others expect to be absent and do not put
/// themselves: under its lock the row stays absent until they have committed.
fn guard_of(key: &RowKey) -> Option<StreamKey> {
    let name = |at: usize| key.values.get(at).and_then(Value::as_text);
    if key.table != Table::Forgetting {
        return None;
    }
    let owner = OwnerDid::new(name(0)?).ok()?;
    Some(StreamKey::Connector(owner, ConnectorName::new(name(1)?).ok()?))
}

/// Locks the heads of these parts' streams, also those that another transaction is about to create.
pub(super) async fn lock_parts(session: &mut Session, parts: &[Part]) -> sqlx::Result<()> {
    lock_heads(session, wanted(parts.iter()), &mut Locked::default()).await
}

async fn lock_heads(
    session: &mut Session,
    wanted: BTreeMap<StreamName, Wanted>,
    locked: &mut Locked,
) -> sqlx::Result<()> {
    let mut names: BTreeSet<StreamName> = wanted.keys().cloned().collect();
    for _ in 0..MAX_CREATIONS {
        let missing: Vec<(&StreamName, Wanted)> = wanted
            .iter()
            .filter(|(name, wanted)| wanted.creates && names.contains(*name))
            .map(|(name, wanted)| (name, *wanted))
            .collect();
        create_heads(session, &missing, locked).await?;
        names.retain(|name| !locked.ids.contains_key(name));
        lock_standing(session, &names, locked).await?;
        names.retain(|name| !locked.ids.contains_key(name));
        if !names.iter().any(|name| wanted.get(name).is_some_and(|wanted| wanted.creates)) {
            return Ok(());
        }
    }
    Err(decode(Error::damaged("heads that are created are not there")))
}

/// Creates heads at version 0 that are not there. A row of a transaction that is under way is waited
/// for.
async fn create_heads(
    session: &mut Session,
    missing: &[(&StreamName, Wanted)],
    locked: &mut Locked,
) -> sqlx::Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let mut statement = Statement::new(
        "INSERT INTO connector_stream (name, kind, version, last_command_id, hash) \
         SELECT name, kind, 0, '', '' FROM unnest(",
    );
    statement.bind(missing.iter().map(|(name, _)| &***name).collect::<Vec<&str>>())?;
    statement.push(", ");
    statement.bind(missing.iter().map(|(_, wanted)| wanted.kind.number()).collect::<Vec<i64>>())?;
    statement.push(") AS v (name, kind) ON CONFLICT (name) DO NOTHING RETURNING stream, name");
    for row in &session.all(statement).await? {
        let stream = int(row, 0).map_err(decode)?;
        locked.ids.insert(text(row, 1).map_err(decode)?.into(), stream);
        locked.empty.push(stream);
    }
    Ok(())
}

/// Locks the heads of these streams that are there.
pub(super) async fn lock_standing(
    session: &mut Session,
    names: &BTreeSet<StreamName>,
    locked: &mut Locked,
) -> sqlx::Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let mut statement = Statement::new(
        "SELECT stream, name, version, last_command_id, hash FROM connector_stream \
         WHERE name = ANY (",
    );
    statement.bind(names.iter().map(AsRef::as_ref).collect::<Vec<&str>>())?;
    statement.push(") ORDER BY name FOR UPDATE");
    for row in &session.all(statement).await? {
        let stream = int(row, 0).map_err(decode)?;
        let name = StreamName::from(text(row, 1).map_err(decode)?);
        if int(row, 2).map_err(decode)? == 0 {
            locked.empty.push(stream);
        } else {
            locked.view.heads.insert(name.clone(), head_of(row, 2).map_err(decode)?);
        }
        locked.ids.insert(name, stream);
    }
    Ok(())
}

/// Locks the row of stamps until the end of the transaction, and gives the newest one.
pub(super) async fn lock_stamps(session: &mut Session) -> sqlx::Result<Timestamp> {
    let sql = "SELECT value FROM connector_meta WHERE key = 'stamped_at' FOR UPDATE";
    let rows = session.all(Statement::new(sql)).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    int(row, 0).map(Timestamp::from_millis).map_err(decode)
}

async fn load_commands(
    session: &mut Session,
    batch: &[Append],
    view: &mut View,
) -> sqlx::Result<()> {
    let recorded = batch.iter().filter(|append| append.record.is_some());
    let ids: Vec<&[u8]> = recorded.map(|append| append.command_id.as_bytes().as_slice()).collect();
    for (command_id, record) in stored_commands(session, ids).await? {
        view.commands.insert(command_id, record);
    }
    Ok(())
}

/// The recorded outcomes of these command ids.
pub(super) async fn stored_commands(
    session: &mut Session,
    ids: Vec<&[u8]>,
) -> sqlx::Result<Vec<(Uuid, CommandRecord)>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut statement = Statement::new(
        "SELECT command_id, digest, answer FROM connector_command WHERE command_id = ANY (",
    );
    statement.bind(ids)?;
    statement.push(")");
    let record = |row: &PgRow| {
        let record = CommandRecord { digest: blob_digest(row, 1)?, answer: get(row, 2)? };
        Ok((blob_uuid(row, 0)?, record))
    };
    let rows = session.all(statement).await?;
    rows.iter().map(record).collect::<Result<_>>().map_err(decode)
}

async fn load_standing(session: &mut Session, keys: &BTreeSet<&RowKey>) -> sqlx::Result<Vec<Row>> {
    let keys: Vec<&RowKey> = keys.iter().copied().collect();
    let mut found = Vec::new();
    for keys in keys.chunk_by(|a, b| a.table == b.table) {
        let Some(first) = keys.first() else { continue };
        for row in &session.all(Statement::of_rows(first.table, keys)?).await? {
            found.push(row_of(row, first.table).map_err(decode)?);
        }
    }
    Ok(found)
}

/// An error of the store as one of the library, for what is between two statements.
pub(super) fn decode(error: Error) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(error))
}
