//! Nothing of an erased document is left. Content bears marks that are used once: after the sweep of
//! a document no mark of it is in any event, snapshot, row or kept answer, and no content is in a
//! stream of a connector at any time. The document's own stream and row are looked at at once, all the
//! rest now and then.

use std::collections::{BTreeMap, BTreeSet};

use connector_store::base::StreamName;
use connector_store::domain::document::DocumentEvent;
use connector_store::domain::{Row, RowKey, Table, Value};
use connector_store::journal::memory::Tables;
use connector_store::{DocumentId, Event, Json, StreamKey};

use super::Written;
use crate::engine::world::World;

const RULE: &str = "nothing of an erased document is left";
/// How a mark begins, in whatever it stands.
const MARK: &str = "mk-";
const DIGITS: usize = 16;
/// Sweeps between two looks at everything, at least.
const SWEEPS: u64 = 6;
/// What is in the journal was looked at so often, on the average, when a look at everything comes.
const LOOKS: usize = 4;

/// What the content of one document's rows bears, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

impl Mark {
    pub fn draw(world: &World) -> Self {
        Self(world.draw())
    }

    /// The content that bears it.
    pub fn content(self, version: &str) -> Json {
        let text = format!(r#"{{"version":"{version}","mark":"{MARK}{:016x}"}}"#, self.0);
        Json::parse("trimmed_fields", &text).unwrap()
    }

    /// Each mark in these bytes.
    pub fn all_in(bytes: &[u8]) -> impl Iterator<Item = Self> + '_ {
        let first = MARK.as_bytes()[0];
        let windows = bytes.windows(MARK.len() + DIGITS);
        windows.filter(move |window| window[0] == first).filter_map(|window| {
            let digits = window.strip_prefix(MARK.as_bytes())?;
            let digits = std::str::from_utf8(digits).ok()?;
            u64::from_str_radix(digits, 16).ok().map(Self)
        })
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Erasure {
    standing: BTreeMap<DocumentId, BTreeSet<Mark>>,
    /// Of which document each was.
    pub erased: BTreeMap<Mark, DocumentId>,
    /// Documents that were swept since these were looked at.
    swept: BTreeSet<DocumentId>,
    /// Sweeps, and events, since everything was looked at.
    sweeps: u64,
    events: usize,
}

impl Erasure {
    pub(super) fn judge(&mut self, written: &Written) {
        self.events += 1;
        let (StreamKey::Document(document), Event::Document(event)) =
            (&written.key, &written.event)
        else {
            return;
        };
        match event {
            DocumentEvent::EntityTrimSet(set) => {
                let marks = Mark::all_in(set.trimmed_fields.as_str().as_bytes());
                self.standing.entry(document.clone()).or_default().extend(marks);
            }
            DocumentEvent::Swept => {
                let marks = self.standing.remove(document).unwrap_or_default();
                self.erase(document, marks);
                self.sweeps += 1;
                self.swept.insert(document.clone());
            }
            _ => {}
        }
    }

    /// Content of a document was, or will be, written.
    pub fn written(&mut self, document: &DocumentId, mark: Mark) {
        self.standing.entry(document.clone()).or_default().insert(mark);
    }

    /// What a document's content bears, or has borne.
    pub fn of(&self, document: &DocumentId) -> BTreeSet<Mark> {
        self.standing.get(document).cloned().unwrap_or_default()
    }

    /// A document was swept, and with it these.
    pub fn erase(&mut self, document: &DocumentId, marks: BTreeSet<Mark>) {
        self.erased.extend(marks.into_iter().map(|mark| (mark, document.clone())));
    }

    /// Looks at what was swept at once, and at everything as often as its size allows.
    pub(super) fn look_now_and_then(&mut self, world: &World) {
        for document in std::mem::take(&mut self.swept) {
            let left = world.journal.tamper(|tables| self.of_document(tables, &document));
            world.hold(RULE, left.is_none(), || left.clone().unwrap_or_default());
        }
        let events = world.journal.tamper(|tables| tables.journal.len());
        if self.sweeps >= SWEEPS && self.events >= events / LOOKS {
            self.look(world);
        }
    }

    /// What was erased and is in these bytes.
    fn erased_in(&self, bytes: &[u8]) -> Option<&DocumentId> {
        Mark::all_in(bytes).find_map(|mark| self.erased.get(&mark))
    }

    /// What is left in the document's own stream and row.
    fn of_document(&self, tables: &Tables, document: &DocumentId) -> Option<String> {
        let name = StreamKey::Document(document.clone()).stream_name();
        let row = RowKey::new(Table::EntityTrim, vec![Value::text(document.as_str())]);
        let row = tables.rows.get(&row).and_then(|row| self.in_row(row));
        let stream = tables.streams.get(&name)?;
        let events = stream.positions.values().filter_map(|at| tables.journal.get(at));
        let mut payloads = events
            .map(|record| &record.payload)
            .chain(stream.snapshot.as_ref().map(|snapshot| &snapshot.payload));
        row.or_else(|| {
            let left = payloads.find_map(|payload| self.erased_in(payload));
            left.map(|of| format!("{of} in its stream"))
        })
    }

    fn in_row(&self, row: &Row) -> Option<String> {
        let mut texts = row.values.iter().filter_map(Value::as_text);
        let left = texts.find_map(|text| self.erased_in(text.as_bytes()));
        left.map(|of| format!("{of} in a row"))
    }

    /// Looks through all that is stored.
    pub fn look(&mut self, world: &World) {
        (self.sweeps, self.events) = (0, 0);
        let left = world.journal.tamper(|tables| self.anywhere(tables));
        world.hold(RULE, left.is_none(), || left.clone().unwrap_or_default());
    }

    fn anywhere(&self, tables: &Tables) -> Option<String> {
        let erased = |bytes: &[u8]| self.erased_in(bytes);
        let of_connector = |stream: &StreamName, bytes: &[u8]| {
            Mark::all_in(bytes).next()?;
            let key = StreamKey::from_stream_name(stream);
            matches!(key, Some(StreamKey::Connector(..))).then(|| format!("content in {stream:?}"))
        };
        let events = tables.journal.values().find_map(|record| {
            let left = erased(&record.payload).map(|of| format!("{of} in an event"));
            left.or_else(|| of_connector(&record.stream, &record.payload))
        });
        let snapshots = || {
            tables.streams.iter().find_map(|(name, stream)| {
                let payload = &stream.snapshot.as_ref()?.payload;
                let left = erased(payload).map(|of| format!("{of} in a snapshot"));
                left.or_else(|| of_connector(name, payload))
            })
        };
        let rows = || tables.rows.values().find_map(|row| self.in_row(row));
        let answers = || {
            let mut answers = tables.commands.values();
            let left = answers.any(|(record, _)| erased(&record.answer).is_some());
            left.then(|| "something in an answer".to_owned())
        };
        events.or_else(snapshots).or_else(rows).or_else(answers)
    }
}
