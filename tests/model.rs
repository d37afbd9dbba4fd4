//! Random command lists on two hosts against a plain model of the rules, with faults, conflicts,
//! passivation, rebuilding and restarts in between.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "model/world.rs"]
mod world;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use world::{Op, Place, World};

fn op() -> impl Strategy<Value = Op> {
    let document = 0..4_usize;
    let connector = 0..3_usize;
    let holder = 0..2_usize;
    prop_oneof![
        4 => (document.clone(), 0..9_i64).prop_map(|(at, value)| Op::SetTrim { at, value }),
        1 => document.clone().prop_map(|at| Op::ClearTrim { at }),
        1 => document.clone().prop_map(|at| Op::BeginSweep { at }),
        1 => document.clone().prop_map(|at| Op::AbandonSweep { at }),
        2 => document.clone().prop_map(|at| Op::Sweep { at }),
        2 => (document.clone(), document.clone(), 0..9_i64)
            .prop_map(|(first, second, value)| Op::Unit { first, second, value }),
        2 => (connector.clone(), 0..9_i64, any::<bool>())
            .prop_map(|(at, value, recovery)| Op::SetSync { at, value, recovery }),
        4 => connector.clone().prop_map(|at| Op::Progress { at }),
        2 => (connector.clone(), 2..6_usize).prop_map(|(at, count)| Op::Burst { at, count }),
        1 => connector.clone().prop_map(|at| Op::DeleteSync { at }),
        3 => (connector.clone(), holder).prop_map(|(at, holder)| Op::Acquire { at, holder }),
        1 => connector.clone().prop_map(|at| Op::Renew { at }),
        1 => connector.clone().prop_map(|at| Op::Release { at }),
        2 => (connector.clone(), document.clone()).prop_map(|(at, to)| Op::Fenced { at, to }),
        3 => (connector.clone(), 0..16_u8).prop_map(|(at, kept)| Op::Enumerate { at, kept }),
        3 => (connector, document.clone(), 0..4_u8)
            .prop_map(|(at, of, what)| Op::Candidate { at, of, what }),
        2 => (0..4_usize, 0..3_i64).prop_map(|(at, expires)| Op::CreateAuth { at, expires }),
        2 => (0..4_usize).prop_map(|at| Op::ConsumeAuth { at }),
        1 => (0..3_i64).prop_map(|cutoff| Op::ExpireAuths { cutoff }),
        6 => (0..4_usize, document.clone(), 0..2_usize)
            .prop_map(|(id, at, holder)| Op::Claim { id, at, holder }),
        14 => (any::<usize>(), 0..10_u8).prop_map(|(which, what)| Op::Hold { which, what }),
        1 => (document.clone(), 1..9_i64).prop_map(|(at, stamp)| Op::Arm { at, stamp }),
        2 => (document.clone(), 1..9_i64, any::<bool>())
            .prop_map(|(at, stamp, right)| Op::Verify { at, stamp, right }),
        1 => document.clone().prop_map(|at| Op::Disarm { at }),
        1 => (0..1_500_i64).prop_map(|millis| Op::Advance { millis }),
        2 => Just(Op::Passivate),
        1 => Just(Op::Rebuild),
        1 => Just(Op::Restart),
    ]
}

/// A seed, whether storages fail, and what is done on which host.
fn runs() -> impl Strategy<Value = (u64, bool, Vec<(bool, Op)>)> {
    (any::<u64>(), any::<bool>(), prop::collection::vec((any::<bool>(), op()), 1..80))
}

/// Runs it on a place of its own, and compares at the end.
fn check(cases: u32, place: impl Fn() -> Place) {
    let config = ProptestConfig { cases, max_shrink_iters: 200, ..ProptestConfig::default() };
    let config = ProptestConfig { source_file: Some(file!()), ..config };
    let result = TestRunner::new(config).run(&runs(), |(seed, faulty, ops)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new(place(), seed, faulty).await;
            for (host, op) in ops {
                world.run(usize::from(host), op).await;
            }
            world.check().await;
        });
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_store_does_what_the_model_says() {
    check(48, Place::memory);
}

#[cfg(all(unix, feature = "postgres"))]
#[test]
fn a_store_on_a_postgresql_server_does_what_the_model_says() {
    let Some(server) = connector_store::testing::TestPostgres::start(&[]).unwrap() else { return };
    check(12, || Place::Postgres(server.url(&server.create_database().unwrap())));
}
