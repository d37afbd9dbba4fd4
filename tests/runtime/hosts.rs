//! Two hosts on one database: no lost update, no stale read, one winner.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use connector_store::domain::StoredEvent;
use connector_store::domain::document::{DocumentEvent, EntityTrimSet};
use connector_store::journal::{Append, Expected, NewEvent, Part, encode_event};
use connector_store::testing::{Fault, FaultyStorage, Gate};
use connector_store::{Claim, Error, MemoryJournal, Secret, SourceId, StreamKind, Timestamp};
use uuid::Uuid;

use crate::command_ids::operation;
use crate::common::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hosts_that_count_on_one_key_lose_no_update() {
    const EACH: i64 = 1_000;
    let (a, b, _) = two_hosts().await;
    let counters = [&a.store, &b.store].map(|store| {
        let handle = connector(store, "o");
        tokio::spawn(async move {
            for _ in 0..EACH {
                count_up(&handle).await.unwrap();
            }
        })
    });
    for counter in counters {
        bounded(counter).await.unwrap();
    }
    let state = connector(&a.store, "o").sync_state().await.unwrap().unwrap();
    assert_eq!((state.entity_count, state.version), (2 * EACH, 2 * EACH - 1));
    assert_eq!(connector(&b.store, "o").sync_state().await.unwrap(), Some(state));
    assert_sound(&a.store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hot_pipelines_of_two_hosts_on_one_key_all_come_through() {
    let (a, b, _) = two_hosts().await;
    let writes = (0..200).map(|index| {
        let handle = connector(if index % 2 == 0 { &a.store } else { &b.store }, "o");
        tokio::spawn(async move { count_up(&handle).await })
    });
    let mut versions = Vec::new();
    for write in writes.collect::<Vec<_>>() {
        versions.push(bounded(write).await.unwrap().unwrap().version);
    }
    versions.sort_unstable();
    assert_eq!(versions, (0..200).collect::<Vec<_>>());
    assert_sound(&b.store).await;
}

#[tokio::test]
async fn a_host_reads_what_another_was_acknowledged() {
    let (a, b, _) = two_hosts().await;
    let (writer, reader) = (a.store.document(&document("a")), b.store.document(&document("a")));
    for value in 0..200 {
        set_trim(&writer, value).await.unwrap();
        assert_eq!(trim(&reader).await, Some(value));
    }
    reader.clear_entity_trim().await.unwrap();
    assert_eq!(trim(&writer).await, None);
}

/// The database's time, and how often it was asked for: once by each question for a head, and once by
/// each batch.
fn counted_time() -> (MemoryJournal, Arc<AtomicI64>, Arc<AtomicU32>) {
    let (now, asked) = (Arc::new(AtomicI64::new(1_000)), Arc::new(AtomicU32::new(0)));
    let (time, count) = (Arc::clone(&now), Arc::clone(&asked));
    let journal = MemoryJournal::shared(Arc::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
        Timestamp::from_millis(time.load(Ordering::SeqCst))
    }));
    (journal, now, asked)
}

/// A host whose batches ask for the time once.
async fn host_in_one_step(journal: &MemoryJournal, seed: u64) -> Host {
    let faults = Arc::new(FaultyStorage::new(Arc::new(journal.open().unwrap())));
    let storage = Arc::clone(&faults);
    let host = host_on(journal, seed, |builder| builder.storage(storage as _)).await;
    Host { faults, ..host }
}

#[tokio::test]
async fn what_becomes_an_append_asks_for_no_head_and_what_is_answered_from_the_state_does() {
    let (journal, now, asked) = counted_time();
    let host = host_in_one_step(&journal, 1).await;
    let (handle, progress) = (host.store.document(&document("a")), connector(&host.store, "o"));
    set_trim(&handle, 0).await.unwrap();
    count_up(&progress).await.unwrap();
    let since = |before: u32| asked.load(Ordering::SeqCst) - before;
    let before = asked.load(Ordering::SeqCst);
    for value in 1..=10 {
        set_trim(&handle, value).await.unwrap();
        count_up(&progress).await.unwrap();
    }
    assert_eq!(since(before), 20, "each is one batch, and nothing else");
    assert_eq!(trim(&handle).await, Some(10));
    assert_eq!(since(before), 21, "a read asks");
    let renewed = progress.acquire_lease(&holder("h"), SECOND).await;
    assert!(renewed.is_ok());
    assert_eq!(since(before), 23, "what compares with the time asks, and is a batch");
    let document = host.store.document(&document("b"));
    let claim = document.claim_operation(&operation(), &holder("h"), SECOND).await;
    let Ok(Claim::Attempt(claimed)) = claim else { panic!("nobody else claims") };
    let before = asked.load(Ordering::SeqCst);
    claimed.mark_send_started().await.unwrap();
    assert_eq!(since(before), 2);
    claimed.finalize_committed(&SourceId::new("s").unwrap(), None, None).await.unwrap();
    assert_eq!(since(before), 3, "the end of an operation does not ask");
    let before = asked.load(Ordering::SeqCst);
    // What nobody has said for longer than a second is asked for again.
    host.clock.advance(SECOND * 2);
    now.fetch_add(2_000, Ordering::SeqCst);
    set_trim(&handle, 11).await.unwrap();
    assert_eq!(since(before), 2);
}

#[tokio::test]
async fn a_write_is_stamped_with_the_databases_time_as_last_told_and_never_ahead_of_it() {
    let (journal, now, _) = counted_time();
    let host = host_in_one_step(&journal, 1).await;
    let handle = host.store.document(&document("a"));
    set_trim(&handle, 1).await.unwrap();
    let stamp = || async { handle.entity_trim().await.unwrap().unwrap().updated_at.as_millis() };
    assert_eq!(stamp().await, 1_000);
    host.clock.advance(Duration::from_millis(500));
    now.store(1_600, Ordering::SeqCst);
    set_trim(&handle, 2).await.unwrap();
    assert_eq!(stamp().await, 1_500, "by this host's monotonic time since");
}

#[tokio::test]
async fn what_another_host_wrote_is_seen_by_what_is_decided_without_asking() {
    let (journal, _, asked) = counted_time();
    let (a, b) = (host_in_one_step(&journal, 1).await, host_in_one_step(&journal, 2).await);
    let (here, there) = (connector(&a.store, "o"), connector(&b.store, "o"));
    for round in 0..20 {
        assert_eq!(count_up(&here).await.unwrap().version, 2 * round);
        assert_eq!(count_up(&there).await.unwrap().version, 2 * round + 1);
    }
    // The same again is no change to a state that is not what is there any more.
    let (here, there) = (a.store.document(&document("a")), b.store.document(&document("a")));
    set_trim(&here, 1).await.unwrap();
    set_trim(&there, 2).await.unwrap();
    set_trim(&here, 1).await.unwrap();
    assert_eq!(trim(&there).await, Some(1));
    // Once another host was seen, the next write asks first; then this one is alone again.
    set_trim(&there, 3).await.unwrap();
    set_trim(&here, 4).await.unwrap();
    let before = asked.load(Ordering::SeqCst);
    set_trim(&here, 5).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst) - before, 2);
    set_trim(&here, 6).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst) - before, 3);
    assert_sound(&a.store).await;
}

/// The head that the other host's decision leaves has the version and the command that the next write
/// expects.
#[tokio::test]
async fn nothing_stands_on_a_refused_command_that_another_host_has_decided_as_well() {
    let (journal, now, _) = counted_time();
    let a = host_on(&journal, 1, |builder| builder).await;
    let b = host_on(&journal, 2, |builder| builder).await;
    let (mine, theirs) = (a.store.document(&document("a")), b.store.document(&document("a")));
    set_trim(&mine, 0).await.unwrap();
    let gate = Gate::new();
    a.faults.next_append(Fault::StallBefore(gate.clone()));
    let other = a.store.document(&document("other"));
    let stalled = tokio::spawn(async move { set_trim(&other, 0).await });
    bounded(gate.reached()).await;
    let id = Uuid::now_v7();
    // Each is decided on what this host knows, and in a batch of its own behind the stalled one.
    let mut writes = Vec::new();
    for (handle, value) in [(mine.with_command_id(id), 1), (mine.clone(), 2)] {
        writes.push(tokio::spawn(async move { set_trim(&handle, value).await }));
        settle().await;
        if value == 1 {
            set_trim(&theirs.with_command_id(id), 1).await.unwrap();
        }
    }
    now.store(9_000, Ordering::SeqCst);
    gate.open();
    bounded(stalled).await.unwrap().unwrap();
    for write in writes {
        bounded(write).await.unwrap().unwrap();
    }
    let stored = mine.entity_trim().await.unwrap().unwrap();
    assert_eq!(stored.trimmed_fields, json(2));
    assert_eq!(stored.updated_at.as_millis(), 9_000, "it was decided again");
}

#[tokio::test]
async fn a_state_that_was_deleted_and_made_anew_is_never_overwritten() {
    for (retries, succeeds) in [(Some(0), false), (None, true)] {
        let (a, b, _) = two_hosts().await;
        let (mine, other) = (connector(&a.store, "o"), connector(&b.store, "o"));
        count_up(&mine).await.unwrap();
        let calls = Arc::new(AtomicU32::new(0));
        let counted_calls = Arc::clone(&calls);
        let result = mine
            .update_sync_progress_with(retries, move |standing| {
                let (other, calls) = (other.clone(), Arc::clone(&counted_calls));
                async move {
                    if calls.fetch_add(1, Ordering::SeqCst) == 0 {
                        other.delete_sync_state().await.unwrap();
                        count_up(&other).await.unwrap();
                    }
                    let mut update = counted(standing.as_ref());
                    update.entity_count += 100;
                    update
                }
            })
            .await;
        assert_eq!(result.is_ok(), succeeds);
        if !succeeds {
            assert!(matches!(result, Err(Error::ProgressContention { attempts: 1, .. })));
        }
        assert_eq!(count(&mine).await, if succeeds { 102 } else { 1 });
        assert_eq!(calls.load(Ordering::SeqCst), if succeeds { 2 } else { 1 });
    }
}

#[tokio::test]
async fn a_contended_progress_gives_up_after_its_tries() {
    let (a, b, _) = two_hosts().await;
    let other = connector(&b.store, "o");
    let calls = AtomicU32::new(0);
    let result = connector(&a.store, "o")
        .update_sync_progress_with(None, |standing| {
            calls.fetch_add(1, Ordering::SeqCst);
            let other = other.clone();
            async move {
                count_up(&other).await.unwrap();
                counted(standing.as_ref())
            }
        })
        .await;
    assert!(matches!(result, Err(Error::ProgressContention { attempts: 6, .. })), "{result:?}");
    assert_eq!((calls.load(Ordering::SeqCst), count(&other).await), (6, 6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_consumers_on_two_hosts_one_gets_the_authorization() {
    let (a, b, _) = two_hosts().await;
    let record = pending_auth("state-1", 5_000);
    a.store.create_pending_auth(record.clone()).await.unwrap();
    assert_eq!(code(b.store.create_pending_auth(record.clone()).await), "CONNECTOR_ALREADY_EXISTS");
    let consumers = (0..20).map(|index| {
        let store = if index % 2 == 0 { a.store.clone() } else { b.store.clone() };
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
    assert_sound(&a.store).await;
}

#[tokio::test]
async fn expiry_deletes_what_is_before_the_cutoff_and_keeps_what_is_at_it() {
    let host = host().await;
    for (state, expires_at) in [("before", 999), ("at", 1_000), ("behind", 1_001)] {
        host.store.create_pending_auth(pending_auth(state, expires_at)).await.unwrap();
    }
    // Long expired, and still there: whether that is too late is the caller's to judge.
    host.clock.advance(SECOND * 10_000);
    let cutoff = Timestamp::from_millis(1_000);
    assert_eq!(host.store.delete_expired_pending_auths(cutoff).await.unwrap(), 1);
    assert_eq!(host.store.delete_expired_pending_auths(cutoff).await.unwrap(), 0);
    let consume = |state: &str| {
        let (store, state) = (host.store.clone(), Secret::new(state));
        async move { code(store.consume_pending_auth(&state).await) }
    };
    assert_eq!(consume("before").await, "CONNECTOR_NOT_FOUND");
    assert_eq!(consume("at").await, "ok");
    assert_eq!(consume("behind").await, "ok");
    assert_eq!(consume("at").await, "CONNECTOR_ALREADY_CONSUMED");
    assert_sound(&host.store).await;
}

/// What a rival host writes: a trim of another owner.
fn rival_append(head: Expected, value: i64) -> Append {
    let event = DocumentEvent::EntityTrimSet(EntityTrimSet {
        owner: owner("rival"),
        connector: folder(),
        trimmed_fields: json(value),
        updated_at: Timestamp::from_millis(value),
    });
    let new = NewEvent {
        event_type: event.event_type(),
        schema: event.schema(),
        payload: encode_event(&event).unwrap(),
        is_swept: false,
    };
    let part = Part {
        stream: document_key("a").stream_name(),
        kind: StreamKind::Document,
        expected: head,
        events: vec![new],
        rows: Vec::new(),
        snapshot: None,
        erase: false,
        trim: false,
    };
    let command_id = Uuid::new_v4();
    Append { command_id, record: None, parts: vec![part], fences: Vec::new(), absent: Vec::new() }
}

fn rivals(faults: Arc<FaultyStorage>, left: i64) {
    let again = Arc::clone(&faults);
    faults.rival(document_key("a").stream_name(), move |head| {
        if left > 1 {
            rivals(again, left - 1);
        }
        rival_append(head, left)
    });
}

#[tokio::test]
async fn what_lost_to_a_rival_is_decided_again_on_its_state() {
    let (a, _b, _) = two_hosts().await;
    rivals(Arc::clone(&a.faults), 3);
    let handle = a.store.document(&document("a"));
    set_trim(&handle, 7).await.unwrap();
    assert_eq!(a.faults.faults_done(), 3);
    let stored = handle.entity_trim().await.unwrap().unwrap();
    assert_eq!((stored.owner, stored.trimmed_fields), (owner("rival"), json(7)));
}

#[tokio::test]
async fn what_loses_again_and_again_is_contention() {
    let (a, _b, _) = two_hosts().await;
    rivals(Arc::clone(&a.faults), 1_000);
    let handle = a.store.document(&document("a"));
    let error = bounded(set_trim(&handle, 7)).await.unwrap_err();
    assert!(matches!(error, Error::Contention) && error.is_retryable());
    assert!(a.faults.faults_done() < 300, "the tries are bounded");
    a.faults.heal();
    set_trim(&handle, 8).await.unwrap();
    assert_eq!(trim(&handle).await, Some(8));
}

#[tokio::test]
async fn a_host_that_is_cut_off_answers_retryable_errors_and_recovers_by_itself() {
    let (a, b, _) = two_hosts().await;
    let (here, there) = (a.store.document(&document("a")), b.store.document(&document("a")));
    set_trim(&here, 1).await.unwrap();
    a.faults.set_offline(true);
    for _ in 0..3 {
        assert!(set_trim(&here, 2).await.unwrap_err().is_retryable());
        assert!(here.entity_trim().await.unwrap_err().is_retryable());
        let unit = a.store.unit_of_work([document_key("a")]).await;
        assert!(unit.unwrap_err().is_retryable());
    }
    set_trim(&there, 3).await.unwrap();
    a.faults.set_offline(false);
    assert_eq!(trim(&here).await, Some(3));
    set_trim(&here, 4).await.unwrap();
    assert_eq!(trim(&there).await, Some(4));
}

#[tokio::test]
async fn a_panic_while_heads_are_confirmed_is_of_those_alone_who_wait() {
    let panics = Arc::new(AtomicBool::new(false));
    let once = Arc::clone(&panics);
    let journal = MemoryJournal::shared(Arc::new(move || {
        assert!(!once.swap(false, Ordering::SeqCst), "the storage panics as it was told to");
        Timestamp::from_millis(1)
    }));
    let host = host_on(&journal, 1, |builder| builder).await;
    let handle = host.store.document(&document("a"));
    set_trim(&handle, 1).await.unwrap();
    for _ in 0..2 {
        panics.store(true, Ordering::SeqCst);
        let error = bounded(handle.entity_trim()).await.unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert_eq!(bounded(trim(&handle)).await, Some(1));
        panics.store(true, Ordering::SeqCst);
        let unit = bounded(host.store.unit_of_work([document_key("a")])).await;
        assert!(unit.is_err());
        assert!(bounded(host.store.unit_of_work([document_key("b")])).await.is_ok());
    }
    bounded(host.store.close()).await.unwrap();
}
