//! Every fault, by its effect on the storage and its caller.

use super::*;
use crate::base::StreamKind;
use crate::journal::memory::MemoryJournal;
use crate::journal::{NewEvent, Part, suite};

fn append(command: u128, expected: Expected) -> Append {
    let event = NewEvent { event_type: 2, schema: 1, payload: vec![1], is_swept: false };
    let part = Part {
        stream: StreamName::from("document:a"),
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
    };
    let mut runs = Vec::new();
    for seed in [1, 1, 2] {
        let inner = Arc::new(MemoryJournal::new().open().unwrap());
        let storage = FaultyStorage::random(inner, seed, chances);
        let mut run = String::new();
        for command in 1..=200 {
            let batch = [append(command, Expected::NONE)];
            run.push(match storage.append(&batch, Timestamp::default()).await {
                Ok(_) => 'o',
                Err(BatchError::Passing(_)) => 'p',
                Err(BatchError::Failed(_)) => 'f',
                Err(BatchError::Unknown(_)) => 'u',
            });
        }
        for fault in ['o', 'p', 'f', 'u'] {
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
