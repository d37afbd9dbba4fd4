//! The rules of the hybrid logical clock.

use std::time::Duration;

use proptest::prelude::*;

use super::{Hlc, HlcClock, MAX_MS};
use crate::base::{Error, Result};

const WALL: i64 = 1_767_225_600_000;
const DRIFT: i64 = 60_000;

fn clock() -> HlcClock {
    HlcClock::new("node-a", Duration::from_secs(60)).unwrap()
}

fn stamp(ms: i64, counter: u32, node: &str) -> Hlc {
    Hlc::parse(&format!("{ms:015}-{counter:08x}-{node}")).unwrap()
}

#[test]
fn only_the_canonical_text_is_a_stamp() {
    let longest = format!("000000000000000-00000000-{}", "n".repeat(64));
    for good in [
        "001767225600000-00000000-node-a",
        "999999999999999-ffffffff-A_z.9:-",
        "000000000000000-0000000a--",
        longest.as_str(),
    ] {
        let parsed = Hlc::parse(good).unwrap();
        assert_eq!((parsed.as_str(), parsed.to_string().as_str()), (good, good));
    }
    let too_long = format!("{longest}n");
    for bad in [
        "",
        "1767225600000-00000000-node-a",
        "0001767225600000-00000000-node-a",
        "001767225600000-0-node-a",
        "001767225600000-000000000-node-a",
        "001767225600000-0000000A-node-a",
        "+01767225600000-00000000-node-a",
        "-01767225600000-00000000-node-a",
        "001767225600000-+0000000-node-a",
        " 01767225600000-00000000-node-a",
        "001767225600000-00000000-node-a ",
        "001767225600000-00000000-node a",
        "001767225600000-00000000-nöde",
        "001767225600000-00000000-node\n",
        "001767225600000-00000000-",
        "001767225600000-00000000",
        "001767225600000_00000000-node-a",
        "001767225600000-00000000_node-a",
        "00176722560000０-00000000-a",
        too_long.as_str(),
    ] {
        assert!(Hlc::parse(bad).is_none(), "{bad:?}");
    }
}

#[test]
fn the_parts_of_a_stamp_are_those_of_its_text() {
    let parsed = Hlc::parse("001767225600000-000000ff-node.b:1").unwrap();
    assert_eq!((parsed.wall_ms(), parsed.counter(), parsed.node()), (WALL, 255, "node.b:1"));
}

#[test]
fn a_stamp_is_read_from_json_only_in_its_canonical_form() {
    let good = "\"001767225600000-00000000-node-a\"";
    let parsed: Hlc = serde_json::from_str(good).unwrap();
    assert_eq!(serde_json::to_string(&parsed).unwrap(), good);
    assert!(serde_json::from_str::<Hlc>("\"1767225600000-0-a\"").is_err());
}

#[test]
fn stamps_of_a_wrong_node_cannot_be_made() {
    for bad in ["", "a b", "ä", "a/b", "a\0", &"n".repeat(65)] {
        let refused = HlcClock::new(bad, Duration::ZERO);
        assert!(matches!(refused, Err(Error::InvalidInput { field: "node", .. })), "{bad:?}");
    }
}

#[test]
fn seventy_thousand_stamps_of_one_millisecond_grow_strictly() -> Result<()> {
    let mut clock = clock();
    let mut last = clock.now(WALL)?;
    for _ in 0..70_000 {
        let next = clock.now(WALL)?;
        assert!(next > last && next.as_str() > last.as_str(), "{next} after {last}");
        assert_eq!(Hlc::parse(next.as_str()).as_ref(), Some(&next));
        last = next;
    }
    assert_eq!((last.wall_ms(), last.counter()), (WALL, 70_000));
    Ok(())
}

#[test]
fn a_full_counter_moves_the_milliseconds_on() -> Result<()> {
    let mut clock = clock();
    clock.observe(&stamp(WALL, u32::MAX, "zzz"), WALL)?;
    let next = clock.now(WALL)?;
    assert_eq!((next.wall_ms(), next.counter()), (WALL + 1, 0));
    assert_eq!(clock.now(WALL)?.counter(), 1);
    assert_eq!(clock.now(WALL + 2)?.as_str(), "001767225600002-00000000-node-a");
    Ok(())
}

#[test]
fn a_wall_clock_that_steps_back_gives_no_lesser_stamp() -> Result<()> {
    let mut clock = clock();
    let mut last = clock.now(WALL)?;
    for wall in [WALL - 3_600_000, 0, -1, i64::MIN, WALL - 1, WALL] {
        let next = clock.now(wall)?;
        assert!(next > last, "{next} after {last} at {wall}");
        assert_eq!(next.wall_ms(), WALL);
        last = next;
    }
    assert_eq!(clock.now(WALL + 1)?.wall_ms(), WALL + 1);
    Ok(())
}

#[test]
fn what_was_seen_is_below_what_is_given() -> Result<()> {
    let cases = [
        (stamp(WALL + 10, 5, "zzz"), (WALL + 10, 6)),
        (stamp(WALL, 7, "a"), (WALL, 8)),
        (stamp(WALL - 10, 9, "zzz"), (WALL, 0)),
    ];
    for (seen, expected) in cases {
        let mut observed = clock();
        observed.observe(&seen, WALL)?;
        for mut clock in [observed, clock().starting_above(&seen)] {
            let next = clock.now(WALL)?;
            assert_eq!((next.wall_ms(), next.counter()), expected, "{seen}");
            assert!(next > seen);
        }
    }
    Ok(())
}

#[test]
fn a_stamp_too_far_ahead_is_refused_and_does_not_drag_the_clock() -> Result<()> {
    let mut clock = clock();
    for ahead in [DRIFT + 1, 365 * 86_400_000, MAX_MS - WALL] {
        let refused = clock.observe(&stamp(WALL + ahead, 0, "evil"), WALL);
        assert!(
            matches!(refused, Err(Error::HlcDrift { ahead_ms, max_drift_ms: DRIFT }) if ahead_ms == ahead),
            "{refused:?}"
        );
    }
    assert_eq!(clock.now(WALL)?.wall_ms(), WALL);

    let at_the_limit = stamp(WALL + DRIFT, 0, "peer");
    clock.observe(&at_the_limit, WALL)?;
    assert!(clock.now(WALL)? > at_the_limit);
    assert_eq!(clock.now(WALL + DRIFT + 1)?.wall_ms(), WALL + DRIFT + 1);
    Ok(())
}

#[test]
fn a_clock_that_is_ahead_itself_notices() -> Result<()> {
    let mut clock = clock();
    assert!(clock.check_own_drift(WALL).is_ok());
    clock.now(WALL + DRIFT + 1)?;
    assert!(matches!(
        clock.check_own_drift(WALL),
        Err(Error::HlcDrift { ahead_ms: 60_001, max_drift_ms: DRIFT })
    ));
    assert!(clock.check_own_drift(WALL + 1).is_ok());
    Ok(())
}

#[test]
fn a_time_without_a_text_is_refused_and_the_last_stamp_is_the_last() -> Result<()> {
    let mut clock = clock();
    for wall in [MAX_MS + 1, i64::MAX] {
        for refused in [clock.now(wall).map(|_| ()), clock.observe(&stamp(0, 0, "a"), wall)] {
            assert!(matches!(refused, Err(Error::InvalidInput { field: "wall_ms", .. })));
        }
    }
    assert_eq!(clock.now(WALL)?.wall_ms(), WALL);
    let mut clock = clock.starting_above(&stamp(MAX_MS, u32::MAX, "a"));
    assert!(matches!(clock.now(MAX_MS), Err(Error::InvalidInput { .. })));
    Ok(())
}

#[test]
fn the_greatest_drift_allows_every_stamp() -> Result<()> {
    let mut clock = HlcClock::new("n", Duration::MAX)?;
    clock.observe(&stamp(MAX_MS, 0, "a"), i64::MIN)
}

proptest! {
    #[test]
    fn text_order_is_clock_order(
        a in (0..=MAX_MS, any::<u32>(), "[A-Za-z0-9_.:-]{1,3}"),
        b in (0..=MAX_MS, any::<u32>(), "[A-Za-z0-9_.:-]{1,3}"),
        same_ms in any::<bool>(),
        same_counter in any::<bool>(),
    ) {
        let b = (if same_ms { a.0 } else { b.0 }, if same_counter { a.1 } else { b.1 }, b.2);
        let (x, y) = (stamp(a.0, a.1, &a.2), stamp(b.0, b.1, &b.2));
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        prop_assert_eq!(x.as_str().cmp(y.as_str()), a.cmp(&b));
    }

    #[test]
    fn any_text_is_refused_or_canonical(text in ".{0,100}") {
        prop_assert!(Hlc::parse(&text).is_none_or(|hlc| hlc.as_str() == text));
    }

    #[test]
    fn every_stamp_is_above_all_before_it(walls in proptest::collection::vec(any::<i64>(), 1..50)) {
        let mut clock = clock();
        let mut last = None;
        for wall in walls {
            if let Ok(next) = clock.now(wall) {
                prop_assert!(Some(&next) > last.as_ref());
                last = Some(next);
            }
        }
    }

    #[test]
    fn every_stamp_is_above_all_that_was_given_or_seen(
        steps in proptest::collection::vec(
            (
                proptest::option::of(0..=DRIFT + 2),
                prop_oneof![0..3_u32, u32::MAX - 2..=u32::MAX],
                "[a-z]",
                -2..3_i64,
            ),
            1..50,
        ),
    ) {
        let mut clock = clock();
        let mut greatest: Option<Hlc> = None;
        for (seen_ahead, counter, node, wall) in steps {
            let wall = WALL + wall;
            match seen_ahead {
                None => {
                    let given = clock.now(wall).unwrap();
                    prop_assert!(Some(&given) > greatest.as_ref(), "{given} after {greatest:?}");
                    greatest = Some(given);
                }
                Some(ahead) => {
                    let seen = stamp(wall + ahead, counter, &node);
                    prop_assert_eq!(clock.observe(&seen, wall).is_ok(), ahead <= DRIFT);
                    if ahead <= DRIFT {
                        greatest = greatest.max(Some(seen));
                    }
                }
            }
        }
        // What was refused did not drag it: it is at most the drift ahead, and a full counter more.
        let last = clock.now(WALL - 2).unwrap();
        prop_assert!(last.wall_ms() <= WALL + 2 + DRIFT + 1, "{last}");
    }
}
