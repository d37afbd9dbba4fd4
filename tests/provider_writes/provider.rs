//! A simulated provider: it counts the writes that took effect, answers or not, and shows them at
//! once or late.
//!
//! It knows nothing of the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use connector_store::testing::SimClock;
use connector_store::{Clock, OperationId, SourceId};

/// What becomes of the first request of an operation. Later ones go well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is done and answered.
    Good,
    /// It is done; the caller gets an error.
    AnswerLost,
    /// It is done; the answer comes long after the permit has ended.
    AnswerLate,
    /// It is done; the answer is 503.
    BusyButDone,
    /// It is not done; the answer is 503.
    BusyNotDone,
    /// The connection is refused.
    Offline,
    /// The answer is 429: definitely not done.
    RateLimited,
    /// It is done, the answer is lost, and the first two reads meet a provider that is offline.
    LostThenOffline,
    /// It is lost on its way, and the first two reads meet a provider that is offline.
    DroppedThenOffline,
    /// The answer is 400: it will never be done.
    Rejected,
}

impl Mode {
    pub const ALL: [Self; 10] = [
        Self::Good,
        Self::AnswerLost,
        Self::AnswerLate,
        Self::BusyButDone,
        Self::BusyNotDone,
        Self::Offline,
        Self::RateLimited,
        Self::LostThenOffline,
        Self::DroppedThenOffline,
        Self::Rejected,
    ];

    const fn is_done(self) -> bool {
        matches!(
            self,
            Self::Good
                | Self::AnswerLost
                | Self::AnswerLate
                | Self::BusyButDone
                | Self::LostThenOffline
        )
    }

    /// How many writes take effect in the end.
    pub const fn writes(self) -> u32 {
        if matches!(self, Self::Rejected) { 0 } else { 1 }
    }
}

/// The condition that a write bears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    None,
    /// `If-None-Match: *`: refused when the entity is there.
    IfNoneMatch,
    /// The operation's id: a repeat gets the first answer.
    IdempotencyKey,
}

/// What a write is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Written {
        version: String,
    },
    /// Nobody can say whether it was done: no answer, or one that does not tell.
    Unknown,
    /// The request did not reach the provider, or was turned away: not done.
    NotNow,
    Never,
}

struct Entity {
    by: OperationId,
    version: String,
    visible_at: Duration,
}

#[derive(Default)]
struct Inner {
    entities: HashMap<SourceId, Entity>,
    /// Writes that took effect.
    writes: HashMap<OperationId, u32>,
    requests: HashMap<OperationId, u32>,
    reads: HashMap<OperationId, u32>,
    modes: HashMap<OperationId, Mode>,
}

/// How the provider is, for all its entities.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    pub condition: Condition,
    /// How long a write is not shown.
    pub hides_for: Duration,
    /// How long an answer to a read takes; what it says is of its beginning.
    pub read_takes: Duration,
}

impl Default for Manner {
    fn default() -> Self {
        Self { condition: Condition::None, hides_for: Duration::ZERO, read_takes: Duration::ZERO }
    }
}

/// Clones are one provider.
#[derive(Clone)]
pub struct Provider {
    inner: Arc<Mutex<Inner>>,
    clock: SimClock,
    manner: Manner,
}

impl Provider {
    pub fn new(clock: &SimClock, manner: Manner) -> Self {
        Self { inner: Arc::default(), clock: clock.clone(), manner }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    pub fn set_mode(&self, operation: &OperationId, mode: Mode) {
        self.lock().modes.insert(operation.clone(), mode);
    }

    /// Takes a write. The request's own time-out is `within`.
    pub fn write(&self, operation: &OperationId, at: &SourceId, within: Duration) -> Answer {
        let mut inner = self.lock();
        let nth = inner.requests.entry(operation.clone()).or_default();
        *nth += 1;
        let standing = inner.modes.get(operation).copied().unwrap_or(Mode::Good);
        let is_first = inner.requests[operation] == 1;
        let mode = if is_first || standing == Mode::Rejected { standing } else { Mode::Good };
        let version = if mode.is_done() { self.apply(&mut inner, operation, at) } else { None };
        drop(inner);
        match (mode, version) {
            (Mode::Good, Some(version)) => Answer::Written { version },
            (Mode::AnswerLate, _) => {
                self.clock.advance(within);
                Answer::Unknown
            }
            (Mode::Offline | Mode::RateLimited, _) => Answer::NotNow,
            (Mode::Rejected, _) => Answer::Never,
            // Also of a condition that failed: it may be the write itself that made it fail.
            _ => Answer::Unknown,
        }
    }

    fn apply(&self, inner: &mut Inner, by: &OperationId, at: &SourceId) -> Option<String> {
        match (self.manner.condition, inner.entities.get(at)) {
            (Condition::IfNoneMatch, Some(_)) => return None,
            (Condition::IdempotencyKey, Some(entity)) if &entity.by == by => {
                return Some(entity.version.clone());
            }
            _ => {}
        }
        *inner.writes.entry(by.clone()).or_default() += 1;
        let version = format!("{by}-v{}", inner.writes[by]);
        let visible_at = self.clock.monotonic() + self.manner.hides_for;
        let entity = Entity { by: by.clone(), version: version.clone(), visible_at };
        inner.entities.insert(at.clone(), entity);
        Some(version)
    }

    /// The version that `operation` has written, if it is shown; an error while it is offline.
    pub fn read(&self, operation: &OperationId, at: &SourceId) -> Result<Option<String>, ()> {
        let mut inner = self.lock();
        let nth = inner.reads.entry(operation.clone()).or_default();
        *nth += 1;
        let is_early = *nth <= 2;
        let mode = inner.modes.get(operation).copied().unwrap_or(Mode::Good);
        if is_early && matches!(mode, Mode::LostThenOffline | Mode::DroppedThenOffline) {
            return Err(());
        }
        let now = self.clock.monotonic();
        let entity = inner.entities.get(at).filter(|entity| &entity.by == operation);
        let shown = entity.filter(|entity| entity.visible_at <= now);
        let version = shown.map(|entity| entity.version.clone());
        drop(inner);
        self.clock.advance(self.manner.read_takes);
        Ok(version)
    }

    pub fn writes(&self, operation: &OperationId) -> u32 {
        self.lock().writes.get(operation).copied().unwrap_or(0)
    }

    pub fn requests(&self, operation: &OperationId) -> u32 {
        self.lock().requests.get(operation).copied().unwrap_or(0)
    }

    /// The version that stands.
    pub fn version(&self, at: &SourceId) -> Option<String> {
        self.lock().entities.get(at).map(|entity| entity.version.clone())
    }
}
