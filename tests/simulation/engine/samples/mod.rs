//! What a run was like: counts, and how they went over simulated time, in room that does not grow with
//! the run but for leases and blows. It judges nothing, and the run does not depend on it.

pub mod keys;
pub mod leases;
pub mod timeline;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use connector_store::domain::connector::ConnectorEvent;
use connector_store::domain::document::DocumentEvent;
use connector_store::journal::Append;
use connector_store::testing::SimClock;
use connector_store::{Clock as _, Error, ErrorClass, Event, Result};

use super::audit::Written;
use leases::Leases;
use timeline::Timeline;

/// What a call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Refused,
    /// Nothing happened, and it may be tried again.
    Retryable,
    Unknown,
}

impl Outcome {
    pub const ALL: [Self; 4] = [Self::Done, Self::Refused, Self::Retryable, Self::Unknown];

    fn of<T>(result: &Result<T>) -> Self {
        match result.as_ref().map_err(Error::class) {
            Ok(_) => Self::Done,
            Err(ErrorClass::Refused) => Self::Refused,
            Err(ErrorClass::Unknown) => Self::Unknown,
            Err(_) => Self::Retryable,
        }
    }
}

/// What became of something that was missing at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// It was swept: the document itself is gone.
    Swept,
    Confirmed,
    /// It was there after all.
    Withdrawn,
    Deferred,
    Failed,
}

impl Sweep {
    pub const ALL: [Self; 5] =
        [Self::Swept, Self::Confirmed, Self::Withdrawn, Self::Deferred, Self::Failed];

    /// What the event tells of it, and of how many.
    fn of(event: &Event) -> Option<(Self, usize)> {
        Some(match event {
            Event::Document(DocumentEvent::Swept) => (Self::Swept, 1),
            Event::Connector(event) => match event {
                ConnectorEvent::CandidateConfirmed(_) => (Self::Confirmed, 1),
                ConnectorEvent::CandidatesWithdrawn(gone) => {
                    (Self::Withdrawn, gone.documents.len())
                }
                ConnectorEvent::CandidateDeferred(_) => (Self::Deferred, 1),
                ConnectorEvent::CandidateApplyFailed(_) => (Self::Failed, 1),
                _ => return None,
            },
            _ => return None,
        })
    }
}

/// What is done to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    Kill,
    Pause,
    Cut,
}

impl Blow {
    pub const ALL: [Self; 3] = [Self::Kill, Self::Pause, Self::Cut];
}

/// From a blow to the recovery.
#[derive(Clone, Debug)]
pub struct Band {
    pub host: usize,
    pub blow: Blow,
    pub from: Duration,
    /// None while it lasts.
    pub to: Option<Duration>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Samples {
    pub timeline: Timeline,
    /// Of each kind of call, named by what stands before the colon, how often it came to what.
    pub calls: BTreeMap<String, [u64; Outcome::ALL.len()]>,
    pub bands: Vec<Band>,
    pub leases: Leases,
    /// How often each rule was held.
    pub held: BTreeMap<&'static str, u64>,
    /// Commands whose outcome was unknown and that were brought to an end.
    pub settled: u64,
    /// From then on nothing went wrong any more.
    pub healed: Option<Duration>,
    /// Faults of each host's storage in its present life that are counted.
    faults_seen: BTreeMap<(usize, u64), u64>,
}

/// Takes samples. Clones are one recorder.
#[derive(Clone, Debug)]
pub struct Recorder {
    samples: Arc<Mutex<Samples>>,
    clock: SimClock,
    keys: keys::ActiveKeys,
}

impl Recorder {
    pub fn new(clock: SimClock, keys: keys::ActiveKeys) -> Self {
        Self { samples: Arc::default(), clock, keys }
    }

    fn samples(&self) -> MutexGuard<'_, Samples> {
        self.samples.lock().unwrap()
    }

    /// What was recorded, and a new beginning.
    pub fn take(&self) -> Samples {
        std::mem::take(&mut self.samples())
    }

    /// A call has ended.
    pub fn call<T>(&self, what: &str, result: &Result<T>) {
        let (outcome, keys) = (Outcome::of(result), self.keys.count());
        let kind = what.split(": ").next().unwrap_or_default();
        let mut samples = self.samples();
        if !samples.calls.contains_key(kind) {
            samples.calls.insert(kind.to_owned(), Default::default());
        }
        samples.calls.get_mut(kind).unwrap()[outcome as usize] += 1;
        let bin = samples.timeline.at(self.clock.monotonic());
        bin.calls[outcome as usize] += 1;
        bin.active_keys = bin.active_keys.max(keys);
    }

    /// A host's storage has had so many faults in this life.
    pub fn faults(&self, host: usize, life: u64, faults: u64) {
        let mut samples = self.samples();
        let seen = samples.faults_seen.entry((host, life)).or_default();
        let new = faults - std::mem::replace(seen, faults);
        if new > 0 {
            samples.timeline.at(self.clock.monotonic()).faults += new;
        }
    }

    /// A batch is written.
    pub fn batch(&self, batch: &[Append]) {
        let mut samples = self.samples();
        let bin = samples.timeline.at(self.clock.monotonic());
        let size = batch.len() as u64;
        bin.batches += 1;
        bin.appends += size;
        bin.largest_batch = bin.largest_batch.max(size);
    }

    /// An event is in the journal.
    pub fn written(&self, written: &Written) {
        let now = self.clock.monotonic();
        let age = self.clock.wall().as_millis() - written.at.as_millis();
        let at = now.saturating_sub(Duration::from_millis(age.max(0).unsigned_abs()));
        let mut samples = self.samples();
        samples.leases.take(at, written);
        if let Some((sweep, count)) = Sweep::of(&written.event) {
            samples.timeline.at(at).sweeps[sweep as usize] += count as u64;
        }
    }

    /// A rule was held.
    pub fn held(&self, rule: &'static str) {
        *self.samples().held.entry(rule).or_default() += 1;
    }

    /// A command whose outcome was unknown is brought to an end.
    pub fn settled(&self) {
        let mut samples = self.samples();
        samples.settled += 1;
        samples.timeline.at(self.clock.monotonic()).settled += 1;
    }

    /// A host is struck. What strikes it twice ends once.
    pub fn down(&self, host: usize, blow: Blow) {
        let from = self.clock.monotonic();
        let mut samples = self.samples();
        if samples.open(host, blow).is_none() {
            samples.bands.push(Band { host, blow, from, to: None });
        }
    }

    /// It has recovered, if it was struck.
    pub fn up(&self, host: usize, blow: Blow) {
        let now = self.clock.monotonic();
        if let Some(band) = self.samples().open(host, blow) {
            band.to = Some(now);
        }
    }

    /// Nothing goes wrong from now on.
    pub fn healed(&self) {
        let now = self.clock.monotonic();
        let mut samples = self.samples();
        samples.healed = Some(now);
        samples.timeline.at(now);
        samples.timeline.afterwards = Some(Box::default());
    }
}

impl Samples {
    fn open(&mut self, host: usize, blow: Blow) -> Option<&mut Band> {
        let is_it = |band: &&mut Band| band.host == host && band.blow == blow && band.to.is_none();
        // At most one of a kind is open for each host, and the open ones are among the last.
        self.bands.iter_mut().rev().take(256).find(is_it)
    }
}
