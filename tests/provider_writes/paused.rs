//! A host that is paused at any step while another one goes on, and woken: one effective write as
//! long as requests leave within their permit, and with a condition at the provider always.

use std::time::Duration;

use connector_store::Clock;

use crate::common::*;
use crate::host::{GAPS, Hand, Host, Task, assert_finished, manners};
use crate::provider::{Condition, Mode, Provider};

/// Steps after which no host is still under way.
const MAX_PAUSE: u32 = 40;

/// How many schedules were played, and in how many the request left after its permit.
#[derive(Default)]
struct Count {
    played: u64,
    late_sends: u64,
    doubled: u64,
}

/// The next thing that the host does is to send a request whose permit has ended.
fn is_late(host: &Host) -> bool {
    matches!(&host.hand, Hand::AtTheSocket(_, until) if host.clock.monotonic() > *until)
}

/// One host is paused after each of its steps, the other makes some or all of its own, then the
/// first goes on to its end, then the other.
async fn pause_everywhere(condition: Condition, same_name: bool, gaps: &[Duration]) -> Count {
    let mut count = Count::default();
    for manner in manners(condition) {
        for mode in Mode::ALL {
            let (one, other, clock, _journal) = two_stores().await;
            let provider = Provider::new(&clock, manner);
            for &gap in gaps {
                for pause in 1..MAX_PAUSE {
                    let mut first_is_late = false;
                    for steps in [1, 3, MAX_PAUSE] {
                        count.played += 1;
                        let task = Task::new(count.played, manner.hides_for);
                        let id = &task.request.operation_id;
                        provider.set_mode(id, mode);
                        let mut a = Host::new(&one, &clock, &provider, "a", &task);
                        let name = if same_name { "a" } else { "b" };
                        let mut b = Host::new(&other, &clock, &provider, name, &task);
                        first_is_late = !a.make(pause).await;
                        clock.advance(gap);
                        b.make(steps).await;
                        let mut late = is_late(&a);
                        // One goes on by itself; who is first makes no difference in the end.
                        a.finish().await;
                        late |= is_late(&b);
                        count.late_sends += u64::from(late);
                        let record = b.finish().await;
                        let expected = mode.writes();
                        let writes = provider.writes(id);
                        let at = format!(
                            "{mode:?} {manner:?} {gap:?} paused after {pause}, {steps} steps of {name}"
                        );
                        if late && condition == Condition::None {
                            // Beyond any store: see the module of operations.
                            count.doubled += u64::from(writes == 2);
                            continue;
                        }
                        assert_eq!(writes, expected, "effective writes: {at}");
                        assert_finished(&b, mode, &record).await;
                    }
                    if first_is_late {
                        break;
                    }
                }
            }
        }
    }
    count
}

#[tokio::test]
async fn a_host_paused_at_any_step_and_woken_writes_once_within_its_permit() {
    for (same_name, gaps) in [(false, [GAPS[0], GAPS[2]]), (true, [GAPS[1], GAPS[2]])] {
        let count = pause_everywhere(Condition::None, same_name, &gaps).await;
        assert!(count.played > 500, "only {} schedules were played", count.played);
        // The limit of what any store can do: those requests left after their permit.
        assert!(count.late_sends > 0 && count.doubled > 0);
    }
}

#[tokio::test]
async fn with_a_condition_at_the_provider_a_host_paused_anywhere_writes_once() {
    for condition in [Condition::IfNoneMatch, Condition::IdempotencyKey] {
        let count = pause_everywhere(condition, false, &[GAPS[2]]).await;
        assert!(count.late_sends > 0, "requests left after their permit");
    }
}

/// Stopped between the mark and the socket until others have written, then woken.
#[tokio::test]
async fn only_a_condition_closes_the_way_from_the_mark_to_the_socket() {
    for (condition, writes) in
        [(Condition::None, 2), (Condition::IfNoneMatch, 1), (Condition::IdempotencyKey, 1)]
    {
        let (one, other, clock, _journal) = two_stores().await;
        let provider = Provider::new(&clock, manners(condition)[0]);
        let task = Task::new("late", Duration::ZERO);
        let id = &task.request.operation_id;
        let mut stopped = Host::new(&one, &clock, &provider, "stopped", &task);
        assert!(stopped.make(3).await);
        assert!(matches!(stopped.hand, Hand::AtTheSocket(..)), "{:?}", stopped.hand);
        clock.advance(TTL + SECOND);
        let mut second = Host::new(&other, &clock, &provider, "second", &task);
        let recorded = second.finish().await;
        assert_eq!(provider.writes(id), 1);
        // Woken: the request leaves, and is not recorded as anything.
        assert_eq!(stopped.finish().await, recorded);
        assert_eq!(provider.writes(id), writes, "{condition:?}");
        assert_eq!(provider.requests(id), 2);
    }
}

#[tokio::test]
async fn a_host_that_looks_at_its_permit_does_not_send_after_it() {
    let (one, other, clock, _journal) = two_stores().await;
    let provider = Provider::new(&clock, manners(Condition::None)[0]);
    for (name, waited, requests) in [("at", TTL, 1), ("after", TTL + MILLI, 1)] {
        let task = Task::new(name, Duration::ZERO);
        let id = &task.request.operation_id;
        let mut paused = Host::new(&one, &clock, &provider, "paused", &task);
        assert!(paused.make(2).await);
        assert!(matches!(paused.hand, Hand::MaySend(..)), "{:?}", paused.hand);
        clock.advance(waited);
        assert!(paused.make(1).await);
        let sends = matches!(paused.hand, Hand::AtTheSocket(..));
        assert_eq!(sends, name == "at", "{name}");
        Host::new(&other, &clock, &provider, "other", &task).finish().await;
        if !sends {
            paused.finish().await;
        }
        assert_eq!((provider.writes(id), provider.requests(id)), (1, requests), "{name}");
    }
}
