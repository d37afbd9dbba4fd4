//! Verification of signed records: parse, key, policy, signature, and a bounded memory of tokens
//! that were found valid.
//!
//! The work of a miss is done on threads of its own: not on the caller's executor, in no key's
//! mailbox, not on the writer. It knows no document and no rule of copies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_rt::ArbiterHandle;
use quick_cache::sync::Cache;
use tokio::sync::oneshot;

use super::clock::{StoreTime, within};
use super::life::Standing;
use super::telemetry;
use crate::base::planted::{PlantedBug, is_planted};
use crate::base::{Digest, Error, RecordFault, Result, StreamKey, Timestamp};
use crate::domain::document::UnverifiedCopy;
use crate::records::{
    DEFAULT_MAX_DRIFT, KeyUnavailable, MethodRegistry, OwnerOnly, ParsedRecord, PublicKey,
    RecordLimits, SignedRecord, SignerPolicy, VerifiedRecord, parse, verify,
};

/// Tokens of which it is remembered that they are valid.
const DEFAULT_VERIFIED_TOKENS: usize = 65_536;
/// Largest record whose digests are computed on the caller's executor: some ten microseconds.
const MAX_INLINE_BYTES: usize = 16 << 10;
/// A standing copy was held to the limits when it was put: a store that is opened with lower ones
/// must not drop it.
const NO_LIMITS: RecordLimits =
    RecordLimits { max_token_bytes: usize::MAX, max_payload_bytes: usize::MAX };

/// What a record is held to.
#[derive(Clone)]
pub(crate) struct RecordRules {
    pub(crate) registry: Option<Arc<dyn MethodRegistry>>,
    pub(crate) policy: Arc<dyn SignerPolicy>,
    pub(crate) limits: RecordLimits,
    pub(crate) max_drift: Duration,
    pub(crate) verified_tokens: usize,
}

impl Default for RecordRules {
    fn default() -> Self {
        Self {
            registry: None,
            policy: Arc::new(OwnerOnly),
            limits: RecordLimits::default(),
            max_drift: DEFAULT_MAX_DRIFT,
            verified_tokens: DEFAULT_VERIFIED_TOKENS,
        }
    }
}

/// A record that is valid under the keys and signers of an epoch.
#[derive(Clone)]
pub(crate) struct Verified {
    pub(crate) record: Arc<VerifiedRecord>,
    pub(crate) epoch: u64,
    /// A put of it is durable, and nothing was taken back since then, while this holds.
    standing: Option<Standing>,
}

impl Verified {
    /// Putting it once more would change nothing.
    pub(crate) fn still_stands(&self) -> bool {
        self.standing.as_ref().is_some_and(Standing::holds)
    }
}

/// See the module.
pub(crate) struct Verifier {
    shared: Arc<Shared>,
    threads: Vec<ArbiterHandle>,
    turn: AtomicUsize,
}

/// What the caller's side has in common with the threads.
struct Shared {
    rules: RecordRules,
    time: StoreTime,
    limit: Duration,
    /// By token and epoch.
    known: Cache<(Digest, u64), Verified>,
}

impl Verifier {
    /// `limit` is how long a verification may take.
    pub(super) fn new(
        rules: RecordRules,
        time: StoreTime,
        limit: Duration,
        threads: Vec<ArbiterHandle>,
    ) -> Self {
        let known = Cache::new(rules.verified_tokens);
        let shared = Arc::new(Shared { rules, time, limit, known });
        Self { shared, threads, turn: AtomicUsize::new(0) }
    }

    /// The epoch of keys and signers.
    pub(crate) fn epoch(&self) -> u64 {
        self.shared.rules.registry.as_ref().map_or(0, |registry| registry.epoch())
    }

    /// Verifies a record that is put at `now`. One whose token is known costs its digests and a
    /// look-up.
    pub(crate) async fn admit(&self, record: &SignedRecord, now: Timestamp) -> Result<Verified> {
        self.shared.rules.limits.check(record).map_err(invalid)?;
        let verified = self.verify(record, self.epoch(), Some(now)).await?;
        self.shared.rules.check_times(&verified.record, Some(now))?;
        Ok(verified)
    }

    /// Verifies a standing copy and notes what it came to. A key that is not available now is no
    /// verdict.
    pub(crate) async fn judge(&self, copy: &UnverifiedCopy) -> Result<()> {
        let epoch = self.epoch();
        match self.verify(&copy.record, epoch, None).await {
            Ok(_) => copy.token.note(epoch, true),
            Err(Error::InvalidObservationRecord { .. }) => copy.token.note(epoch, false),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A put of the record is durable. `standing` was taken before it was sent.
    pub(crate) fn stands(&self, mut verified: Verified, standing: Standing) {
        let key = (verified.record.op_hash, verified.epoch);
        verified.standing = Some(standing);
        self.shared.known.insert(key, verified);
    }

    async fn verify(
        &self,
        record: &SignedRecord,
        epoch: u64,
        now: Option<Timestamp>,
    ) -> Result<Verified> {
        let payload_bytes = record.payload.as_ref().map_or(0, |payload| payload.len());
        if record.op_jwt.len() + payload_bytes <= MAX_INLINE_BYTES {
            check_hash(record)?;
            if let Some(known) = self.shared.known.get(&(record.op_hash, epoch)) {
                known.record.check(record).map_err(invalid)?;
                return Ok(known);
            }
        }
        let (shared, record) = (Arc::clone(&self.shared), record.clone());
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.threads.len().max(1);
        let (done, verified) = oneshot::channel();
        let work = async move {
            let _ = done.send(shared.verify(&record, epoch, now).await);
        };
        if let Some(thread) = self.threads.get(turn) {
            thread.spawn(work);
        }
        // A panic of the host's policy or registry, and the end of the store, drop the work.
        verified.await.map_err(|_| Error::ActorStopped)?
    }
}

impl Shared {
    /// Of several calls with one token one does the work.
    async fn verify(
        &self,
        record: &SignedRecord,
        epoch: u64,
        now: Option<Timestamp>,
    ) -> Result<Verified> {
        check_hash(record)?;
        let prove = async {
            let stream = StreamKey::Document(record.key.id.clone());
            let span = tracing::debug_span!("verify", %stream, outcome = tracing::field::Empty);
            let proved = self.rules.prove(record, now).await;
            telemetry::verified(&proved, &span);
            Ok(Verified { record: Arc::new(proved?), epoch, standing: None })
        };
        let key = (record.op_hash, epoch);
        let verified = self.known.get_or_insert_async(&key, prove);
        let verified: Result<Verified> =
            within(&self.time, self.limit, verified).await.ok_or(Error::TimedOut)?;
        let verified = verified?;
        // What lies beside a known token may be of another record.
        verified.record.check(record).map_err(invalid)?;
        Ok(verified)
    }
}

fn check_hash(record: &SignedRecord) -> Result<()> {
    if Digest::of(record.op_jwt.as_bytes()) == record.op_hash {
        Ok(())
    } else {
        Err(invalid(RecordFault::Mismatch { field: "op_hash" }))
    }
}

impl RecordRules {
    /// All rules of one record. The policy comes before the key: who may not sign makes the store
    /// ask nobody.
    async fn prove(&self, record: &SignedRecord, now: Option<Timestamp>) -> Result<VerifiedRecord> {
        let limits = now.map_or(NO_LIMITS, |_| self.limits);
        let parsed = parse(record, &limits).map_err(invalid)?;
        self.check_times(parsed.claims(), now)?;
        if !self.policy.allows(parsed.issuer(), &record.key.owner)
            && !is_planted(PlantedBug::AnySignerBelieved)
        {
            return Err(invalid(RecordFault::SignerNotAllowed));
        }
        let resolved;
        let key = match parsed.built_in_key() {
            Some(key) => key,
            None => {
                resolved = self.resolve(&parsed).await?;
                &resolved
            }
        };
        verify(&parsed, key).map_err(invalid)
    }

    /// Times are judged at the put only: else a copy would be valid in one store and not in another.
    fn check_times(&self, claims: &VerifiedRecord, now: Option<Timestamp>) -> Result<()> {
        let Some(now) = now.map(Timestamp::as_millis) else { return Ok(()) };
        let max_drift_ms = i64::try_from(self.max_drift.as_millis()).unwrap_or(i64::MAX);
        for stamp in [&claims.hlc, &claims.version] {
            let ahead_ms = stamp.wall_ms().saturating_sub(now);
            if ahead_ms > max_drift_ms && !is_planted(PlantedBug::FutureStampTaken) {
                return Err(Error::HlcDrift { ahead_ms, max_drift_ms });
            }
        }
        match claims.not_before_ms {
            Some(not_before_ms) if not_before_ms > now => {
                Err(invalid(RecordFault::NotYetValid { not_before_ms }))
            }
            _ => Ok(()),
        }
    }

    async fn resolve(&self, parsed: &ParsedRecord) -> Result<PublicKey> {
        let unknown = || invalid(RecordFault::UnknownKey);
        let (Some(registry), Some(key_id)) = (&self.registry, parsed.key_id()) else {
            return Err(unknown());
        };
        match registry.resolve(parsed.issuer(), key_id).await {
            Ok(key) => key.ok_or_else(unknown),
            Err(KeyUnavailable) => {
                Err(Error::KeyUnavailable { issuer: parsed.issuer().to_string() })
            }
        }
    }
}

const fn invalid(reason: RecordFault) -> Error {
    Error::InvalidObservationRecord { reason }
}
