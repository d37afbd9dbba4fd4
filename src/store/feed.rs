//! The event feed: catches up with the journal, then follows it, and never skips an event.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tokio::sync::watch;
use uuid::Uuid;

use super::Store;
use crate::base::{Error, Result, StreamKey, StreamKind, Timestamp};
use crate::domain::auth::PendingAuthEvent;
use crate::domain::connector::ConnectorEvent;
use crate::domain::document::DocumentEvent;
use crate::journal::{JournalRecord, decode_event};

/// Events that are read at once.
const EVENTS_PER_READ: u32 = 500;
/// Pause between two looks at a storage that other hosts write to, should no word of theirs come.
const POLL_PAUSE: Duration = Duration::from_secs(1);

/// Which events a reader wants.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Only streams of these kinds; all when empty.
    pub kinds: Vec<StreamKind>,
    /// Only this key's stream.
    pub key: Option<StreamKey>,
}

/// What happened, by the kind of its stream.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// On a document.
    Document(DocumentEvent),
    /// On an owner's connector.
    Connector(ConnectorEvent),
    /// On a pending authorization.
    PendingAuth(PendingAuthEvent),
}

/// A place in the feed: what a reader keeps, as its text, to go on behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FeedCursor {
    /// The generation of the store that gave it. A restore from a backup begins a new one, which
    /// gives positions again, to other events.
    pub generation: i64,
    /// The place in the journal.
    pub position: i64,
}

impl FeedCursor {
    /// Before the first event of any store.
    pub const START: Self = Self { generation: 0, position: 0 };
}

impl fmt::Display for FeedCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.generation, self.position)
    }
}

impl FromStr for FeedCursor {
    type Err = Error;

    /// # Errors
    /// [`Error::InvalidInput`] for the field `cursor` when it is not the text of one.
    fn from_str(text: &str) -> Result<Self> {
        let number = |text: &str| text.parse::<i64>().ok().filter(|number| *number >= 0);
        let cursor = text.split_once('-').and_then(|(generation, position)| {
            Some(Self { generation: number(generation)?, position: number(position)? })
        });
        let canonical = cursor.filter(|cursor| cursor.to_string() == text);
        canonical.ok_or_else(|| Error::invalid("cursor", "expected a generation and a position"))
    }
}

/// What a feed gives.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FeedItem {
    /// An event.
    Event {
        /// Its place: where the next feed goes on.
        cursor: FeedCursor,
        /// The stream's key.
        key: StreamKey,
        /// Its place in the stream.
        version: i64,
        /// When it was written.
        recorded_at: Timestamp,
        /// The command that wrote it.
        command_id: Uuid,
        /// What happened.
        event: Box<Event>,
    },
    /// A document was swept, or a connection forgotten: the events of its stream before this one
    /// are erased.
    Swept {
        /// Its place.
        cursor: FeedCursor,
        /// The key of the document or connection.
        key: StreamKey,
        /// Its place in the stream.
        version: i64,
    },
    /// The reader's cursor is none of this store: it was given before the store was restored from a
    /// backup, or the file is a copy that was not opened as restored. What was read behind the
    /// backup has not happened here, and those positions are given to other events. The feed goes on
    /// from the start, so a reader that reads it again misses nothing. One that knows a position at
    /// or before the backup may open a feed behind it instead, with the generation of this cursor.
    Restored {
        /// The start, in this generation.
        cursor: FeedCursor,
    },
    /// Retention has cut events at positions up to this one. The ones that are left follow.
    Trimmed {
        /// The newest position that may be missing.
        up_to: i64,
    },
    /// An event that this program cannot read. The feed goes on behind it.
    Unreadable {
        /// Its place.
        cursor: FeedCursor,
        /// Why.
        error: Error,
    },
}

/// A reader of the journal. See [`Store::events`].
pub struct EventStream {
    store: Store,
    filter: EventFilter,
    generation: i64,
    position: i64,
    /// What the reader came with, until it is known to be of this store.
    unchecked: Option<FeedCursor>,
    trimmed_told: i64,
    committed: watch::Receiver<i64>,
    ready: VecDeque<FeedItem>,
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream").field("position", &self.position).finish_non_exhaustive()
    }
}

impl Store {
    /// The events behind `after` ([`FeedCursor::START`] for all), oldest first; then those that follow,
    /// for ever. No event is skipped. Where events were erased or cut, the feed says so in their place,
    /// and where `after` is of another life of the store, it says that first.
    ///
    /// ```
    /// # use connector_store::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let store = Store::builder().memory(&MemoryJournal::new()).open().await?;
    /// # store.document(&DocumentId::new("doc-1")?).begin_document_sweep().await?;
    /// // Where this reader has come to, as it keeps it: a crash before the work is done repeats it.
    /// let mut kept = FeedCursor::START.to_string();
    /// let mut feed = store.events(kept.parse()?, EventFilter::default());
    /// if let FeedItem::Event { cursor, key, event, .. } = feed.next().await? {
    ///     assert_eq!(key, StreamKey::Document(DocumentId::new("doc-1")?));
    ///     assert!(matches!(*event, Event::Document(_)));
    ///     kept = cursor.to_string();
    /// }
    /// assert_eq!(kept.parse::<FeedCursor>()?.position, 1);
    /// # store.close().await
    /// # }
    /// ```
    #[must_use]
    pub fn events(&self, after: FeedCursor, filter: EventFilter) -> EventStream {
        EventStream {
            store: self.clone(),
            filter,
            generation: self.storage().generation(),
            position: after.position,
            unchecked: Some(after),
            trimmed_told: after.position,
            committed: self.storage().committed(),
            ready: VecDeque::new(),
        }
    }
}

impl EventStream {
    /// How far this feed has read. That is ahead of what it has given, unless [`Self::next_ready`]
    /// has just given none; then it is where the next feed goes on, past what the filter left out.
    #[must_use]
    pub const fn cursor(&self) -> FeedCursor {
        FeedCursor { generation: self.generation, position: self.position }
    }

    /// The next item, once there is one.
    ///
    /// # Errors
    /// Storage errors, after which the call may be repeated; [`Error::Closed`] once the store is.
    ///
    /// # Cancel safety
    /// A dropped call loses nothing.
    pub async fn next(&mut self) -> Result<FeedItem> {
        loop {
            if let Some(item) = self.next_ready().await? {
                return Ok(item);
            }
            let time = self.store.env().time.clone();
            let is_shared = self.store.storage().is_shared();
            tokio::select! {
                biased;
                changed = self.committed.changed() => changed.map_err(|_| Error::Closed)?,
                () = self.store.env().closing() => return Err(Error::Closed),
                () = time.sleep(POLL_PAUSE), if is_shared => {}
            }
        }
    }

    /// The next item that is there already, or none.
    ///
    /// # Errors
    /// As [`Self::next`].
    ///
    /// # Cancel safety
    /// A dropped call loses nothing.
    pub async fn next_ready(&mut self) -> Result<Option<FeedItem>> {
        while self.ready.is_empty() {
            self.store.env().check_open()?;
            if self.unchecked.is_some() {
                self.check_cursor().await?;
                continue;
            }
            // Marked before the read, so that a commit during it is not slept through.
            self.committed.borrow_and_update();
            let (env, storage) = (self.store.env(), self.store.storage());
            let read = storage.events(self.position, EVENTS_PER_READ);
            let records = env.answer_in_time(read).await?;
            let trimmed = env.answer_in_time(storage.trimmed_up_to()).await?;
            // What was cut behind the reader, after it had read it, is not missing to it.
            if trimmed > self.trimmed_told.max(self.position) {
                self.trimmed_told = trimmed;
                self.ready.push_back(FeedItem::Trimmed { up_to: trimmed });
            }
            let Some(last) = records.last() else { break };
            self.position = last.position;
            let wanted = records.iter().filter_map(|record| self.item(record));
            let wanted: Vec<FeedItem> = wanted.collect();
            self.ready.extend(wanted);
        }
        Ok(self.ready.pop_front())
    }

    /// A cursor of another generation, or of a position that was never given here, is of a future that
    /// this store never saw.
    async fn check_cursor(&mut self) -> Result<()> {
        let (env, storage) = (self.store.env(), self.store.storage());
        let last = env.answer_in_time(storage.last_position()).await?;
        let is_known = |after: FeedCursor| {
            after.position == 0 || (after.generation == self.generation && after.position <= last)
        };
        if self.unchecked.take().is_none_or(is_known) {
            return Ok(());
        }
        (self.position, self.trimmed_told) = (0, 0);
        self.ready.push_back(FeedItem::Restored { cursor: self.cursor() });
        Ok(())
    }

    fn item(&self, record: &JournalRecord) -> Option<FeedItem> {
        let cursor = FeedCursor { generation: self.generation, position: record.position };
        let kind = StreamKind::from_number(record.kind);
        let wanted_kinds = &self.filter.kinds;
        if !wanted_kinds.is_empty() && !kind.is_some_and(|kind| wanted_kinds.contains(&kind)) {
            return None;
        }
        let key = StreamKey::from_stream_name(&record.stream);
        if self.filter.key.is_some() && self.filter.key != key {
            return None;
        }
        let (Some(key), Some(kind)) = (key, kind) else {
            let error = Error::damaged(format_args!("an event of unknown kind {}", record.kind));
            return Some(FeedItem::Unreadable { cursor, error });
        };
        let (number, schema, payload) = (record.event_type, record.schema, &record.payload);
        let event = match kind {
            StreamKind::Document => decode_event(number, schema, payload).map(Event::Document),
            StreamKind::Connector => decode_event(number, schema, payload).map(Event::Connector),
            StreamKind::Auth => decode_event(number, schema, payload).map(Event::PendingAuth),
        };
        let version = record.version;
        Some(match event {
            Ok(
                Event::Document(DocumentEvent::Swept)
                | Event::Connector(ConnectorEvent::ConnectionForgotten(_)),
            ) => FeedItem::Swept { cursor, key, version },
            Ok(event) => FeedItem::Event {
                cursor,
                key,
                version,
                recorded_at: record.recorded_at,
                command_id: record.command_id,
                event: Box::new(event),
            },
            Err(error) => FeedItem::Unreadable { cursor, error },
        })
    }
}
