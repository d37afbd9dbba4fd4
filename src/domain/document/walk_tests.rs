//! A seeded random walk of hosts and a provider, and what must hold after each step.
//!
//! The hosts are honest and slow: they send within their permit at the latest, forget what they
//! did, come back with old tokens. The provider carries a write out late and shows it late. Two
//! effective writes of one operation are what all rules together must keep from happening.

use std::collections::BTreeMap;

use super::fixture::*;
use super::*;
use crate::base::OperationId;
use crate::domain::{FencingToken, Lease};
use crate::testing::given::{Given, at};

const IDS: [&str; 3] = ["a", "b", "c"];
const HOLDERS: [&str; 2] = ["me", "other"];

/// A small generator of numbers, so that a failure can be replayed from its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: i64) -> i64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from(self.0 >> 33).unwrap() % sides
    }

    fn one_of<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.roll(i64::try_from(of.len()).unwrap())).unwrap()].clone()
    }
}

/// What the provider did with one request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Request {
    /// Refused for certain; the sender was told.
    Refused,
    /// Done, and shown from then on.
    Shown(i64),
}

#[derive(Default)]
struct World {
    /// Every claim that was handed out.
    claims: Vec<(&'static str, FencingToken)>,
    /// What became of each request, by operation.
    requests: BTreeMap<&'static str, Vec<Request>>,
    /// The request that a token sent last.
    sent: BTreeMap<(&'static str, FencingToken), Request>,
    /// Whether the last read under a token has shown a write.
    reads: BTreeMap<(&'static str, FencingToken), bool>,
    /// Marks since the last proof that nothing was written.
    unproven: BTreeMap<&'static str, u32>,
    /// The store's counts of what this walk has come by.
    seen: BTreeMap<&'static str, u32>,
}

impl World {
    fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn command(
        &mut self,
        dice: &mut Dice,
        given: &Given<Document>,
    ) -> (&'static str, FencingToken, DocumentCommand) {
        let id = dice.one_of(&IDS);
        let operation = given.state.operations.get(&op(id));
        if operation.is_some_and(|of| of.lease.is_none()) && dice.roll(3) > 0 {
            return (id, token(0), claim(id, dice.one_of(&HOLDERS)));
        }
        let mine: Vec<_> = self.claims.iter().filter(|(of, _)| *of == id).collect();
        let Some(&&(_, newest)) = mine.last() else {
            return (id, token(0), claim(id, dice.one_of(&HOLDERS)));
        };
        let token = if dice.roll(4) == 0 { dice.one_of(&mine).1 } else { newest };
        if self.sent.get(&(id, token)) == Some(&Request::Refused) && dice.roll(3) == 0 {
            return (id, token, defer(id, token, true));
        }
        // An honest host says so only when its read has not shown the write.
        if self.reads.get(&(id, token)) == Some(&false) && dice.roll(3) == 0 {
            return (id, token, record(id, token, OperationOutcome::NotWritten));
        }
        let command = match dice.roll(20) {
            0..=2 => claim(id, dice.one_of(&HOLDERS)),
            3..=6 => mark(id, token),
            7 => defer(id, token, false),
            8..=10 => record(id, token, OperationOutcome::Unknown),
            11..=13 => begin_read(id, token),
            17 => renew(id, token),
            18 => release(id, token),
            19 if dice.roll(8) == 0 => {
                let outcomes = [committed(None), committed(Some(options(dice.roll(9)))), dead()];
                finalize(id, token, dice.one_of(&outcomes))
            }
            _ => begin_read(id, token),
        };
        (id, token, command)
    }

    /// What an accepted command means outside the store.
    fn done(
        &mut self,
        dice: &mut Dice,
        now: i64,
        (id, token, command): (&'static str, FencingToken, &DocumentCommand),
        (before, reply): (Option<Operation>, &DocumentReply),
    ) {
        let phase = before.map(|before| before.phase);
        let was_marked = matches!(phase, Some(OperationPhase::Attempted { sent: Some(_) }));
        let was_unknown = matches!(phase, Some(OperationPhase::ReconcileOnly { .. }));
        match (command, reply) {
            (_, DocumentReply::Claimed { lease, .. }) => self.claims.push((id, lease.token)),
            (_, DocumentReply::SendPermit(permit)) => {
                let marks = self.unproven.entry(id).or_default();
                *marks += 1;
                assert_eq!(*marks, 1, "a second permit without a proof between");
                let arrives = now + dice.roll(permit.send_within_ms + 1);
                assert!(arrives <= permit.send_until.as_millis());
                let request = match dice.roll(3) {
                    0 => Request::Refused,
                    1 => Request::Shown(permit.send_until.as_millis() + DELAY),
                    _ => Request::Shown(arrives + dice.roll(DELAY + 1)),
                };
                self.sent.insert((id, token), request);
                self.requests.entry(id).or_default().push(request);
                self.count("sent");
            }
            (DocumentCommand::BeginReconcileRead { .. }, _) => {
                let requests = self.requests.get(id).into_iter().flatten();
                let mut shown = requests.map(|request| match request {
                    Request::Refused => i64::MAX,
                    Request::Shown(at) => *at,
                });
                self.reads.insert((id, token), shown.any(|at| at < now));
            }
            (DocumentCommand::RecordOperation { outcome, .. }, _)
                if *outcome == OperationOutcome::NotWritten && was_unknown =>
            {
                self.unproven.insert(id, 0);
                self.count("proven");
            }
            (DocumentCommand::DeferOperation { deferral, .. }, _)
                if deferral.definite_refusal && was_marked =>
            {
                self.unproven.insert(id, 0);
                self.count("refused");
            }
            _ => {}
        }
    }
}

/// The time at which a write that was sent is shown at the latest, and who may ask for it.
fn last_moment(given: &Given<Document>, id: &str) -> Option<(i64, FencingToken)> {
    let operation = given.state.operations.get(&op(id))?;
    match operation.phase {
        OperationPhase::ReconcileOnly { sent, .. } => {
            Some((sent.until.as_millis() + DELAY, operation.lease.as_ref()?.token))
        }
        _ => None,
    }
}

fn assert_sound(given: &Given<Document>, world: &World, before: &BTreeMap<OperationId, Operation>) {
    given.assert_rows_are_those_of_the_state();
    for (id, was) in before {
        let is = given.state.operations.get(id);
        if was.phase.is_final() {
            assert_eq!(is, Some(was), "final is final");
        }
        let is = is.unwrap();
        let facts = |of: &Operation| (of.sequence, of.version.clone(), of.created_at, of.op);
        assert_eq!(facts(is), facts(was));
        assert!(is.attempts >= was.attempts);
        let version = |lease: &Option<Lease>| lease.as_ref().map(|lease| lease.token.version);
        let (then, now) = (version(&was.lease), version(&is.lease));
        assert!(now.is_none() || then.is_none() || now >= then, "tokens grow");
        assert!(is.lease.is_none() || is.deferral.is_none(), "who holds it does not wait");
    }
    for (id, requests) in &world.requests {
        let effective = requests.iter().filter(|request| **request != Request::Refused).count();
        assert!(effective <= 1, "{id} was written {effective} times");
    }
    let mut sequences: Vec<i64> =
        given.state.operations.values().map(|operation| operation.sequence).collect();
    sequences.sort_unstable();
    assert!(sequences.iter().copied().eq(1..=given.state.operation_sequence));
}

#[test]
fn no_walk_writes_twice_and_final_is_final() {
    let mut seen = BTreeMap::<&str, u32>::new();
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let mut given = fresh();
        let mut world = World::default();
        let mut now = 1_000;
        for _ in 0..250 {
            now += if dice.roll(6) == 0 { dice.roll(2_500) } else { dice.roll(60) };
            let (id, mut token, mut command) = world.command(&mut dice, &given);
            if let Some((moment, newest)) = last_moment(&given, id)
                && moment > now
                && dice.roll(2) == 0
            {
                (now, token, command) = (moment, newest, begin_read(id, newest));
            }
            let before = given.state.operations.clone();
            let was = before.get(&op(id)).cloned();
            match given.tried(&command, at(now)) {
                Ok(reply) => {
                    world.done(&mut dice, now, (id, token, &command), (was, &reply));
                }
                Err(_) => {
                    assert_eq!(given.state.operations, before, "a refusal changes nothing");
                    world.count("refusal");
                }
            }
            assert_sound(&given, &world, &before);
        }
        let ended = given.state.operations.values().filter(|of| of.phase.is_final()).count();
        for (what, count) in world.seen {
            *seen.entry(what).or_default() += count;
        }
        *seen.entry("ended").or_default() += u32::try_from(ended).unwrap();
    }
    for what in ["sent", "proven", "refused", "refusal", "ended"] {
        assert!(seen.get(what).is_some_and(|count| *count > 20), "{what}: {seen:?}");
    }
}
