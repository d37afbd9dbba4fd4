//! Trims as registers: each write bears a number of its own, so a read says which write it saw. What
//! was acknowledged before a read began is seen by it, whichever host it asks.

use std::collections::BTreeMap;

use connector_store::domain::document::DocumentEvent;
use connector_store::{DocumentId, Event, StreamKey};

use super::Written;
use crate::engine::world::World;

const RULE: &str = "a read sees what was acknowledged before it";

/// See the module.
#[derive(Debug, Default)]
pub struct Registers {
    /// The position at which each document got each number; 0 stands for nothing.
    written: BTreeMap<(DocumentId, u64), i64>,
    /// Of each document the newest position that somebody was told of.
    told: BTreeMap<DocumentId, i64>,
}

impl Registers {
    pub(super) fn judge(&mut self, _world: &World, written: &Written) {
        let StreamKey::Document(document) = &written.key else { return };
        let number = match &written.event {
            Event::Document(DocumentEvent::EntityTrimSet(set)) => {
                set.trimmed_fields.as_str().parse().unwrap_or(0)
            }
            Event::Document(DocumentEvent::EntityTrimCleared | DocumentEvent::Swept) => 0,
            _ => return,
        };
        self.written.insert((document.clone(), number), written.position);
    }

    /// Where a document got a number.
    pub fn position(&self, document: &DocumentId, number: u64) -> Option<i64> {
        self.written.get(&(document.clone(), number)).copied()
    }

    /// Where a read or a write of the document may stand at the earliest that begins now.
    pub fn floor(&self, document: &DocumentId) -> i64 {
        self.told.get(document).copied().unwrap_or(0)
    }

    /// Somebody was told that the document has, or got, this number.
    pub fn told(&mut self, world: &World, document: &DocumentId, number: u64, floor: i64) {
        let at = self.written.get(&(document.clone(), number)).copied();
        let at = at.or((number == 0).then_some(0));
        world.hold(RULE, at.is_some_and(|at| at >= floor), || {
            format!("{document} has {number}, written at {at:?}, and something newer at {floor}")
        });
        let told = self.told.entry(document.clone()).or_default();
        *told = (*told).max(at.unwrap_or(0));
    }
}
