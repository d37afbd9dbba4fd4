//! Holders on two stores over one database: one at a time may send, and one that was paused past
//! its lease and woken writes no row, on any key.

use std::sync::Arc;
use std::time::Duration;

use connector_store::testing::SimClock;
use connector_store::{
    Claim, ClaimedOperation, Clock, DeferReason, MemoryJournal, Result, Session, StreamKey,
};

use crate::common::*;

fn last_position(journal: &MemoryJournal) -> i64 {
    journal.tamper(|tables| tables.last_position)
}

async fn through_a_unit(session: &Session) -> Result<()> {
    let key = StreamKey::Connector(owner(), folder());
    let unit = session.unit_of_work([key, document_key("doc"), document_key("other")]).await?;
    for name in ["doc", "other"] {
        unit.document(&document(name)).set_entity_trim(&owner(), &folder(), json(1)).await?;
    }
    unit.commit().await
}

/// Every way to write under a claim.
async fn write_everywhere(claimed: &ClaimedOperation) -> Vec<(&'static str, &'static str)> {
    let session = claimed.session();
    let trim = async |name| {
        session.document(&document(name)).set_entity_trim(&owner(), &folder(), json(1)).await
    };
    let other = async || {
        let document = session.document(&document("other"));
        document.claim_operation(&request("under-the-session"), &holder("a"), TTL).await
    };
    vec![
        ("mark", code(claimed.mark_send_started().await)),
        ("unknown", code(claimed.record_unknown().await)),
        ("read", code(claimed.begin_reconcile_read().await)),
        ("not written", code(claimed.record_not_written().await)),
        ("defer", code(claimed.defer(DeferReason::Offline, SECOND, true).await)),
        ("renew", code(claimed.renew(TTL).await)),
        ("commit", code(claimed.finalize_committed(&source("s"), None, None).await)),
        ("dead", code(claimed.finalize_dead("x").await)),
        ("release", code(claimed.release().await)),
        ("same document", code(trim("doc").await)),
        ("other document", code(trim("other").await)),
        ("other operation", code(other().await)),
        ("sweep", code(session.document(&document("other")).begin_document_sweep().await)),
        ("connector", code(session.connector().cursor_lost(&partition()).await)),
        ("unit", code(through_a_unit(&session).await)),
    ]
}

fn partition() -> connector_store::PartitionId {
    connector_store::PartitionId::new("p").unwrap()
}

#[tokio::test]
async fn a_holder_paused_past_its_lease_and_woken_writes_no_row() {
    for marked in [false, true] {
        let (one, other, clock, journal) = two_stores().await;
        let paused = attempt(&one, "doc", "op", "a").await;
        if marked {
            paused.mark_send_started().await.unwrap();
        }
        clock.advance(TTL);
        let taken = match claim(&other, "doc", &request("op"), "b").await.unwrap() {
            Claim::Attempt(taken) if !marked => taken,
            Claim::Reconcile(taken) if marked => taken,
            other => panic!("{other:?}"),
        };
        let before = (last_position(&journal), other.operation(&operation("op")).await.unwrap());
        for (what, code) in write_everywhere(&paused).await {
            assert_eq!(code, "CONNECTOR_LEASE_LOST", "{what}, marked: {marked}");
        }
        let after = (last_position(&journal), other.operation(&operation("op")).await.unwrap());
        assert_eq!(after, before, "nothing was written");
        taken.finalize_committed(&source("s"), Some("v1"), None).await.unwrap();
        // Its end takes the lease with it: what was fenced by it is over too.
        assert_eq!(code(through_a_unit(&taken.session()).await), "CONNECTOR_LEASE_LOST");
        assert_sound(&one).await;
    }
}

/// Fencing decides, not the clock: until somebody takes it, a slow holder can finish.
#[tokio::test]
async fn an_expired_lease_that_nobody_took_stays_good_but_permits_no_send() {
    let (one, other, clock, _journal) = two_stores().await;
    let slow = attempt(&one, "doc", "op", "a").await;
    clock.advance(TTL);
    assert_eq!(code(slow.mark_send_started().await), "CONNECTOR_LEASE_EXPIRED");
    through_a_unit(&slow.session()).await.unwrap();
    let renewed = slow.renew(TTL).await.unwrap();
    let busy = claim(&other, "doc", &request("op"), "b").await;
    assert_eq!(code(busy), "CONNECTOR_OPERATION_BUSY");
    assert_eq!(renewed.mark_send_started().await.unwrap().send_within, TTL);
    clock.advance(TTL * 5);
    renewed.finalize_committed(&source("s"), None, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_racing_claims_on_two_stores_one_may_send() {
    let (one, other, clock, _journal) = two_stores().await;
    for round in 0..6 {
        let name = format!("op-{round}");
        // The first rounds race for a new one, later ones for one that others held or sent.
        if round >= 2 {
            let first = attempt(&one, &name, &name, "first").await;
            if round >= 4 {
                first.mark_send_started().await.unwrap();
            }
            clock.advance(TTL);
        }
        let racers = (0..20).map(|index| {
            let store = if index % 2 == 0 { one.clone() } else { other.clone() };
            let name = name.clone();
            let by = format!("racer-{index}");
            tokio::spawn(async move { claim(&store, &name, &request(&name), &by).await })
        });
        let mut won = Vec::new();
        for racer in racers.collect::<Vec<_>>() {
            match bounded(racer).await.unwrap() {
                Ok(claim) => won.push(claim),
                Err(error) => assert_eq!(error.code(), "CONNECTOR_OPERATION_BUSY"),
            }
        }
        assert_eq!(won.len(), 1, "round {round}");
        assert_eq!(matches!(won[0], Claim::Attempt(_)), round < 4, "round {round}: {won:?}");
    }
    assert_sound(&one).await;
}

/// Several hosts mark at once with one claim's token: one request leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_claim_gives_one_permit_whoever_asks() {
    let (one, _other, _clock, _journal) = two_stores().await;
    let claimed = attempt(&one, "doc", "op", "a").await;
    let marks = (0..20).map(|_| {
        let claimed = claimed.clone();
        tokio::spawn(async move { claimed.mark_send_started().await })
    });
    let mut permits = 0;
    for mark in marks.collect::<Vec<_>>() {
        match bounded(mark).await.unwrap() {
            Ok(_) => permits += 1,
            Err(error) => assert_eq!(error.code(), "CONNECTOR_RECONCILE_FIRST"),
        }
    }
    assert_eq!(permits, 1);
}

#[tokio::test]
async fn steps_of_the_wall_clock_change_no_lease_and_no_deferral() {
    let hour = 3_600_000;
    for step in [-hour, 10 * 24 * hour, -20 * 24 * hour] {
        let (store, clock, _journal) = store().await;
        let claimed = attempt(&store, "doc", "op", "a").await;
        let deferred = attempt(&store, "later", "later", "a").await;
        deferred.defer(DeferReason::RateLimited, TTL, false).await.unwrap();
        clock.set_wall(clock.wall().plus_millis(step));
        clock.advance(TTL - MILLI);
        let early = claim(&store, "doc", &request("op"), "b").await;
        assert_eq!(code(early), "CONNECTOR_OPERATION_BUSY", "{step}");
        let early = claim(&store, "later", &request("later"), "b").await;
        assert_eq!(code(early), "CONNECTOR_DEFERRED", "{step}");
        let permit = claimed.mark_send_started().await.unwrap();
        assert_eq!(permit.send_within, MILLI, "{step}");
        clock.set_wall(clock.wall().plus_millis(-2 * step));
        clock.advance(MILLI);
        reconcile(&store, "doc", "op", "b").await;
        attempt(&store, "later", "later", "b").await;
        assert_eq!(code(claimed.release().await), "CONNECTOR_LEASE_LOST");
    }
}

/// A host whose clock is an hour behind and one whose clock is ten days ahead.
#[tokio::test]
async fn hosts_on_one_database_go_by_its_time_alone() {
    let database = SimClock::default();
    let journal: MemoryJournal = shared_journal(&database);
    let (behind, ahead) = (SimClock::default(), SimClock::default());
    behind.set_wall(database.wall().plus_millis(-3_600_000));
    ahead.set_wall(database.wall().plus_millis(10 * 24 * 3_600_000));
    let one = builder(&behind, 1).memory(&journal).open().await.unwrap();
    let other = builder(&ahead, 2).memory(&journal).open().await.unwrap();
    let pass = |time: Duration| [&database, &behind, &ahead].map(|clock| clock.advance(time));
    for (first, second, name) in [(&one, &other, "x"), (&other, &one, "y")] {
        let claimed = attempt(first, name, name, "a").await;
        assert_eq!(claimed.expires_at(), database.wall().plus(TTL));
        pass(TTL - MILLI);
        let early = claim(second, name, &request(name), "b").await;
        assert_eq!(code(early), "CONNECTOR_OPERATION_BUSY", "no double holder");
        ahead.set_wall(ahead.wall().plus_millis(-30 * 24 * 3_600_000));
        pass(MILLI);
        // It ends, whatever the clock of the host says that wants it.
        attempt(second, name, name, "b").await;
        assert_eq!(code(claimed.mark_send_started().await), "CONNECTOR_LEASE_LOST");
    }
    drop(Arc::new(journal));
}
