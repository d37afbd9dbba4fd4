//! Given, when, then: what has happened, a command, and the events or the refusal that it comes to.
//!
//! For the tests of any aggregate. Besides the state it keeps the rows that touched keys were
//! written to, so that a test can compare them with the rows of the whole state.

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::{
    Aggregate, ContentRef, Context, Decision, PayloadDecoder, PayloadEncoder, Row, RowChange,
    RowKey, StoredEvent, Value,
};
use crate::base::{Error, Result, StreamKey, Timestamp};

/// The context of a decision at a time: the middle of all chance, no fence, an id of its own.
pub(crate) fn at(millis: i64) -> Context {
    Context {
        now: Timestamp::from_millis(millis),
        id: Uuid::from_u128(u128::from(millis.unsigned_abs())),
        jitter: 0.5,
        generation: 1,
        restored_at: None,
        next_version: 0,
        fence: None,
        records_epoch: 0,
    }
}

/// What has happened to one stream.
#[derive(Clone)]
pub(crate) struct Given<A: Aggregate> {
    key: StreamKey,
    /// The state that it came to.
    pub(crate) state: A,
    /// The version of the last event.
    pub(crate) version: i64,
    /// The rows as the touched keys left them, with their content.
    rows: BTreeMap<RowKey, Row>,
}

/// What a command comes to.
pub(crate) struct Then<A: Aggregate>(Result<Decision<A>>);

/// A stream that these events happened to. Its rows begin empty: events alone have no content.
pub(crate) fn given<A: Aggregate>(key: StreamKey, events: &[A::Event]) -> Given<A> {
    let rows = BTreeMap::new();
    let mut given = Given { key, state: A::default(), version: 0, rows };
    for event in events {
        given.state.apply(event);
        given.version += 1;
    }
    given
}

impl<A: Aggregate + Debug + PartialEq> Given<A>
where
    A::Event: PartialEq,
    A::Reply: PartialEq + Debug,
{
    /// Decides a command and leaves the state as it is.
    pub(crate) fn when(&self, command: &A::Command, context: Context) -> Then<A> {
        let context = Context { next_version: self.version + 1, ..context };
        let decided = self.state.decide(&self.key, command, &context);
        if let Ok(decision) = &decided {
            assert!(decision.events.is_empty() || !A::is_read(command), "a read made events");
        }
        Then(decided)
    }

    /// Carries a command out, which must not be refused, and gives its answer.
    #[track_caller]
    pub(crate) fn done(&mut self, command: &A::Command, context: Context) -> A::Reply {
        match self.when(command, context).0 {
            Ok(decision) => self.commit(decision),
            Err(error) => panic!("{} was refused: {error}", A::command_name(command)),
        }
    }

    /// Carries a command out, or leaves everything as it is when it is refused.
    pub(crate) fn tried(&mut self, command: &A::Command, context: Context) -> Result<A::Reply> {
        self.when(command, context).0.map(|decision| self.commit(decision))
    }

    /// Takes events over with their rows; the answer is only for the type's sake.
    pub(crate) fn happens(&mut self, events: &[A::Event], reply: A::Reply) {
        self.commit(Decision::events(reply, events.to_vec()));
    }

    fn commit(&mut self, decision: Decision<A>) -> A::Reply {
        let mut touched = Vec::new();
        for event in &decision.events {
            self.state.apply(event);
            self.version += 1;
            A::touched(&self.key, event, &mut touched);
            let bytes = event.encode_with(JsonEncoder).unwrap();
            let read = A::Event::decode_with(event.event_type(), event.schema(), Decoder(&bytes));
            assert_eq!(&read.unwrap(), event, "an event comes back as it was written");
        }
        for (row, column, value) in &decision.content {
            self.state.attach(row, *column, value);
        }
        touched.sort();
        touched.dedup();
        let mut stamped = Vec::new();
        for key in touched {
            match self.state.row(&self.key, &key) {
                None => drop(self.rows.remove(&key)),
                Some(row) => stamped.extend(self.put(key, row, &decision.content)),
            }
        }
        for change in decision.rows {
            match change {
                RowChange::Put(row) => drop(self.rows.insert(row.key(), row)),
                RowChange::Delete(key) | RowChange::Take(key) => drop(self.rows.remove(&key)),
            }
        }
        A::with_taken(decision.reply, stamped)
    }

    /// Writes a row; gives it if it was stamped. The stream's version is time enough: it grows.
    fn put(
        &mut self,
        key: RowKey,
        mut row: Row,
        content: &[(RowKey, usize, Value)],
    ) -> Option<Row> {
        assert_eq!(row.key(), key);
        for (column, value) in row.values.iter_mut().enumerate() {
            let given = content.iter().find(|(of, at, _)| *of == key && *at == column);
            if *value == Value::Keep {
                *value = match given {
                    Some((_, _, value)) => value.clone(),
                    None => self.rows.get(&key).expect("a row to keep from").values[column].clone(),
                };
            }
        }
        let stamped = row.stamped(Timestamp::from_millis(self.version));
        let is_stamped = stamped != row;
        self.rows.insert(key, stamped.clone());
        is_stamped.then_some(stamped)
    }

    /// The content of a written row's column is lost.
    pub(crate) fn damage(&mut self, row: &RowKey, column: usize) {
        self.rows.get_mut(row).expect("a row to damage").values[column] = Value::text("damaged");
    }

    /// The stream is loaded anew, from a snapshot and the rows: content that is damaged stays away.
    pub(crate) fn reload(&mut self) {
        self.state = self.loaded();
    }

    fn loaded(&self) -> A {
        let snapshot = serde_json::to_vec(&self.state).unwrap();
        let mut read: A = serde_json::from_slice(&snapshot).unwrap();
        for key in self.state.resident(&self.key) {
            for (column, reference) in self.state.content(&self.key, &key) {
                let value = &self.rows[&key].values[column];
                if reference_of(value) == Some(reference) {
                    read.attach(&key, column, value);
                }
            }
        }
        read
    }

    /// The rows that were written are those of the state, and hold the content that it names; and
    /// a snapshot comes back as it was written.
    #[track_caller]
    pub(crate) fn assert_rows_are_those_of_the_state(&self) {
        let mut keys = self.state.rows(&self.key);
        keys.sort();
        assert!(keys.iter().eq(self.rows.keys()), "{keys:?} {:?}", self.rows.keys());
        for (key, written) in &self.rows {
            let row = self.state.row(&self.key, key).expect("a row of a key of the state");
            let content = self.state.content(&self.key, key);
            for (column, value) in row.values.iter().enumerate() {
                let reference = content.iter().find(|(at, _)| *at == column).map(|(_, of)| *of);
                let held = &written.values[column];
                if *value != Value::Keep {
                    assert_eq!((value, None), (held, reference), "{key:?} {column}");
                } else if row.table.spec().columns[column].stamped {
                    assert!(held.as_int().is_some() && reference.is_none(), "{key:?} {column}");
                } else {
                    let (held, named) = (reference_of(held), reference);
                    assert!(held.is_some() && held == named, "{key:?} {column}");
                }
            }
        }
        let read = self.loaded();
        assert!(read == self.state, "{read:?} {:?}", self.state);
    }

    /// The written row of a key.
    pub(crate) fn written(&self, key: &RowKey) -> Option<&Row> {
        self.rows.get(key)
    }

    /// The written rows.
    pub(crate) fn written_rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }
}

impl<A: Aggregate> Then<A>
where
    A::Event: PartialEq,
    A::Reply: PartialEq + Debug,
{
    /// These events and no other.
    #[track_caller]
    pub(crate) fn then(self, events: &[A::Event]) -> Self {
        let decision = self.0.as_ref().expect("no refusal");
        assert_eq!(decision.events, events);
        self
    }

    /// No event.
    #[track_caller]
    pub(crate) fn then_nothing(self) -> Self {
        self.then(&[])
    }

    /// This answer.
    #[track_caller]
    pub(crate) fn replies(self, reply: A::Reply) -> Self {
        assert_eq!(self.0.as_ref().expect("no refusal").reply, reply);
        self
    }

    /// This refusal, to the last field.
    #[track_caller]
    pub(crate) fn refused(self, error: &Error) {
        let refusal = self.0.expect_err("a refusal");
        assert_eq!(format!("{refusal:?}"), format!("{error:?}"));
    }

    /// An input that is not what the field takes.
    #[track_caller]
    pub(crate) fn refused_input(self, named: &str) {
        match self.0.expect_err("a refusal") {
            Error::InvalidInput { field, .. } => assert_eq!(field, named),
            other => panic!("refused otherwise: {other}"),
        }
    }

    /// The answer.
    #[track_caller]
    pub(crate) fn reply(self) -> A::Reply {
        self.0.expect("no refusal").reply
    }

    /// The events.
    #[track_caller]
    pub(crate) fn events(self) -> Vec<A::Event> {
        self.0.expect("no refusal").events
    }
}

/// The reference of a column's content.
fn reference_of(value: &Value) -> Option<ContentRef> {
    match value {
        Value::Text(text) => Some(ContentRef::of(text)),
        Value::Blob(bytes) => Some(ContentRef::of_bytes(bytes)),
        _ => None,
    }
}

struct JsonEncoder;

impl PayloadEncoder for JsonEncoder {
    fn encode<T: Serialize>(self, value: &T) -> Result<Vec<u8>> {
        Ok(serde_json::to_vec(value).unwrap())
    }
}

struct Decoder<'a>(&'a [u8]);

impl PayloadDecoder for Decoder<'_> {
    fn decode<T: DeserializeOwned>(self) -> Result<T> {
        Ok(serde_json::from_slice(self.0).unwrap())
    }
}
