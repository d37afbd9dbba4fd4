//! Damage to a database that is sound, which must be found. It leaves the database as it was.

use std::rc::Rc;

use connector_store::Store;
use connector_store::journal::JournalRecord;
use uuid::Uuid;

use super::world::World;

const RULE: &str = "a changed event is found";

/// What is changed of an event.
#[derive(Clone, Copy, Debug)]
enum Part {
    Time,
    Command,
    Payload,
    Type,
}

impl Part {
    const ALL: [Self; 4] = [Self::Time, Self::Command, Self::Payload, Self::Type];

    fn change(self, record: &mut JournalRecord) {
        match self {
            Self::Time => record.recorded_at = record.recorded_at.plus_millis(1),
            Self::Command => record.command_id = Uuid::from_u128(record.command_id.as_u128() ^ 1),
            Self::Payload => record.payload.push(0),
            Self::Type => record.event_type ^= 1,
        }
    }
}

/// Changes one part of one event.
pub async fn event(world: &Rc<World>, store: &Store) {
    let (from, part) = world.chance(|chance| {
        let count = world.journal.tamper(|tables| tables.journal.len());
        (chance.below(count), Part::ALL[chance.below(Part::ALL.len())])
    });
    // The newest command of a stream is held against the head as well.
    let found = world.journal.tamper(|tables| {
        let mut events = tables.journal.iter().skip(from);
        let inner = events.find(|(_, record)| {
            let stream = tables.streams.get(&record.stream);
            stream.is_some_and(|stream| stream.head.command_id != record.command_id)
        });
        inner.map(|(position, record)| (*position, record.clone()))
    });
    let Some((position, whole)) = found else { return };
    world.journal.tamper(|tables| {
        tables.journal.entry(position).and_modify(|record| part.change(record));
    });
    let name = whole.stream.clone();
    let report = store.verify().await;
    world.journal.tamper(|tables| tables.journal.insert(position, whole));
    let is_found = report.as_ref().is_ok_and(|report| !report.is_sound());
    world.hold(RULE, is_found, || format!("{part:?} at {position} in {name}: {report:?}"));
}
