//! Reads the journal in the order in which it was written, and holds what was written to the rules.
//!
//! Nothing is missed: it is told of each batch before anybody else is. A file for each family of
//! rules.

pub mod auths;
pub mod decisions;
pub mod deletions;
pub mod due;
pub mod erasure;
pub mod leases;
pub mod operations;
pub mod progress;
pub mod receipts;
pub mod registers;
pub mod rows;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use connector_store::domain::auth::PendingAuthEvent;
use connector_store::domain::connector::ConnectorEvent;
use connector_store::domain::document::DocumentEvent;
use connector_store::journal::{JournalRecord, decode_event};
use connector_store::{CommandId, Event, MemoryJournal, StreamKey, Timestamp};

use super::promises::Told;
use super::world::World;

/// An event as it was written.
pub struct Written {
    pub position: i64,
    pub key: StreamKey,
    pub version: i64,
    pub command_id: CommandId,
    pub at: Timestamp,
    pub event: Event,
}

/// Records that were written and not judged yet.
#[derive(Clone, Debug, Default)]
pub struct Inbox(Arc<Mutex<(i64, Vec<JournalRecord>)>>);

impl Inbox {
    pub fn of(world: &World) -> Self {
        world.audit.borrow().inbox.clone()
    }

    /// Takes what is new.
    pub fn take(&self, journal: &MemoryJournal) {
        let mut inbox = self.0.lock().unwrap();
        journal.tamper(|tables| {
            let behind = inbox.0;
            for (position, record) in tables.journal.range(behind + 1..) {
                inbox.0 = *position;
                inbox.1.push(record.clone());
            }
        });
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Audit {
    inbox: Inbox,
    /// The newest position that a command has written.
    commands: BTreeMap<CommandId, i64>,
    pub registers: registers::Registers,
    pub decisions: decisions::Decisions,
    pub rows: rows::Rows,
    pub receipts: receipts::Receipts,
    pub deletions: deletions::Deletions,
    pub erasure: erasure::Erasure,
    pub operations: operations::Operations,
    pub leases: leases::Leases,
    pub progress: progress::Progress,
    pub auths: auths::Auths,
    /// Calls since all rows were looked at.
    calls: usize,
}

/// Calls between two looks at all rows, at least.
const LOOK_EVERY: usize = 100;
/// Rows for which there is a call between two looks.
const ROWS_OF_A_CALL: usize = 16;

impl Audit {
    pub fn new() -> Self {
        Self::default()
    }

    /// A command has written something.
    pub fn has(&self, id: CommandId) -> bool {
        self.commands.contains_key(&id)
    }

    pub fn judge(&mut self, world: &World) {
        let records = std::mem::take(&mut self.inbox.0.lock().unwrap().1);
        let mut append = None;
        for record in records {
            if append.replace(record.command_id) != Some(record.command_id) {
                self.settle(world);
            }
            self.once(world, &record);
            self.auths.judge_bytes(world, &record);
            let Some(written) = decode(record) else {
                return world.violate("events can be read", "one can't");
            };
            world.samples.written(&written);
            self.registers.judge(world, &written);
            self.leases.judge(world, &written);
            self.operations.judge(world, &written);
            self.progress.judge(world, &written);
            self.auths.judge(world, &written);
            self.decisions.judge(world, &written);
            self.rows.judge(world, &written);
            self.receipts.judge(world, &written);
            self.deletions.judge(world, &written, |account| self.rows.holder(account));
            self.erasure.judge(&written);
        }
        self.settle(world);
        self.erasure.look_now_and_then(world);
        self.calls += 1;
        let rows = world.journal.tamper(|tables| tables.rows.len());
        if self.calls >= LOOK_EVERY.max(rows / ROWS_OF_A_CALL) {
            self.calls = 0;
            self.look(world);
        }
    }

    /// An append has been read as a whole.
    fn settle(&mut self, world: &World) {
        self.rows.settle(world);
        self.receipts.settle(world);
    }

    /// Holds all rows to what was written.
    pub fn look(&self, world: &World) {
        due::look(world);
        self.auths.look(world);
    }

    /// What a command writes it writes once, in one go, and not after it was refused.
    fn once(&mut self, world: &World, record: &JournalRecord) {
        let before = self.commands.insert(record.command_id, record.position);
        world.hold(
            "a command is written once",
            before.is_none_or(|at| at + 1 == record.position),
            || format!("{} at {before:?} and {}", record.command_id, record.position),
        );
        if let Some((told, what)) = world.promises.borrow().of(record.command_id) {
            world.hold("refused has no effect", told != Told::NotDone, || {
                format!("{what} was refused, and written at {}", record.position)
            });
        }
    }
}

fn decode(record: JournalRecord) -> Option<Written> {
    let key = StreamKey::from_stream_name(&record.stream)?;
    let (number, schema, payload) = (record.event_type, record.schema, &record.payload);
    let event = match &key {
        StreamKey::Document(_) => {
            Event::Document(decode_event::<DocumentEvent>(number, schema, payload).ok()?)
        }
        StreamKey::Connector(..) => {
            Event::Connector(decode_event::<ConnectorEvent>(number, schema, payload).ok()?)
        }
        _ => Event::PendingAuth(decode_event::<PendingAuthEvent>(number, schema, payload).ok()?),
    };
    Some(Written {
        position: record.position,
        key,
        version: record.version,
        command_id: record.command_id,
        at: record.recorded_at,
        event,
    })
}
