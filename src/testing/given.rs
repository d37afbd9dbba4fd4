//! Given, when, then: what has happened to one stream, a command, and what it comes to.
//!
//! For the tests of any aggregate, of this crate and of others. Besides the state it keeps the rows that
//! touched keys were written to. It knows no time: a context comes with each command.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "what fails here is an assertion of a test, or the test itself"
)]

use std::collections::BTreeMap;
use std::fmt::{self, Debug};

use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::base::{Error, Result, StreamKey, Timestamp};
use crate::domain::{
    Aggregate, Context, Decision, PayloadDecoder, PayloadEncoder, Row, RowChange, RowKey,
    StoredEvent, Table, Value, exists_refusal,
};

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
    /// The events, for what a failed assertion tells.
    events: Vec<A::Event>,
    /// The rows as the touched keys left them, with their content.
    rows: BTreeMap<RowKey, Row>,
}

/// A stream that these events happened to. Its rows begin empty: events alone have no content.
pub(crate) fn given<A: Aggregate>(key: StreamKey, events: &[A::Event]) -> Given<A> {
    let (events, rows) = (events.to_vec(), BTreeMap::new());
    let mut given = Given { key, state: A::default(), version: 0, events, rows };
    for event in &given.events {
        given.state.apply(event);
        given.version += 1;
    }
    given
}

impl<A: Aggregate + Debug> Given<A>
where
    A::Event: PartialEq,
{
    /// Decides a command and leaves the state as it is.
    pub(crate) fn when(&self, command: &A::Command, context: Context) -> Then<'_, A> {
        let context = Context { next_version: self.version + 1, ..context };
        let decided = self.state.decide(&self.key, command, &context);
        if let Ok(decision) = &decided {
            assert!(decision.events.is_empty() || !A::is_read(command), "a read made events");
        }
        let decided = decided.and_then(|decision| {
            let standing = decision.absent.iter().find(|key| self.rows.contains_key(*key));
            standing.map_or(Ok(()), |key| Err(exists_refusal(key))).map(|()| decision)
        });
        Then { given: self, name: A::command_name(command), context, decided }
    }

    /// Carries a command out, which must not be refused, and gives its answer.
    #[track_caller]
    pub(crate) fn done(&mut self, command: &A::Command, context: Context) -> A::Reply {
        let decision = self.when(command, context).accepted();
        self.commit(decision)
    }

    /// Takes events over with their rows.
    #[track_caller]
    pub(crate) fn happens(&mut self, events: &[A::Event]) {
        self.write(events, &[], Vec::new());
    }

    /// A row of another key stands beside.
    pub(crate) fn put_beside(&mut self, row: Row) {
        self.rows.insert(row.key(), row);
    }

    #[track_caller]
    pub(crate) fn commit(&mut self, decision: Decision<A>) -> A::Reply {
        let taken = self.write(&decision.events, &decision.content, decision.rows);
        A::with_taken(decision.reply, taken)
    }

    /// Gives the rows that were taken, and those that were stamped.
    #[track_caller]
    fn write(
        &mut self,
        events: &[A::Event],
        content: &[(RowKey, usize, Value)],
        changes: Vec<RowChange>,
    ) -> Vec<Row> {
        let mut touched = Vec::new();
        for event in events {
            self.state.apply(event);
            self.version += 1;
            A::touched(&self.key, event, &mut touched);
            let bytes = event.encode_with(JsonEncoder).unwrap();
            let read = A::Event::decode_with(event.event_type(), event.schema(), Decoder(&bytes));
            assert_eq!(&read.unwrap(), event, "an event comes back as it was written");
        }
        self.events.extend_from_slice(events);
        for (row, column, value) in content {
            self.state.attach(row, *column, value);
        }
        touched.sort();
        touched.dedup();
        let mut taken = Vec::new();
        for key in touched {
            match self.state.row(&self.key, &key) {
                None => drop(self.rows.remove(&key)),
                Some(row) => taken.extend(self.put(key, row, content)),
            }
        }
        for change in changes {
            match change {
                RowChange::Put(row) => drop(self.rows.insert(row.key(), row)),
                RowChange::Delete(key) => drop(self.rows.remove(&key)),
                RowChange::Take(key) => taken.extend(self.rows.remove(&key)),
            }
        }
        taken
    }

    /// Writes a row; gives it if it was stamped. The stream's version is time enough: it grows.
    #[track_caller]
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
                *value = match (given, self.rows.get(&key)) {
                    (Some((_, _, value)), _) => value.clone(),
                    (None, Some(standing)) => standing.values[column].clone(),
                    (None, None) => panic!("no event has the content of {key:?}: give its command"),
                };
            }
        }
        let stamped = row.stamped(Timestamp::from_millis(self.version));
        let is_stamped = stamped != row;
        self.rows.insert(key, stamped.clone());
        is_stamped.then_some(stamped)
    }

    /// The rows of a table that hold these columns.
    #[track_caller]
    fn count(&self, table: Table, columns: &[(&str, Value)]) -> usize {
        let spec = table.spec().columns;
        let place = |name: &str| spec.iter().position(|column| column.name == name);
        let places: Vec<(usize, &Value)> = columns
            .iter()
            .map(|(name, value)| {
                let at = place(name).unwrap_or_else(|| panic!("{table:?} has no column {name}"));
                (at, value)
            })
            .collect();
        let holds = |row: &&Row| places.iter().all(|(at, value)| row.values[*at] == **value);
        self.rows.values().filter(|row| row.table == table).filter(holds).count()
    }
}

/// State, events and rows; of a row's content that no event may hold, only that it is there.
impl<A: Aggregate + Debug> fmt::Display for Given<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "stream {}, version {}", self.key.stream_name(), self.version)?;
        writeln!(f, "state: {:#?}", self.state)?;
        writeln!(f, "events:")?;
        for event in &self.events {
            writeln!(f, "  {event:?}")?;
        }
        writeln!(f, "rows:")?;
        for row in self.rows.values() {
            write!(f, "  {}:", row.table.spec().name)?;
            for (column, value) in row.table.spec().columns.iter().zip(&row.values) {
                match value {
                    Value::Null => {}
                    _ if column.row_only => write!(f, " {}=(content)", column.name)?,
                    Value::Int(int) => write!(f, " {}={int}", column.name)?,
                    Value::Text(text) => write!(f, " {}={text}", column.name)?,
                    value => write!(f, " {}={value:?}", column.name)?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// What a command comes to. What is asserted and does not hold panics, and tells the state, the events
/// and the rows that the command came to, or was refused on.
pub struct Then<'a, A: Aggregate> {
    given: &'a Given<A>,
    name: &'static str,
    pub(super) context: Context,
    decided: Result<Decision<A>>,
}

impl<A: Aggregate + Debug> Then<'_, A>
where
    A::Event: PartialEq,
{
    /// Exactly these events.
    #[track_caller]
    pub fn then(self, events: &[A::Event]) -> Self {
        let found = &self.decision().events;
        if found != events {
            self.fail(format_args!("expected {events:#?}\nbut there came {found:#?}"));
        }
        self
    }

    /// No event, and no refusal.
    #[track_caller]
    pub fn then_nothing(self) -> Self {
        self.then(&[])
    }

    /// This answer.
    #[track_caller]
    pub fn replies(self, reply: A::Reply) -> Self
    where
        A::Reply: PartialEq + Debug,
    {
        let found = self.answer();
        if found != reply {
            self.fail(format_args!("expected {reply:#?}\nbut the answer was {found:#?}"));
        }
        self
    }

    /// A refusal with this [code](Error::code).
    #[track_caller]
    pub fn refused(self, code: &str) -> Self {
        let refusal = self.refusal();
        if refusal.code() != code {
            self.fail(format_args!("expected {code}, but was refused with {}", refusal.code()));
        }
        self
    }

    /// This refusal, to the last field.
    #[track_caller]
    pub fn refused_with(self, error: &Error) -> Self {
        let refusal = self.refusal();
        if format!("{refusal:?}") != format!("{error:?}") {
            self.fail(format_args!("expected {error:?}\nbut was refused with {refusal:?}"));
        }
        self
    }

    /// A refusal of an input that is not what this field takes.
    #[track_caller]
    pub fn refused_input(self, named: &str) -> Self {
        match self.refusal() {
            Error::InvalidInput { field, .. } if *field == named => {}
            other => self.fail(format_args!("expected {named} to be refused, not {other:?}")),
        }
        self
    }

    /// A row of the table holds these columns, by their names.
    #[track_caller]
    pub fn row(self, table: Table, columns: &[(&str, Value)]) -> Self {
        if self.after().count(table, columns) == 0 {
            self.fail(format_args!("expected a row of {table:?} with {columns:?}"));
        }
        self
    }

    /// No row of the table holds these columns; the table is empty where none is named.
    #[track_caller]
    pub fn no_row(self, table: Table, columns: &[(&str, Value)]) -> Self {
        if self.after().count(table, columns) > 0 {
            self.fail(format_args!("expected no row of {table:?} with {columns:?}"));
        }
        self
    }

    /// The answer, where it is no refusal.
    #[track_caller]
    pub fn reply(self) -> A::Reply {
        self.answer()
    }

    /// The events, where it is no refusal.
    #[track_caller]
    pub fn events(self) -> Vec<A::Event> {
        self.accepted().events
    }

    #[track_caller]
    fn accepted(self) -> Decision<A> {
        self.decision();
        self.decided.unwrap()
    }

    #[track_caller]
    fn decision(&self) -> &Decision<A> {
        match &self.decided {
            Ok(decision) => decision,
            Err(error) => self.fail(format_args!("was refused with {}: {error}", error.code())),
        }
    }

    #[track_caller]
    fn refusal(&self) -> &Error {
        match &self.decided {
            Ok(decision) => self.fail(format_args!("came to {:#?}", decision.events)),
            Err(error) => error,
        }
    }

    #[track_caller]
    fn answer(&self) -> A::Reply {
        let decision = self.decision();
        if decision.events.is_empty() && decision.rows.is_empty() {
            return decision.reply.clone();
        }
        self.given.clone().commit(decision.clone())
    }

    /// The stream with what the command came to.
    #[track_caller]
    pub(super) fn after(&self) -> Given<A> {
        let mut after = self.given.clone();
        if let Ok(decision) = &self.decided {
            after.commit(decision.clone());
        }
        after
    }

    #[track_caller]
    fn fail(&self, what: fmt::Arguments<'_>) -> ! {
        let (name, now) = (self.name, self.context.now);
        panic!("{name} at {now}: {what}\n\nnow:\n{}", self.after())
    }
}

/// What only the unit tests of the domain ask.
#[cfg(test)]
impl<A: Aggregate + Debug + PartialEq> Given<A>
where
    A::Event: PartialEq,
{
    /// Carries a command out, or leaves everything as it is when it is refused.
    pub(crate) fn tried(&mut self, command: &A::Command, context: Context) -> Result<A::Reply> {
        self.when(command, context).decided.map(|decision| self.commit(decision))
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

/// The reference of a column's content.
#[cfg(test)]
fn reference_of(value: &Value) -> Option<crate::domain::ContentRef> {
    use crate::domain::ContentRef;
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
