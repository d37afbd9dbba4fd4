//! Copying a database into a file while hosts write to it, and filling an empty one from such a file.
//!
//! It knows tables and columns, no states. The rows go as the server gives them.

use std::fs::Permissions;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::postgres::PgConnection;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::timeout;

use super::archive::{self, MAX_PIECE, Piece};
use super::connect::{Connector, Session};
use super::fault::{storage_error, timed_out};
use super::migrate;
use super::read::int;
use super::restore;
use super::statement::push_names;
use crate::base::{Error, Result, StorageFault};
use crate::domain::Table;
use crate::journal::file::{Copy, in_background};

/// Tables besides the read tables, with their columns. The horizon of an event is left out: it is
/// made of the server's own ids.
const JOURNAL: &[(&str, &str)] = &[
    ("connector_meta", "key, value"),
    (
        "connector_stream",
        "stream, name, kind, version, last_command_id, hash, base_version, base_hash",
    ),
    (
        "connector_journal",
        "position, stream, stream_version, event_type, event_schema, payload, command_id, \
         recorded_at, hash",
    ),
    ("connector_snapshot", "stream, stream_version, schema, payload, hash, checksum"),
    ("connector_command", "command_id, digest, answer, at"),
];

const BEGIN_COPY: &str = "\
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0; \
SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0";

/// A number that was given after the moment of the copy does no harm; one before it is counted.
const NUMBERS: &str = "\
SELECT (SELECT value FROM connector_meta WHERE key = 'schema_version'), \
  coalesce(pg_sequence_last_value('connector_journal_position'), 0), \
  coalesce(pg_sequence_last_value( \
    pg_get_serial_sequence('connector_stream', 'stream')::regclass), 0)";

/// Pieces between the database and the file.
const QUEUE: usize = 4;
/// Rows are gathered to pieces of this size.
const PIECE: usize = 64 * 1024;

const WRITING: &str = "writing a backup";
const FILLING: &str = "filling a database from a backup";

/// All tables, with their columns.
fn tables() -> Vec<(&'static str, String)> {
    let journal = JOURNAL.iter().map(|(name, columns)| (*name, (*columns).to_owned()));
    let read = Table::ALL.into_iter().map(|table| {
        let mut columns = String::new();
        push_names(&mut columns, table.spec().columns.iter());
        (table.spec().name, columns)
    });
    journal.chain(read).collect()
}

/// Nobody else may read a copy: it holds the secrets of authorizations.
fn permissions() -> Option<Permissions> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        Some(Permissions::from_mode(0o600))
    }
    #[cfg(not(unix))]
    None
}

/// Waits for a step of the server, which takes no longer than a command may.
async fn step<T>(
    limit: Duration,
    context: &str,
    work: impl Future<Output = sqlx::Result<T>>,
) -> Result<T> {
    let done = timeout(limit, work).await.map_err(|_| timed_out(context))?;
    done.map_err(|error| storage_error(error, context))
}

/// The other side has ended, and says why.
fn other_side_ended() -> Error {
    Error::storage(StorageFault::Unavailable, "the other side of a backup has ended")
}

/// Copies what is committed when it begins into a new file.
pub(super) async fn back_up(connector: &Connector, path: &Path) -> Result<()> {
    let wanted = path.to_owned();
    let copy = in_background(move || Copy::begin(&wanted, permissions())).await?;
    let session = connector.open().await?;
    let (pieces, mut received) = mpsc::channel(QUEUE);
    let written = in_background(move || archive::write(&copy, &mut received).map(|()| copy));
    let limit = connector.options().command_timeout;
    let (given, written) = tokio::join!(give_all(session, limit, pieces), written);
    // The file's error comes first: without it the database could have gone on.
    let copy = written?;
    given?;
    in_background(move || copy.keep()).await
}

/// Gives the database piece by piece, all of one moment.
async fn give_all(mut session: Session, limit: Duration, pieces: Sender<Piece>) -> Result<()> {
    step(limit, WRITING, session.run(BEGIN_COPY.to_owned())).await?;
    let rows = step(limit, WRITING, session.run(NUMBERS.to_owned())).await?;
    let row = rows.first().ok_or_else(|| Error::damaged("the store has no numbers"))?;
    let numbers = Piece::Numbers([int(row, 0)?, int(row, 1)?, int(row, 2)?]);
    give(&pieces, numbers).await?;
    for (table, columns) in tables() {
        give(&pieces, Piece::Table(table.to_owned())).await?;
        let sql = format!("COPY (SELECT {columns} FROM {table}) TO STDOUT (FORMAT binary)");
        give_rows(session.connection(), &sql, limit, &pieces).await?;
    }
    session.close().await;
    Ok(())
}

async fn give(pieces: &Sender<Piece>, piece: Piece) -> Result<()> {
    pieces.send(piece).await.map_err(|_| other_side_ended())
}

async fn give_rows(
    connection: &mut PgConnection,
    sql: &str,
    limit: Duration,
    pieces: &Sender<Piece>,
) -> Result<()> {
    let mut rows = step(limit, WRITING, connection.copy_out_raw(sql)).await?;
    let mut gathered = Vec::new();
    loop {
        let next = poll_fn(|context| rows.as_mut().poll_next(context));
        let Some(bytes) = step(limit, WRITING, async { next.await.transpose() }).await? else {
            break;
        };
        gathered.extend_from_slice(&bytes);
        while gathered.len() >= PIECE {
            let rest = gathered.split_off(gathered.len().min(MAX_PIECE));
            give(pieces, Piece::Rows(std::mem::replace(&mut gathered, rest))).await?;
        }
    }
    give(pieces, Piece::Rows(gathered)).await
}

/// Fills a database without a store from a backup, all or nothing, and begins the restore of it in
/// the same transaction: nobody can use what was copied before it has ended.
pub(super) async fn fill(connector: &Connector, path: PathBuf) -> Result<()> {
    let checked = path.clone();
    in_background(move || archive::read(&checked, |_| Ok(()))).await?;
    let (pieces, received) = mpsc::channel(QUEUE);
    let given = in_background(move || {
        archive::read(&path, |piece| pieces.blocking_send(piece).map_err(|_| other_side_ended()))
    });
    let mut session = connector.open().await?;
    let limit = connector.options().command_timeout;
    let (taken, given) = tokio::join!(take_all(&mut session, limit, received), given);
    taken?;
    // The file may have changed since it was checked.
    given?;
    step(limit, FILLING, session.commit()).await?;
    session.close().await;
    Ok(())
}

/// Takes a backup piece by piece, in a transaction that is left open.
async fn take_all(
    session: &mut Session,
    limit: Duration,
    mut pieces: Receiver<Piece>,
) -> Result<()> {
    if migrate::check(session).await?.is_some() {
        return Err(not_empty());
    }
    step(limit, FILLING, session.begin("; SET LOCAL statement_timeout = 0")).await?;
    if step(limit, FILLING, migrate::lock(session)).await? != 0 {
        return Err(not_empty());
    }
    let Some(Piece::Numbers([schema, position, stream])) = pieces.recv().await else {
        return Err(Error::damaged("the backup does not begin with numbers"));
    };
    migrate::check_supported(schema)?;
    step(limit, FILLING, migrate::steps(session, 0, schema)).await?;
    let prepare = "DELETE FROM connector_meta; \
                   ALTER TABLE connector_journal ALTER horizon SET DEFAULT '0'";
    step(limit, FILLING, session.run(prepare.to_owned())).await?;
    take_rows(session, limit, pieces).await?;
    let finish = format!(
        "ALTER TABLE connector_journal ALTER horizon DROP DEFAULT; \
         SELECT setval('connector_journal_position', {position}) WHERE {position} > 0; \
         SELECT setval(pg_get_serial_sequence('connector_stream', 'stream'), {stream}) \
         WHERE {stream} > 0"
    );
    step(limit, FILLING, session.run(finish)).await?;
    step(limit, FILLING, restore::begin(session)).await.map(drop)
}

fn not_empty() -> Error {
    Error::invalid("database", "expected one without a store")
}

async fn take_rows(
    session: &mut Session,
    limit: Duration,
    mut pieces: Receiver<Piece>,
) -> Result<()> {
    let mut wanted = tables().into_iter();
    let mut next = pieces.recv().await;
    while let Some(piece) = next {
        let Piece::Table(name) = piece else {
            return Err(Error::damaged("the backup has rows of no table"));
        };
        let (table, columns) = wanted
            .next()
            .filter(|(table, _)| *table == name)
            .ok_or_else(|| Error::damaged("the backup has other tables than its schema"))?;
        let sql = format!("COPY {table} ({columns}) FROM STDIN (FORMAT binary)");
        let mut copy = step(limit, FILLING, session.connection().copy_in_raw(&sql)).await?;
        next = loop {
            match pieces.recv().await {
                Some(Piece::Rows(bytes)) => {
                    step(limit, FILLING, copy.send(bytes)).await?;
                }
                other => break other,
            }
        };
        step(limit, FILLING, copy.finish()).await?;
    }
    match wanted.next() {
        None => Ok(()),
        Some(_) => Err(Error::damaged("the backup lacks tables of its schema")),
    }
}
