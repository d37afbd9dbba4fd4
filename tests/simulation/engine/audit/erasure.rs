//! Nothing of an erased document is left. Content bears marks that are used once: after the sweep of
//! a document no mark of it is in any event, snapshot, row or kept answer, and no content is in a
//! stream of a connector at any time.

use std::collections::{BTreeMap, BTreeSet};

use connector_store::base::StreamName;
use connector_store::domain::Value;
use connector_store::domain::document::DocumentEvent;
use connector_store::{DocumentId, Event, Json, StreamKey};

use super::Written;
use crate::engine::world::World;

const RULE: &str = "nothing of an erased document is left";
/// How a mark begins, in whatever it stands.
const MARK: &str = "mk-";
const DIGITS: usize = 16;
/// Sweeps between two looks at everything.
const SWEEPS: u64 = 6;

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
        let begins = bytes.windows(MARK.len() + DIGITS);
        begins.filter_map(|window| {
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
    erased: BTreeMap<Mark, DocumentId>,
    since_look: u64,
}

impl Erasure {
    pub(super) fn judge(&mut self, written: &Written) {
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
                self.since_look += 1;
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

    pub fn erased(&self) -> &BTreeMap<Mark, DocumentId> {
        &self.erased
    }

    pub(super) fn look_now_and_then(&mut self, world: &World) {
        if self.since_look >= SWEEPS {
            self.look(world);
        }
    }

    /// Looks through all that is stored.
    pub fn look(&mut self, world: &World) {
        self.since_look = 0;
        let erased = |bytes: &[u8]| {
            Mark::all_in(bytes).find_map(|mark| self.erased.get(&mark)).map(ToString::to_string)
        };
        let left = world.journal.tamper(|tables| {
            let of_connector = |stream: &StreamName, bytes: &[u8]| {
                let is_connector =
                    matches!(StreamKey::from_stream_name(stream), Some(StreamKey::Connector(..)));
                (is_connector && Mark::all_in(bytes).next().is_some())
                    .then(|| format!("content in {stream:?}"))
            };
            let events = tables.journal.values().find_map(|record| {
                let left = erased(&record.payload).map(|of| format!("{of} in an event"));
                left.or_else(|| of_connector(&record.stream, &record.payload))
            });
            let snapshots = tables.streams.iter().find_map(|(name, stream)| {
                let payload = &stream.snapshot.as_ref()?.payload;
                let left = erased(payload).map(|of| format!("{of} in a snapshot"));
                left.or_else(|| of_connector(name, payload))
            });
            let rows = tables.rows.values().find_map(|row| {
                let mut texts = row.values.iter().filter_map(Value::as_text);
                texts.find_map(|text| erased(text.as_bytes())).map(|of| format!("{of} in a row"))
            });
            let mut answers = tables.commands.values();
            let answers = answers
                .find_map(|(record, _)| erased(&record.answer))
                .map(|_| "something in an answer".to_owned());
            events.or(snapshots).or(rows).or(answers)
        });
        if let Some(left) = left {
            world.violate(RULE, left);
        }
    }
}
