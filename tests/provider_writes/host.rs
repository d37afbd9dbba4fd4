//! A host that writes to the provider by the store's protocol, one step at a time, so that a test
//! can stop it between any two of them.

use std::time::Duration;

use connector_store::testing::SimClock;
use connector_store::{
    Claim, ClaimedOperation, Clock, DeferReason, DocumentId, Error, Holder, OperationPhase,
    OperationRecord, OperationRequest, Result, SourceId, Store, Timestamp,
};

use crate::common::*;
use crate::provider::{Answer, Condition, Manner, Mode, Provider};

/// How long a host waits for a provider that is offline.
const PAUSE: Duration = Duration::from_secs(3);
/// More steps than any schedule needs.
const MAX_STEPS: u32 = 80;

/// What is to be written.
#[derive(Clone, Debug)]
pub struct Task {
    pub document: DocumentId,
    pub source_id: SourceId,
    pub request: OperationRequest,
}

impl Task {
    pub fn new(name: impl std::fmt::Display, visibility_delay: Duration) -> Self {
        let request = OperationRequest { visibility_delay, ..request(format!("op-{name}")) };
        Self { document: document(&name), source_id: source(&name), request }
    }
}

/// The end of a permit, on the host's monotonic clock.
type Until = Duration;

/// What the host has in hand: what it did last, and so what it does next.
#[derive(Clone, Debug)]
pub enum Hand {
    Nothing,
    MayMark(ClaimedOperation),
    /// The lease ran out before the mark.
    Expired(ClaimedOperation),
    MaySend(ClaimedOperation, Until),
    /// The permit was looked at, and the request leaves next.
    AtTheSocket(ClaimedOperation, Until),
    Answered(ClaimedOperation, Answer),
    MustAsk(ClaimedOperation),
    Asking(ClaimedOperation),
    Asked(ClaimedOperation, Option<String>),
    /// The provider can't be asked now, or what it said proves nothing yet.
    Later(ClaimedOperation, DeferReason, Duration),
    Done(OperationRecord),
}

/// What a step came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Made,
    /// Nothing can be done before then.
    Waits(Timestamp),
    Done,
}

pub struct Host {
    pub store: Store,
    pub clock: SimClock,
    pub provider: Provider,
    pub name: Holder,
    pub task: Task,
    pub hand: Hand,
}

impl Host {
    pub fn new(
        store: &Store,
        clock: &SimClock,
        provider: &Provider,
        name: &str,
        task: &Task,
    ) -> Self {
        Self {
            store: store.clone(),
            clock: clock.clone(),
            provider: provider.clone(),
            name: holder(name),
            task: task.clone(),
            hand: Hand::Nothing,
        }
    }

    /// One command or one request.
    pub async fn step(&mut self) -> Step {
        let hand = std::mem::replace(&mut self.hand, Hand::Nothing);
        match self.next(hand).await {
            Ok(Hand::Done(record)) => {
                self.hand = Hand::Done(record);
                Step::Done
            }
            Ok(hand) => {
                self.hand = hand;
                Step::Made
            }
            // Somebody else has taken it: what is in hand is worth nothing.
            Err(Error::LeaseLost { .. }) => Step::Made,
            Err(Error::OperationBusy { expires_at, .. }) => Step::Waits(expires_at),
            Err(Error::Deferred { not_before, .. }) => Step::Waits(not_before),
            Err(error) => panic!("{error}"),
        }
    }

    async fn next(&self, hand: Hand) -> Result<Hand> {
        let id = &self.task.request.operation_id;
        Ok(match hand {
            Hand::Nothing => self.claim().await?,
            Hand::MayMark(claimed) => {
                let called_at = self.clock.monotonic();
                match claimed.mark_send_started().await {
                    Ok(permit) => Hand::MaySend(claimed, called_at + permit.send_within),
                    Err(Error::LeaseExpired { .. }) => Hand::Expired(claimed),
                    Err(Error::ReconcileFirst { .. }) => {
                        claimed.record_unknown().await?;
                        Hand::MustAsk(claimed)
                    }
                    Err(error) => return Err(error),
                }
            }
            Hand::Expired(claimed) => Hand::MayMark(claimed.renew(TTL).await?),
            Hand::MaySend(claimed, until) if self.clock.monotonic() > until => {
                Hand::Answered(claimed, Answer::Unknown)
            }
            Hand::MaySend(claimed, until) => Hand::AtTheSocket(claimed, until),
            Hand::AtTheSocket(claimed, until) => {
                let within = until.saturating_sub(self.clock.monotonic());
                let answer = self.provider.write(id, &self.task.source_id, within);
                Hand::Answered(claimed, answer)
            }
            Hand::Answered(claimed, answer) => self.record(claimed, answer).await?,
            Hand::MustAsk(claimed) => {
                claimed.begin_reconcile_read().await?;
                Hand::Asking(claimed)
            }
            Hand::Asking(claimed) => match self.provider.read(id, &self.task.source_id) {
                Ok(found) => Hand::Asked(claimed, found),
                Err(()) => Hand::Later(claimed, DeferReason::Offline, PAUSE),
            },
            Hand::Asked(claimed, Some(version)) => self.commit(claimed, &version).await?,
            Hand::Asked(claimed, None) => match claimed.record_not_written().await {
                Ok(()) => Hand::MayMark(claimed),
                Err(Error::ReconcileTooEarly { not_before, .. }) => {
                    let left = not_before.as_millis() - self.clock.wall().as_millis() + 1;
                    let by = Duration::from_millis(u64::try_from(left).unwrap_or(0));
                    Hand::Later(claimed, DeferReason::Dependency, by)
                }
                Err(error) => return Err(error),
            },
            Hand::Later(claimed, reason, by) => {
                claimed.defer(reason, by, false).await?;
                Hand::Nothing
            }
            Hand::Done(record) => Hand::Done(record),
        })
    }

    async fn claim(&self) -> Result<Hand> {
        let document = self.store.document(&self.task.document);
        Ok(match document.claim_operation(&self.task.request, &self.name, TTL).await? {
            Claim::Attempt(claimed) => Hand::MayMark(claimed),
            Claim::Reconcile(claimed) => Hand::MustAsk(claimed),
            Claim::Finished(record) => Hand::Done(record),
        })
    }

    async fn record(&self, claimed: ClaimedOperation, answer: Answer) -> Result<Hand> {
        Ok(match answer {
            Answer::Written { version } => self.commit(claimed, &version).await?,
            Answer::Unknown => {
                claimed.record_unknown().await?;
                Hand::MustAsk(claimed)
            }
            Answer::NotNow => {
                claimed.defer(DeferReason::Offline, PAUSE, true).await?;
                Hand::Nothing
            }
            Answer::Never => {
                claimed.finalize_dead("400").await?;
                self.finished().await?
            }
        })
    }

    async fn commit(&self, claimed: ClaimedOperation, version: &str) -> Result<Hand> {
        let watch = expectation();
        claimed.finalize_committed(&self.task.source_id, Some(version), Some(&watch)).await?;
        self.finished().await
    }

    async fn finished(&self) -> Result<Hand> {
        let record = self.store.operation(&self.task.request.operation_id).await?;
        Ok(Hand::Done(record.unwrap()))
    }

    /// Makes `steps` steps, and waits where there is nothing to do. False when it was done before.
    pub async fn make(&mut self, steps: u32) -> bool {
        for _ in 0..steps {
            match self.step().await {
                Step::Made => {}
                Step::Waits(until) => wait_until(&self.clock, until),
                Step::Done => return false,
            }
        }
        true
    }

    /// Goes on to the end.
    pub async fn finish(&mut self) -> OperationRecord {
        assert!(!self.make(MAX_STEPS).await, "{:?} never ends: {:?}", self.task, self.hand);
        match &self.hand {
            Hand::Done(record) => record.clone(),
            hand => panic!("{hand:?}"),
        }
    }
}

fn wait_until(clock: &SimClock, until: Timestamp) {
    let left = until.as_millis() - clock.wall().as_millis();
    clock.advance(Duration::from_millis(u64::try_from(left).unwrap_or(0)));
}

/// What must be so in the end, whatever came between: the outcome is recorded as the provider has
/// it, and the replay of the finished id gets it and writes nothing.
pub async fn assert_finished(host: &Host, mode: Mode, record: &OperationRecord) {
    let (task, provider) = (&host.task, &host.provider);
    let id = &task.request.operation_id;
    match &record.operation.phase {
        OperationPhase::Committed { source_id, source_version } => {
            assert_eq!(mode.writes(), 1, "{task:?}");
            assert_eq!(source_id, &task.source_id);
            assert_eq!(source_version, &provider.version(&task.source_id), "{task:?}");
            let watch = host.store.document(&task.document).watch().await.unwrap().unwrap();
            assert_eq!(watch.watch.written_hlc, stamp(1_000), "the watch came with the commit");
        }
        OperationPhase::Dead { error } => {
            assert_eq!((mode, error.as_str()), (Mode::Rejected, "400"))
        }
        phase => panic!("{phase:?}"),
    }
    let before = (provider.writes(id), provider.requests(id), host.store.stats().events);
    let mut replay = Host::new(&host.store, &host.clock, provider, "replay", task);
    assert_eq!(replay.step().await, Step::Done);
    let Hand::Done(again) = &replay.hand else { panic!("{:?}", replay.hand) };
    assert_eq!(again, record, "a replay gets the recorded result");
    assert_eq!(host.store.operation(id).await.unwrap().as_ref(), Some(record));
    let after = (provider.writes(id), provider.requests(id), host.store.stats().events);
    assert_eq!(after, before, "a replay writes nothing");
}

/// The ways of a provider to be, as far as a host can cope with them.
pub fn manners(condition: Condition) -> [Manner; 3] {
    let plain = Manner { condition, ..Manner::default() };
    [plain, Manner { hides_for: HIDES_FOR, ..plain }, Manner { read_takes: TTL + PAUSE, ..plain }]
}

/// How long a provider hides a write that shows writes late.
pub const HIDES_FOR: Duration = Duration::from_secs(5);

/// Amounts of time: none, less than a lease, past the lease, past the permit and what is hidden.
pub const GAPS: [Duration; 4] =
    [Duration::ZERO, Duration::from_secs(4), Duration::from_secs(11), Duration::from_secs(16)];
