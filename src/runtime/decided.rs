//! From a decision to what an append writes: encoded events, rows, a snapshot when one is due.
//!
//! Shared by the actor and the unit of work. It knows no mailbox and no reply.

use std::sync::Arc;

use uuid::Uuid;

use crate::base::{Result, StreamKey, StreamName};
use crate::domain::{Aggregate, Context, Decision, RowChange, RowKey, StoredEvent, Value};
use crate::journal::{Expected, NewEvent, NewSnapshot, Part, encode_event, encode_snapshot};

/// A state in memory with its place in the stream.
pub(super) struct Held<A> {
    pub(super) state: A,
    /// The head that the state stands for, durable or not.
    pub(super) head: Expected,
    /// Events since the newest snapshot.
    pub(super) tail: u64,
}

/// What decisions on one key have come to, not handed over yet.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) events: Vec<NewEvent>,
    pub(super) touched: Vec<RowKey>,
    pub(super) content: Vec<(RowKey, usize, Value)>,
    pub(super) rows: Vec<RowChange>,
    pub(super) erase: bool,
    pub(super) trim: bool,
    pub(super) retracts: bool,
    pub(super) absent: Vec<RowKey>,
}

impl<A: Aggregate> Held<A> {
    /// Decides and applies. On an error neither state nor `pending` has changed.
    pub(super) fn run(
        &mut self,
        key: &StreamKey,
        command: &A::Command,
        context: &Context,
        command_id: Uuid,
        pending: &mut Pending,
    ) -> Result<A::Reply> {
        let decision = self.state.decide(key, command, context)?;
        let mut encoded = Vec::with_capacity(decision.events.len());
        for event in &decision.events {
            encoded.push(NewEvent {
                event_type: event.event_type(),
                schema: event.schema(),
                payload: encode_event(event)?,
                is_swept: event.is_swept(),
            });
        }
        Ok(self.take(key, decision, encoded, command_id, pending))
    }

    fn take(
        &mut self,
        key: &StreamKey,
        decision: Decision<A>,
        mut encoded: Vec<NewEvent>,
        command_id: Uuid,
        pending: &mut Pending,
    ) -> A::Reply {
        if decision.erase {
            // What this unit decided before the erasure must not outlive it, nor use up versions.
            let undone = i64::try_from(pending.events.len()).unwrap_or(0);
            self.head.version -= undone;
            pending.events.clear();
            pending.content.clear();
            pending.erase = true;
            self.tail = 0;
        }
        for event in &decision.events {
            self.state.apply(event);
            A::touched(key, event, &mut pending.touched);
            self.head = Expected { version: self.head.version + 1, command_id };
            self.tail += 1;
        }
        for (row, column, value) in &decision.content {
            self.state.attach(row, *column, value);
        }
        pending.events.append(&mut encoded);
        pending.content.extend(decision.content);
        pending.rows.extend(decision.rows);
        pending.trim |= decision.trim;
        pending.retracts |= decision.retracts;
        pending.absent.extend(decision.absent);
        decision.reply
    }

    /// What the append writes for this key. `expected` is the head before all that is pending.
    pub(super) fn part(
        &mut self,
        key: &StreamKey,
        stream: &StreamName,
        expected: Expected,
        pending: Pending,
        snapshot_every: u32,
    ) -> Part {
        let Pending { events, mut touched, content, mut rows, erase, trim, .. } = pending;
        touched.sort_unstable();
        touched.dedup();
        for row_key in touched {
            let change = match self.state.row(key, &row_key) {
                Some(mut row) => {
                    for (_, column, value) in content.iter().filter(|(at, ..)| at == &row_key) {
                        // A later command of the unit may have left the content out again.
                        let place = row.values.get_mut(*column);
                        if let Some(place) = place.filter(|place| **place != Value::Null) {
                            *place = value.clone();
                        }
                    }
                    RowChange::Put(row)
                }
                None => RowChange::Delete(row_key),
            };
            rows.push(change);
        }
        let snapshot = ((trim || self.tail >= u64::from(snapshot_every)) && !events.is_empty())
            .then(|| self.snapshot(key))
            .flatten();
        if snapshot.is_some() {
            self.tail = 0;
        }
        Part {
            stream: Arc::clone(stream),
            kind: A::KIND,
            expected,
            events,
            rows,
            snapshot,
            erase,
            trim,
        }
    }

    /// A snapshot of the state. One that can't be encoded is left out: the events are all there.
    pub(super) fn snapshot(&self, key: &StreamKey) -> Option<NewSnapshot> {
        match encode_snapshot(&self.state) {
            Ok(payload) => Some(NewSnapshot { schema: A::SNAPSHOT_SCHEMA, payload }),
            Err(error) => {
                tracing::error!(%key, %error, "no snapshot was taken");
                None
            }
        }
    }
}
