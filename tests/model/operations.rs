//! The model's operations and watches: claims, sends, reconciling, ends; and what a sweep may take.

use super::*;

use connector_store::{
    Claim, ClaimedOperation, DeferReason, Digest, OperationId, OperationKind, OperationPhase,
    OperationRequest, Verification, WatchExpectation, WatchIdentity, WatchReason,
};

/// How long the provider may take to show a write.
const VISIBILITY: Duration = Duration::from_millis(200);
/// How long a deferral lasts.
const LATER: Duration = Duration::from_millis(400);

type Expected = std::result::Result<(), &'static str>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Attempted { sent_until: Option<Timestamp> },
    ReconcileOnly { sent_until: Timestamp, read_at: Option<Timestamp> },
    Committed,
    Dead,
}

pub struct OperationModel {
    document: usize,
    phase: Phase,
    /// The holder's number, the number of the claim, the expiry.
    lease: Option<(usize, u64, Timestamp)>,
    not_before: Option<Timestamp>,
    attempts: u32,
}

impl OperationModel {
    const fn is_final(&self) -> bool {
        matches!(self.phase, Phase::Committed | Phase::Dead)
    }
}

pub struct HeldClaim {
    pub host: usize,
    id: usize,
    nth: u64,
    claimed: ClaimedOperation,
}

pub struct WatchModel {
    stamp: i64,
    deadline: Timestamp,
    mismatches: u32,
    has_expired: bool,
}

fn stamp(at: i64) -> Hlc {
    Hlc::parse(&format!("{at:015}-00000000-node")).unwrap()
}

fn operation(id: usize) -> OperationId {
    OperationId::new(format!("o{id}")).unwrap()
}

fn expectation(at: i64) -> WatchExpectation {
    WatchExpectation {
        reason: WatchReason::Write,
        expected_digest: Some(Digest::of(b"right")),
        written_hlc: stamp(at),
        deadline: TTL,
    }
}

impl World {
    pub(super) async fn run_on_operation(&mut self, host: usize, op: Op) {
        match op {
            Op::Claim { id, at, holder } => self.claim(host, id, at, holder).await,
            Op::Hold { which, what } => self.under_a_claim(which, what).await,
            Op::Arm { at, stamp: written } => {
                let identity =
                    WatchIdentity { owner: owner(0), connector: folder(), source_id: source(at) };
                let is_begun = self.documents[at].is_begun;
                let expected =
                    if is_begun { Err("CONNECTOR_DOCUMENT_BEING_SWEPT") } else { Ok(()) };
                let handle = self.document(host, at);
                let options = expectation(written);
                let arm = handle.arm_watch(&identity, &options);
                if went_well(self.wait(arm).await, expected).is_some() {
                    self.armed(at, written);
                }
            }
            Op::Verify { at, stamp, right } => self.verify_watch(host, at, stamp, right).await,
            Op::Disarm { at } => {
                let handle = self.document(host, at);
                if went_well(self.wait(handle.disarm_watch()).await, Ok(())).is_some() {
                    self.documents[at].watch = None;
                }
            }
            _ => unreachable!("it is no operation's"),
        }
    }

    /// What keeps a document from being swept.
    pub(super) fn sweepable(&self, at: usize) -> Expected {
        let mut operations = self.operations.values();
        if operations.any(|operation| operation.document == at && !operation.is_final()) {
            Err("CONNECTOR_SWEEP_UNFINISHED_OPERATION")
        } else {
            Ok(())
        }
    }

    fn armed(&mut self, at: usize, written: i64) {
        let watch = &mut self.documents[at].watch;
        if watch.as_ref().is_none_or(|standing| standing.stamp <= written) {
            let deadline = self.time.wall().plus(TTL);
            let fresh = WatchModel { stamp: written, deadline, mismatches: 0, has_expired: false };
            *watch = Some(fresh);
        }
    }

    async fn claim(&mut self, host: usize, id: usize, at: usize, holder: usize) {
        let now = self.time.wall();
        let expected = match self.operations.get(&id) {
            Some(known) if known.document == at && known.is_final() => Ok(()),
            _ if self.documents[at].is_begun => Err("CONNECTOR_DOCUMENT_BEING_SWEPT"),
            Some(known) if known.document != at => Err("CONNECTOR_OPERATION_MISMATCH"),
            Some(known) => match known.lease {
                Some((by, _, expires)) if by != holder && expires > now => {
                    Err("CONNECTOR_OPERATION_BUSY")
                }
                _ if known.not_before.is_some_and(|at| at > now) => Err("CONNECTOR_DEFERRED"),
                _ => Ok(()),
            },
            None => Ok(()),
        };
        let request = OperationRequest {
            operation_id: operation(id),
            owner: owner(0),
            connector: folder(),
            op: OperationKind::Update,
            version: stamp(1),
            request_digest: Digest::of(b"request"),
            visibility_delay: VISIBILITY,
        };
        let (handle, name) = (self.document(host, at), Holder::new(format!("h{holder}")).unwrap());
        let claim = handle.claim_operation(&request, &name, TTL);
        let Some(claim) = went_well(self.wait(claim).await, expected) else { return };
        self.claims += 1;
        let nth = self.claims;
        let known = self.operations.entry(id).or_insert(OperationModel {
            document: at,
            phase: Phase::Attempted { sent_until: None },
            lease: None,
            not_before: None,
            attempts: 0,
        });
        let claimed = match claim {
            Claim::Finished(record) => {
                assert!(known.is_final());
                assert!(record.operation.phase.is_final());
                return;
            }
            Claim::Attempt(claimed) => {
                assert_eq!(known.phase, Phase::Attempted { sent_until: None });
                known.attempts += 1;
                claimed
            }
            Claim::Reconcile(claimed) => {
                let sent_until = match known.phase {
                    Phase::Attempted { sent_until: Some(until) } => until,
                    Phase::ReconcileOnly { sent_until, .. } => sent_until,
                    phase => panic!("asked to reconcile {phase:?}"),
                };
                known.phase = Phase::ReconcileOnly { sent_until, read_at: None };
                claimed
            }
        };
        known.lease = Some((holder, nth, now.plus(TTL)));
        known.not_before = None;
        self.held.push(HeldClaim { host, id, nth, claimed });
    }

    /// One of the claims that were ever given, an old one as likely as the newest.
    async fn under_a_claim(&mut self, which: usize, what: u8) {
        let Some(held) = self.held.get(which % self.held.len().max(1)) else { return };
        let (claimed, id, nth) = (held.claimed.clone(), held.id, held.nth);
        let now = self.time.wall();
        let standing = self.operations.get(&id).filter(|known| known.document_of(&claimed));
        let current = standing.and_then(|known| Some((known.phase, known.lease?)));
        let Some((phase, (holder, _, expires))) = current.filter(|(_, lease)| lease.1 == nth)
        else {
            // Swept with its document, or taken by another claim.
            let expected =
                if standing.is_some() { "CONNECTOR_LEASE_LOST" } else { "CONNECTOR_NOT_FOUND" };
            went_well(self.wait(claimed.release()).await, Err(expected));
            return;
        };
        let lease = Some((holder, nth, expires));
        let at = self.operations[&id].document;
        let kept = (lease, None);
        let (expected, after): (Expected, _) = match (what, phase) {
            (0, Phase::Attempted { sent_until: None }) if expires > now => {
                (Ok(()), (Phase::Attempted { sent_until: Some(expires) }, kept))
            }
            (0, Phase::Attempted { sent_until: None }) => {
                (Err("CONNECTOR_LEASE_EXPIRED"), (phase, kept))
            }
            (0, _) => (Err("CONNECTOR_RECONCILE_FIRST"), (phase, kept)),
            (1, Phase::Attempted { sent_until }) => {
                let sent_until = sent_until.unwrap_or(expires.max(now));
                (Ok(()), (Phase::ReconcileOnly { sent_until, read_at: None }, kept))
            }
            (2, Phase::ReconcileOnly { sent_until, .. }) => {
                (Ok(()), (Phase::ReconcileOnly { sent_until, read_at: Some(now) }, kept))
            }
            (2, _) => (Err("CONNECTOR_INVALID_INPUT"), (phase, kept)),
            (3, Phase::ReconcileOnly { sent_until, read_at }) => {
                if read_at.is_some_and(|read_at| read_at > sent_until.plus(VISIBILITY)) {
                    (Ok(()), (Phase::Attempted { sent_until: None }, kept))
                } else {
                    (Err("CONNECTOR_RECONCILE_TOO_EARLY"), (phase, kept))
                }
            }
            (3 | 4, Phase::Attempted { sent_until: Some(_) }) => {
                (Err("CONNECTOR_RECONCILE_FIRST"), (phase, kept))
            }
            (5, Phase::Attempted { .. }) => {
                let cleared = Phase::Attempted { sent_until: None };
                (Ok(()), (cleared, (None, Some(now.plus(LATER)))))
            }
            (4 | 5, _) => (Ok(()), (phase, (None, Some(now.plus(LATER))))),
            (6, _) => (Ok(()), (Phase::Committed, (None, None))),
            (7, _) => (Ok(()), (Phase::Dead, (None, None))),
            (8, _) => (Ok(()), (phase, (Some((holder, nth, now.plus(TTL))), None))),
            (9, _) => (Ok(()), (phase, (None, None))),
            _ => (Ok(()), (phase, kept)),
        };
        let call = async {
            match what {
                0 => claimed.mark_send_started().await.map(|_| ()),
                1 => claimed.record_unknown().await,
                2 => claimed.begin_reconcile_read().await,
                3 => claimed.record_not_written().await,
                4 | 5 => claimed.defer(DeferReason::Offline, LATER, what == 5).await,
                6 => {
                    let watch = expectation(5);
                    claimed.finalize_committed(&source(id), None, Some(&watch)).await.map(|_| ())
                }
                7 => claimed.finalize_dead("x").await,
                8 => claimed.renew(TTL).await.map(|_| ()),
                _ => claimed.release().await,
            }
        };
        if went_well(self.wait(call).await, expected).is_none() {
            return;
        }
        let known = self.operations.get_mut(&id).unwrap();
        let (phase, (lease, not_before)) = after;
        (known.phase, known.lease, known.not_before) = (phase, lease, not_before);
        if what == 6 {
            self.armed(at, 5);
        }
    }

    async fn verify_watch(&mut self, host: usize, at: usize, fetched: i64, right: bool) {
        let handle = self.document(host, at);
        let observed = right.then(|| Digest::of(b"right"));
        let fetch_hlc = stamp(fetched);
        let verify = handle.record_verification(&fetch_hlc, observed);
        let Some(outcome) = went_well(self.wait(verify).await, Ok(())) else { return };
        let now = self.time.wall();
        let place = &mut self.documents[at].watch;
        let expected = match place {
            None => Verification::NoWatch,
            Some(watch) if fetched < watch.stamp => Verification::Stale,
            Some(_) if right => {
                *place = None;
                Verification::Verified
            }
            Some(watch) if watch.has_expired || watch.deadline <= now => {
                watch.has_expired = true;
                Verification::Expired
            }
            Some(watch) => {
                watch.mismatches += 1;
                Verification::Mismatched { count: watch.mismatches }
            }
        };
        assert_eq!(outcome, expected);
    }

    pub(super) async fn compare_operations(&self, host: usize) {
        let store = &self.stores[host];
        let listed = store.tracked_operations(&Default::default(), None, 100).await.unwrap();
        let listed: Vec<_> = listed.into_iter().map(|record| record.operation_id).collect();
        let expected: Vec<_> = self.operations.keys().copied().map(operation).collect();
        assert_eq!(listed, expected);
        for (&id, model) in &self.operations {
            let record = store.operation(&operation(id)).await.unwrap().unwrap();
            assert_eq!(record.document_id, document(model.document));
            let phase = match record.operation.phase {
                OperationPhase::Attempted { sent } => {
                    Phase::Attempted { sent_until: sent.map(|sent| sent.until) }
                }
                OperationPhase::ReconcileOnly { sent, read_at } => {
                    Phase::ReconcileOnly { sent_until: sent.until, read_at }
                }
                OperationPhase::Committed { .. } => Phase::Committed,
                OperationPhase::Dead { .. } => Phase::Dead,
            };
            assert_eq!(phase, model.phase, "operation {id}");
            assert_eq!(record.operation.attempts, model.attempts, "operation {id}");
            let expires = record.operation.lease.map(|lease| lease.expires_at);
            assert_eq!(expires, model.lease.map(|(_, _, expires)| expires), "operation {id}");
            let not_before = record.operation.deferral.map(|deferral| deferral.not_before);
            assert_eq!(not_before, model.not_before, "operation {id}");
        }
        for (at, model) in self.documents.iter().enumerate() {
            let watch = self.wait(self.document(host, at).watch()).await.unwrap();
            let stored = watch.map(|at| (at.watch.written_hlc, at.watch.mismatches));
            let expected = model.watch.as_ref().map(|at| (stamp(at.stamp), at.mismatches));
            assert_eq!(stored, expected, "document {at}");
        }
    }
}

impl OperationModel {
    /// The claim is of this operation, and not of one of the same id that was swept.
    fn document_of(&self, claimed: &ClaimedOperation) -> bool {
        document(self.document) == claimed.operation().document_id
    }

    pub(super) const fn is_on(&self, at: usize) -> bool {
        self.document == at
    }
}
