//! Two hosts that write the same keys: no lost update, no stale answer, no deadlock, one winner.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use connector_store::testing::{Fault, Gate, Stage};
use connector_store::{Error, Secret, Store, StreamKey};

use crate::common::*;
use crate::world::{Host, World, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_count_on_one_key_lose_no_update() {
    const CALLERS: i64 = 8;
    const EACH: i64 = 25;
    let Some(world) = World::new() else { return };
    let hosts = world.hosts().await;
    let counters = (0..CALLERS).map(|caller| {
        let handle = connector(&hosts[usize::from(caller % 2 == 0)].store, "o");
        tokio::spawn(async move {
            for _ in 0..EACH {
                count_up(&handle).await.unwrap();
            }
        })
    });
    for counter in counters.collect::<Vec<_>>() {
        bounded(counter).await.unwrap();
    }
    let states = hosts.each_ref().map(|host| connector(&host.store, "o"));
    let state = states[0].sync_state().await.unwrap().unwrap();
    assert_eq!((state.entity_count, state.version), (CALLERS * EACH, CALLERS * EACH - 1));
    assert_eq!(states[1].sync_state().await.unwrap(), Some(state));
    assert_eq!(world.events(), CALLERS * EACH);
    assert_sound(&hosts[0].store).await;
}

/// While a third session holds one of the keys, both hosts stand in the middle of their locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_touch_the_same_keys_in_opposite_orders_never_deadlock() {
    const KEYS: i64 = 10;
    const ROUNDS: i64 = 5;
    let Some(world) = World::new() else { return };
    let hosts = world.hosts().await;
    let mut third = world.session().await;
    let names: Vec<_> = (0..KEYS).map(|key| format!("o{key}")).collect();
    for name in &names {
        count_up(&connector(&hosts[0].store, name)).await.unwrap();
    }
    for _ in 0..ROUNDS {
        let middle = "BEGIN; SELECT FROM connector_stream WHERE name LIKE '%o5%' FOR UPDATE";
        run(&mut third, middle).await;
        let writes = [0, 1].map(|at| {
            let (store, mut names) = (hosts[at].store.clone(), names.clone());
            if at == 1 {
                names.reverse();
            }
            tokio::spawn(async move { count_up_together(&store, &names).await })
        });
        world.until_locked_out(2).await;
        run(&mut third, "ROLLBACK").await;
        for write in writes {
            bounded(write).await.unwrap();
        }
    }
    for name in &names {
        assert_eq!(count(&connector(&hosts[0].store, name)).await, 1 + 2 * ROUNDS);
    }
    assert_eq!(world.errors("deadlock"), [""; 0]);
    assert_sound(&hosts[1].store).await;
}

/// Counts up all of them in one append, however often another host comes between.
async fn count_up_together(store: &Store, names: &[String]) {
    let keys = || names.iter().map(|name| StreamKey::Connector(owner(name), folder()));
    loop {
        let counted = async {
            let unit = store.unit_of_work(keys()).await?;
            for name in names {
                count_up(&unit.connector(&owner(name), &folder())).await?;
            }
            unit.commit().await
        };
        match counted.await {
            Ok(()) => return,
            Err(error) => assert!(matches!(error, Error::Contention), "{error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_of_two_hosts_over_the_same_keys_are_whole() {
    const EACH: i64 = 15;
    let Some(world) = World::new() else { return };
    let hosts = world.hosts().await;
    let workers = hosts.each_ref().map(|host| {
        let store = host.store.clone();
        tokio::spawn(async move {
            for _ in 0..EACH {
                count_up_together(&store, &["x".to_owned(), "y".to_owned()]).await;
            }
        })
    });
    for worker in workers {
        bounded(worker).await.unwrap();
    }
    for name in ["x", "y"] {
        assert_eq!(count(&connector(&hosts[1].store, name)).await, 2 * EACH);
    }
    assert_sound(&hosts[0].store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warm_actor_answers_nothing_from_before_another_hosts_acknowledged_write() {
    let Some(world) = World::new() else { return };
    let hosts = world.hosts().await;
    let handles = hosts.each_ref().map(|host| host.store.document(&document("a")));
    let locks = hosts.each_ref().map(|host| connector(&host.store, "o"));
    for value in 0..40 {
        let (writer, reader) = (usize::from(value % 2 == 0), usize::from(value % 2 == 1));
        set_trim(&handles[writer], value).await.unwrap();
        assert_eq!(trim(&handles[reader]).await, Some(value), "a read");
        let lease = locks[writer].acquire_lease(&holder("w"), COMMAND_TIMEOUT).await.unwrap();
        let held = locks[reader].acquire_lease(&holder("r"), SECOND).await;
        assert_eq!(code(held), "CONNECTOR_LEASE_HELD", "a refusal");
        lease.release().await.unwrap();
        let taken = locks[reader].acquire_lease(&holder("r"), SECOND).await.unwrap();
        taken.release().await.unwrap();
    }
}

/// The first of two appends that are under way loses to another host. By its number alone the
/// second would fit behind the other host's event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_decided_behind_an_append_that_lost_is_decided_again() {
    let Some(world) = World::new() else { return };
    let [a, b] = world.hosts().await;
    let (here, there) = (connector(&a.store, "o"), connector(&b.store, "o"));
    count_up(&here).await.unwrap();
    let gate = Gate::new();
    a.faults.next_append(Fault::StallBefore(gate.clone()));
    let first = tokio::spawn({
        let here = here.clone();
        async move { count_up(&here).await }
    });
    bounded(gate.reached()).await;
    let sent = a.store.stats().commands;
    let second = tokio::spawn({
        let here = here.clone();
        async move { count_up(&here).await }
    });
    until(|| a.store.stats().commands > sent).await;
    settle().await;
    assert_eq!(count_up(&there).await.unwrap().version, 1);
    gate.open();
    let (first, second) = (bounded(first).await.unwrap(), bounded(second).await.unwrap());
    assert_eq!((first.unwrap().version, second.unwrap().version), (2, 3));
    assert_eq!((count(&there).await, world.events()), (4, 4));
    assert_sound(&a.store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_that_was_deleted_and_made_anew_is_never_overwritten() {
    let Some(world) = World::new() else { return };
    let [a, b] = world.hosts().await;
    let (mine, other) = (connector(&a.store, "o"), connector(&b.store, "o"));
    let mut version = 0;
    for (retries, expected) in [(Some(0), "CONNECTOR_PROGRESS_CONTENTION"), (None, "ok")] {
        // Both sides stand at the same version when the state is made anew.
        count_up(&mine).await.unwrap();
        let calls = Arc::new(AtomicU32::new(0));
        let result = mine
            .update_sync_progress_with(retries, |standing| {
                let (other, calls) = (other.clone(), Arc::clone(&calls));
                async move {
                    if calls.fetch_add(1, Ordering::SeqCst) == 0 {
                        other.delete_sync_state().await.unwrap();
                        for _ in 0..=standing.as_ref().unwrap().version {
                            count_up(&other).await.unwrap();
                        }
                    }
                    let mut update = counted(standing.as_ref());
                    update.entity_count += 100;
                    update
                }
            })
            .await;
        assert_eq!(code(result), expected);
        version += 1;
        let expected = if retries.is_none() { version + 101 } else { version };
        assert_eq!(count(&mine).await, expected, "what the other host made anew");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_consumers_on_two_hosts_one_gets_the_authorization() {
    let Some(world) = World::new() else { return };
    let hosts = world.hosts().await;
    let record = pending_auth("state-1", 5_000);
    hosts[0].store.create_pending_auth(record.clone()).await.unwrap();
    let again = hosts[1].store.create_pending_auth(record.clone()).await;
    assert_eq!(code(again), "CONNECTOR_ALREADY_EXISTS");
    let consumers = (0..20).map(|index| {
        let store = hosts[index % 2].store.clone();
        tokio::spawn(async move { store.consume_pending_auth(&Secret::new("state-1")).await })
    });
    let mut won = Vec::new();
    for consumer in consumers.collect::<Vec<_>>() {
        match bounded(consumer).await.unwrap() {
            Ok(record) => won.push(record),
            Err(error) => assert!(matches!(error, Error::AlreadyConsumed), "{error}"),
        }
    }
    assert_eq!(won, [record]);
    let other = hosts[1].store.consume_pending_auth(&Secret::new("state-1")).await;
    assert_eq!(code(other), "CONNECTOR_ALREADY_CONSUMED");
    assert_sound(&hosts[0].store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_creators_on_two_hosts_one_makes_the_authorization() {
    let Some(world) = World::new() else { return };
    let hosts = world.hosts().await;
    let creators = (0..20).map(|index| {
        let store = hosts[index % 2].store.clone();
        tokio::spawn(async move { store.create_pending_auth(pending_auth("s", 5_000)).await })
    });
    let mut answers = Vec::new();
    for creator in creators.collect::<Vec<_>>() {
        answers.push(code(bounded(creator).await.unwrap()));
    }
    answers.sort_unstable();
    let mut expected = vec!["CONNECTOR_ALREADY_EXISTS"; 19];
    expected.push("ok");
    assert_eq!(answers, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_bad_append_among_fifty_fails_alone() {
    let Some(world) = World::new() else { return };
    let host = world.host().await;
    let lease = connector(&host.store, "o").acquire_lease(&holder("a"), SECOND).await.unwrap();
    let lost = lease.session();
    lease.release().await.unwrap();
    let neighbours = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&neighbours);
    host.faults.observe(move |stage, batch| {
        let bad = document_key("25").stream_name();
        if batch.iter().any(|append| append.parts[0].stream == bad) && stage == Stage::AfterCommit {
            seen.fetch_add(batch.len() - 1, Ordering::SeqCst);
        }
    });
    // On a busy machine some of them may come too late to gather.
    for _ in 0..20 {
        let gate = Gate::new();
        host.faults.next_append(Fault::StallBefore(gate.clone()));
        let first = host.store.document(&document("first"));
        let stalled = tokio::spawn(async move { set_trim(&first, 1).await });
        bounded(gate.reached()).await;
        let writes = fifty(&host, &lost).await;
        gate.open();
        bounded(stalled).await.unwrap().unwrap();
        for (index, write) in writes.into_iter().enumerate() {
            let expected = if index == 25 { "CONNECTOR_LEASE_LOST" } else { "ok" };
            assert_eq!(bounded(write).await.unwrap(), expected, "{index}");
        }
        if neighbours.load(Ordering::SeqCst) > 0 {
            return assert_sound(&host.store).await;
        }
    }
    panic!("they never gathered");
}

/// Fifty writes that gather in one batch; one of them is under a lost lease.
async fn fifty(
    host: &Host,
    lost: &connector_store::Session,
) -> Vec<tokio::task::JoinHandle<&'static str>> {
    let sent = host.store.stats().commands;
    let writes = (0..50).map(|index| {
        let name = document(index);
        let handle = if index == 25 { lost.document(&name) } else { host.store.document(&name) };
        tokio::spawn(async move { code(set_trim(&handle, index).await) })
    });
    let writes = writes.collect();
    // Each is decided on a head that was confirmed after it came.
    until(|| host.store.stats().commands == sent + 50).await;
    for _ in 0..200 {
        settle().await;
    }
    writes
}
