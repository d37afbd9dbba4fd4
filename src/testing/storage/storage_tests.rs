//! Every fault, by its effect on the storage and its caller.

use std::pin::pin;
use std::task::Waker;

use super::*;
use crate::base::{Error, StorageFault, StreamKind};
use crate::domain::RowChange;
use crate::journal::memory::MemoryJournal;
use crate::journal::{AppendOutcome, BatchError, HistoryCut, NewEvent, NewSnapshot, Part, suite};

fn append(command: u128, expected: Expected) -> Append {
    append_to("document:a", command, expected)
}

fn append_to(stream: &str, command: u128, expected: Expected) -> Append {
    let event = NewEvent { event_type: 2, schema: 1, payload: vec![1], is_swept: false };
    let part = Part {
        stream: StreamName::from(stream),
        kind: StreamKind::Document,
        expected,
        events: vec![event],
        rows: Vec::new(),
        snapshot: None,
        erase: false,
        trim: false,
    };
    let command_id = Uuid::from_u128(command);
    Append { command_id, record: None, parts: vec![part], fences: Vec::new(), absent: Vec::new() }
}

fn faulty() -> FaultyStorage {
    FaultyStorage::new(Arc::new(MemoryJournal::new().open().unwrap()))
}

async fn written(storage: &FaultyStorage) -> usize {
    storage.inner.events(0, 100).await.unwrap().len()
}

#[tokio::test]
async fn without_a_script_nothing_goes_wrong() {
    suite::run(async || faulty()).await;
}

#[tokio::test]
async fn a_scripted_fault_comes_once() {
    type IsRight = fn(&Result<Vec<AppendOutcome>, BatchError>) -> bool;
    let fail = || Fault::Fail(Error::storage(StorageFault::Full, "no room"));
    let cases: [(Fault, usize, IsRight); 5] = [
        (Fault::None, 1, |result| result.is_ok()),
        (fail(), 0, |result| matches!(result, Err(BatchError::Failed(Error::Storage { .. })))),
        (Fault::Passing, 0, |result| matches!(result, Err(BatchError::Passing(_)))),
        (Fault::LoseAcknowledgement, 1, |result| matches!(result, Err(BatchError::Unknown(_)))),
        (Fault::LoseCommit, 0, |result| matches!(result, Err(BatchError::Unknown(_)))),
    ];
    for (fault, events, is_right) in cases {
        let storage = faulty();
        let case = format!("{fault:?}");
        storage.next_append(fault);
        let batch = [append(1, Expected::NONE)];
        let result = storage.append(&batch, Timestamp::default()).await;
        assert!(is_right(&result), "{case}: {result:?}");
        assert_eq!(written(&storage).await, events, "{case}");
        let found = storage.look_up(&batch[0]).await.unwrap();
        assert_eq!(found.is_some(), events == 1, "{case}");
        let outcomes = storage.append(&batch, Timestamp::default()).await.unwrap();
        assert_eq!(outcomes == [AppendOutcome::Conflict], events == 1, "{case}");
    }
}

#[tokio::test]
async fn a_stalled_append_waits_at_its_gate() {
    type Stall = fn(Gate) -> Fault;
    let cases: [(Stall, usize); 2] = [(Fault::StallBefore, 0), (Fault::StallAfter, 1)];
    for (stall, events_at_gate) in cases {
        let storage = Arc::new(faulty());
        let gate = Gate::new();
        storage.next_append(stall(gate.clone()));
        let writer = Arc::clone(&storage);
        let task = tokio::spawn(async move {
            writer.append(&[append(1, Expected::NONE)], Timestamp::default()).await
        });
        gate.reached().await;
        assert_eq!(written(&storage).await, events_at_gate);
        assert!(!task.is_finished());
        gate.open();
        assert!(task.await.unwrap().is_ok());
        assert_eq!(written(&storage).await, 1);
    }
}

#[tokio::test]
async fn the_database_has_the_time_that_it_is_given() {
    let clock = super::super::SimClock::new(Timestamp::from_millis(7));
    let storage = faulty().with_time(Arc::new(clock.clone()));
    clock.advance(std::time::Duration::from_millis(2));
    assert_eq!(storage.confirm_heads(&[]).await.unwrap().now, Timestamp::from_millis(9));
    assert_ne!(faulty().confirm_heads(&[]).await.unwrap().now, Timestamp::from_millis(9));
}

#[tokio::test]
async fn a_rival_writes_first_and_the_append_conflicts() {
    let storage = faulty();
    storage.rival(StreamName::from("document:a"), |head| append(9, head));
    let outcomes = storage.append(&[append(1, Expected::NONE)], Timestamp::default()).await;
    assert_eq!(outcomes.unwrap(), [AppendOutcome::Conflict]);
    let events = storage.events(0, 9).await.unwrap();
    assert_eq!(events[0].command_id, Uuid::from_u128(9));
    assert_eq!((events.len(), storage.faults_done()), (1, 1));
}

#[tokio::test]
async fn a_panic_writes_nothing_and_is_over() {
    let storage = Arc::new(faulty());
    storage.next_append(Fault::Panic);
    let writer = Arc::clone(&storage);
    let write = async move {
        writer.append(&[append(1, Expected::NONE)], Timestamp::default()).await.is_ok()
    };
    assert!(tokio::spawn(write).await.is_err());
    assert_eq!(written(&storage).await, 0);
    assert!(storage.append(&[append(1, Expected::NONE)], Timestamp::default()).await.is_ok());
}

#[tokio::test]
async fn an_offline_storage_answers_nothing_until_it_is_healed() {
    let storage = faulty();
    storage.set_offline(true);
    let batch = [append(1, Expected::NONE)];
    assert!(storage.append(&batch, Timestamp::default()).await.is_err());
    assert!(storage.look_up(&batch[0]).await.is_err_and(|error| error.is_retryable()));
    storage.heal();
    assert!(storage.append(&batch, Timestamp::default()).await.is_ok());
}

#[tokio::test]
async fn an_observer_hears_of_each_commit_before_and_after() {
    let storage = faulty();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ears = Arc::clone(&heard);
    storage.observe(move |stage, batch| ears.lock().unwrap().push((stage, batch.len())));
    storage.next_append(Fault::LoseAcknowledgement);
    let _ = storage.append(&[append(1, Expected::NONE)], Timestamp::default()).await;
    let heard = heard.lock().unwrap();
    assert_eq!(*heard, [(Stage::BeforeCommit, 1), (Stage::AfterCommit, 1)]);
}

#[tokio::test]
async fn a_seed_replays_its_faults() {
    let chances = Chances {
        fail: 100,
        passing: 100,
        lose_acknowledgement: 100,
        lose_commit: 100,
        stall: 100,
        full: 50,
        rival: 100,
        kill: 0,
    };
    let mut runs = Vec::new();
    for seed in [1, 1, 2] {
        let inner = Arc::new(MemoryJournal::new().open().unwrap());
        let storage = FaultyStorage::random(inner, seed, chances);
        let mut run = String::new();
        for command in 1..=200 {
            let batch = [append_to(&format!("document:{command}"), command, Expected::NONE)];
            run.push(match storage.append(&batch, Timestamp::default()).await {
                Ok(outcomes) if outcomes == [AppendOutcome::Conflict] => 'c',
                Ok(_) => 'o',
                Err(BatchError::Passing(_)) => 'p',
                Err(BatchError::Failed(Error::Storage { fault: StorageFault::Full, .. })) => 'd',
                Err(BatchError::Failed(_)) => 'f',
                Err(BatchError::Unknown(_)) => 'u',
            });
        }
        for fault in ['o', 'c', 'p', 'd', 'f', 'u'] {
            assert!(run.contains(fault), "{fault} in {run}");
        }
        runs.push(run);
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}

#[tokio::test]
async fn a_stamped_row_comes_back_when_the_lost_acknowledgement_is_looked_up() {
    use crate::domain::{Table, Value};

    let storage = faulty();
    let mut batch = [append(1, Expected::NONE)];
    let row = |written_at| {
        let texts = ["a", "did:web:o", "f", "d"].map(Value::text);
        let rest = [Value::Int(1), Value::Null, written_at];
        Row::new(Table::ObservationRepair, texts.into_iter().chain(rest).collect())
    };
    batch[0].parts[0].rows = vec![RowChange::Put(row(Value::Stamp))];
    storage.next_append(Fault::LoseAcknowledgement);
    let result = storage.append(&batch, Timestamp::from_millis(5)).await;
    assert!(matches!(result, Err(BatchError::Unknown(_))), "{result:?}");
    let found = storage.look_up(&batch[0]).await.unwrap();
    let taken = vec![row(Value::Int(5))];
    assert_eq!(found, Some(AppendOutcome::Committed { taken }));
}

fn is_full<T>(result: Result<T>) -> bool {
    let Err(error) = result else { return false };
    error.is_retryable() && matches!(error, Error::Storage { fault: StorageFault::Full, .. })
}

async fn is_append_full(storage: &FaultyStorage, command: u128) -> bool {
    match storage.append(&[append(command, Expected::NONE)], Timestamp::default()).await {
        Err(BatchError::Failed(error)) => is_full::<()>(Err(error)),
        _ => false,
    }
}

#[tokio::test]
async fn on_a_full_disk_no_write_goes_and_every_read() {
    let storage = faulty();
    let now = Timestamp::default();
    storage.append(&[append(1, Expected::NONE)], now).await.unwrap();
    storage.set_full(true);
    assert!(is_append_full(&storage, 2).await);
    let head = storage.load("document:a").await.unwrap().head.unwrap().expected();
    let snapshot = NewSnapshot { schema: 1, payload: vec![1] };
    assert!(is_full(storage.write_snapshot("document:a", head, snapshot).await));
    assert!(is_full(storage.cut_history(HistoryCut { recorded_before: now, limit: 1 }).await));
    assert!(is_full(storage.drop_streams(&[("document:a".into(), head)]).await));
    assert!(is_full(storage.drop_commands(now).await));
    assert!(is_full(storage.replace_rows(&[], &[]).await));
    assert!(is_full(storage.begin_restore(now).await));
    assert!(is_full(storage.end_restore(1).await));
    assert!(is_full(storage.idle().await));
    let mut condition = append(3, head);
    condition.parts[0].events.clear();
    let outcomes = storage.append(&[condition], now).await.unwrap();
    assert_eq!(outcomes, [AppendOutcome::Committed { taken: Vec::new() }]);
    assert_eq!(written(&storage).await, 1);
    storage.set_full(false);
    storage.append(&[append(2, head)], now).await.unwrap();
    assert_eq!(written(&storage).await, 2);
}

#[tokio::test]
async fn a_disk_can_be_full_for_some_appends() {
    let storage = faulty();
    storage.next_append(Fault::Full(3));
    let mut full = Vec::new();
    for command in 1..=4 {
        full.push(is_append_full(&storage, command).await);
    }
    assert_eq!((full, written(&storage).await), (vec![true, true, true, false], 1));
    storage.next_append(Fault::Full(3));
    assert!(is_append_full(&storage, 5).await);
    storage.heal();
    assert!(!is_append_full(&storage, 6).await);
}

#[tokio::test]
async fn what_a_rival_outruns_conflicts_with_all_that_stands_on_it_and_nothing_else() {
    let behind = |command| Expected { version: 1, command_id: Uuid::from_u128(command) };
    let batch = [
        append_to("document:a", 1, Expected::NONE),
        append_to("document:b", 2, Expected::NONE),
        append_to("document:a", 3, behind(1)),
        append_to("document:b", 4, behind(2)),
    ];
    let done = || AppendOutcome::Committed { taken: Vec::new() };
    let (conflict, mut chosen) = (AppendOutcome::Conflict, [0, 0]);
    for seed in 0..20 {
        let inner = Arc::new(MemoryJournal::new().open().unwrap());
        let storage = FaultyStorage::random(inner, seed, Chances::default());
        storage.next_append(Fault::Rival);
        let outcomes = storage.append(&batch, Timestamp::default()).await.unwrap();
        let a_is_outrun = outcomes[0] == conflict;
        let expected = match a_is_outrun {
            true => [conflict.clone(), done(), conflict.clone(), done()],
            false => [done(), conflict.clone(), done(), conflict.clone()],
        };
        assert_eq!(outcomes, expected, "seed {seed}");
        assert_eq!((written(&storage).await, storage.faults_done()), (2, 1));
        chosen[usize::from(a_is_outrun)] += 1;
        let again = storage.append(&batch, Timestamp::default()).await.unwrap();
        let left = if a_is_outrun { &again[0] } else { &again[1] };
        assert_eq!(*left, done(), "no rival has moved the head");
    }
    assert!(chosen.iter().all(|times| *times > 0), "{chosen:?}");
}

/// Polls a call once: a storage in memory answers at once, or never.
fn is_answered<T>(call: impl Future<Output = T>) -> bool {
    let mut context = std::task::Context::from_waker(Waker::noop());
    let call = pin!(tokio::task::unconstrained(call));
    call.poll(&mut context).is_ready()
}

#[tokio::test]
async fn what_is_killed_never_answers_and_its_journal_opens_anew() {
    let journal = MemoryJournal::new();
    let storage = FaultyStorage::new(Arc::new(journal.open().unwrap()));
    storage.append(&[append(1, Expected::NONE)], Timestamp::default()).await.unwrap();
    assert!(is_answered(storage.load("document:a")), "it answers while it lives");
    assert!(journal.open().is_err());
    storage.kill().await;
    storage.kill().await;
    storage.heal();
    let batch = [append(2, Expected::NONE)];
    let snapshot = NewSnapshot { schema: 1, payload: vec![1] };
    assert!(!is_answered(storage.append(&batch, Timestamp::default())));
    assert!(!is_answered(storage.load("document:a")));
    assert!(!is_answered(storage.look_up(&batch[0])));
    assert!(!is_answered(storage.confirm_heads(&[])));
    assert!(!is_answered(storage.write_snapshot("document:a", Expected::NONE, snapshot)));
    assert!(!is_answered(storage.events(0, 1)));
    assert!(!is_answered(storage.close()));
    storage.next_append(Fault::Passing);
    assert!(!is_answered(storage.append(&batch, Timestamp::default())), "nor with a fault");
    assert_eq!(journal.open().unwrap().events(0, 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_batch_under_way_at_the_kill_is_written_whole_or_not_at_all() {
    let mut counts = [0_usize; 3];
    for seed in 0..40 {
        let journal = MemoryJournal::new();
        let inner = Arc::new(journal.open().unwrap());
        let storage = FaultyStorage::random(inner, seed, Chances::default());
        let gate = Gate::new();
        let is_stalled = seed % 2 == 0;
        storage.next_append(if is_stalled {
            Fault::StallBefore(gate.clone())
        } else {
            Fault::Kill
        });
        let behind = Expected { version: 1, command_id: Uuid::from_u128(1) };
        let batch = [append(1, Expected::NONE), append(2, behind)];
        let mut call = pin!(storage.append(&batch, Timestamp::default()));
        assert!(!is_answered(&mut call));
        if is_stalled {
            storage.kill().await;
        }
        let reader = journal.open().unwrap();
        let left = reader.events(0, 9).await.unwrap().len();
        gate.open();
        assert!(!is_answered(call), "it is never answered");
        assert_eq!(reader.events(0, 9).await.unwrap().len(), left, "nor written later");
        counts[left] += 1;
    }
    assert!(counts[0] > 5 && counts[1] == 0 && counts[2] > 5, "{counts:?}");
}

#[tokio::test]
async fn what_was_written_before_the_kill_stays_and_is_not_acknowledged() {
    let journal = MemoryJournal::new();
    let storage = FaultyStorage::new(Arc::new(journal.open().unwrap()));
    let gate = Gate::new();
    storage.next_append(Fault::StallAfter(gate.clone()));
    let batch = [append(1, Expected::NONE)];
    let mut call = pin!(storage.append(&batch, Timestamp::default()));
    assert!(!is_answered(&mut call));
    storage.kill().await;
    gate.open();
    assert!(!is_answered(call));
    assert_eq!(journal.open().unwrap().events(0, 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn by_chance_a_process_dies_at_the_same_append_for_the_same_seed() {
    let lived = async |seed| {
        let inner = Arc::new(MemoryJournal::new().open().unwrap());
        let storage =
            FaultyStorage::random(inner, seed, Chances { kill: 20, ..Chances::default() });
        (1..10_000_u128)
            .take_while(|command| {
                let stream = format!("document:{command}");
                let batch = [append_to(&stream, *command, Expected::NONE)];
                is_answered(storage.append(&batch, Timestamp::default()))
            })
            .count()
    };
    let lives = [lived(1).await, lived(1).await, lived(2).await];
    assert!(lives[0] == lives[1] && lives[0] != lives[2] && lives[2] < 1_000, "{lives:?}");
}
