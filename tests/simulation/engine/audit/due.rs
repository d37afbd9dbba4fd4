//! Every state that is not final has a time at which it is looked at again: in the rows, since nothing
//! else is asked after a restart.

use connector_store::domain::{OPERATION_DUE_COLUMN, Row, Table, Value};
use connector_store::{Clock as _, Timestamp};

use crate::engine::world::World;

const RULE: &str = "what is not final has a time";
/// Nothing waits longer than that in a run.
const LONGEST_MILLIS: i64 = 24 * 3_600_000;

/// Holds all rows to it.
pub fn look(world: &World) {
    let until = world.clock.wall().plus_millis(LONGEST_MILLIS);
    let lost = world
        .journal
        .tamper(|tables| tables.rows.values().find(|row| is_lost(row, until)).cloned());
    world.hold(RULE, lost.is_none(), || format!("{lost:?}"));
}

fn is_lost(row: &Row, until: Timestamp) -> bool {
    let state = row.values.get(7).and_then(Value::as_text);
    let column = match (row.table, state) {
        (Table::Operation, Some("committed" | "dead")) => None,
        (Table::Operation, _) => Some(OPERATION_DUE_COLUMN),
        (Table::SweepCandidate, Some("dead")) => None,
        (Table::SweepCandidate, _) => Some(11),
        (Table::ProjectionWatch, _) => Some(8),
        (Table::Lease | Table::OwedSweep, _) => Some(3),
        (Table::DocumentSweep, _) => Some(1),
        (Table::Forgetting, _) => Some(2),
        _ => None,
    };
    let Some(column) = column else { return false };
    let due = row.values.get(column).and_then(Value::as_int);
    due.is_none_or(|due| due > until.as_millis())
}
