//! A process that is killed loses nothing that it answered, and leaves nothing torn.
//!
//! A child process (this test binary, started anew) opens a store and works on it from many tasks.
//! It says what it sends and what was answered, until its parent kills it at a moment drawn from the
//! round's seed, often right after a commit has begun. Then the parent opens the file and compares:
//! of every task there must be exactly what was acknowledged, or that and the one command that was
//! in flight. Several rounds go on over one file.
//!
//! `CRASH_ROUNDS` and `CRASH_SEED` in the environment change how many rounds there are, and what
//! they do.
#![cfg(all(feature = "sqlite", unix))]
// A test that cannot go on should stop.
#![allow(clippy::unwrap_used)]

#[path = "crash/child.rs"]
mod child;
#[path = "crash/found.rs"]
mod found;
#[path = "crash/names.rs"]
mod names;
#[path = "crash/work.rs"]
mod work;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use child::{Line, MARK, Start};
use connector_store::journal::Storage;
use connector_store::{Error, Store};
use uuid::Uuid;
use work::{Auth, Op, Random, TASKS, TaskState, Way};

const CHILD: &str = "CRASH_TEST_DIRECTORY";
const ROUNDS: u64 = 55;
/// Rounds over one file.
const ROUNDS_PER_FILE: u64 = 8;
/// Acknowledgements without which a round does not count.
const MIN_ACKNOWLEDGED: usize = 100;
/// Part of the rounds that must have been killed inside a commit.
const MIN_INSIDE_PART: u64 = 5;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Works, when the parent has started it, until it is killed.
#[test]
fn child_that_works() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let directory = Path::new(&directory);
    let start = std::fs::read(directory.join("start.json")).unwrap();
    let start: Start = serde_json::from_slice(&start).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(child::work(&directory.join("store.db"), start));
}

/// What was heard of a task.
struct Heard {
    acknowledged: TaskState,
    in_flight: Option<Op>,
}

/// The line after which the signal is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Any,
    CommitBegins,
    CommitEnds,
}

/// When a round ends.
struct Moment {
    acknowledgements: usize,
    after: After,
    /// Turns of an empty loop between the line and the signal, so that it falls elsewhere within a
    /// commit each time.
    turns: usize,
}

/// Runs a child until its moment comes, and says whether a commit was under way.
fn run_and_kill(directory: &Path, moment: &Moment, heard: &mut [Heard]) -> (usize, bool) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_works", "--nocapture", "--test-threads=1"])
        .env(CHILD, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut acknowledged, mut is_inside, mut is_killed) = (0, false, false);
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some((_, line)) = line.split_once(MARK) else { continue };
        let line: Line = serde_json::from_str(line).unwrap();
        let fits = match moment.after {
            After::Any => true,
            After::CommitBegins => matches!(line, Line::CommitBegins),
            After::CommitEnds => matches!(line, Line::CommitEnds),
        };
        match line {
            Line::CommitBegins => is_inside = true,
            Line::CommitEnds => is_inside = false,
            Line::Sending(task, op) => heard[task].in_flight = Some(op),
            Line::Acknowledged(task, lease) => {
                let op = heard[task].in_flight.take().unwrap();
                heard[task].acknowledged.apply(&op, lease.as_ref());
                acknowledged += 1;
            }
            Line::Failed(task, what) => {
                child.kill().unwrap();
                panic!("task {task} failed: {what}");
            }
        }
        if !is_killed && fits && acknowledged >= moment.acknowledgements {
            (0..moment.turns).for_each(|_| std::hint::spin_loop());
            child.kill().unwrap();
            is_killed = true;
        }
    }
    assert!(is_killed, "the child ended by itself: {:?}", child.wait());
    child.wait().unwrap();
    (acknowledged, is_inside)
}

/// What a task must hold: what was acknowledged, or with the command in flight.
fn judge(task: usize, heard: &Heard, found: &work::Seen) -> TaskState {
    let mut state = heard.acknowledged.clone();
    (state.has_lease, state.has_stale) = (false, false);
    if state.seen == *found {
        return state;
    }
    let Some(op) = &heard.in_flight else {
        panic!("task {task} was acknowledged\n{:#?}\nand there is\n{found:#?}", state.seen)
    };
    let after = heard.acknowledged.with_in_flight(op, found);
    assert_eq!(after.seen, *found, "task {task} had {:#?}\nand {op:?} in flight", state.seen);
    after
}

/// A command in flight with an id of its own is sent again: now it has been carried out, once.
async fn finish(store: &Store, task: usize, heard: &Heard, state: &mut TaskState) {
    let Some(op @ Op::SetTrim { doc, n, way: Way::WithId(id) }) = &heard.in_flight else { return };
    set_trim_with_id(store, task, (*id, *doc, *n)).await.unwrap();
    if !state.ids.contains(&(*id, *doc, *n)) {
        state.apply(op, None);
    }
    let trim = store.document(&names::document(task, *doc)).entity_trim().await.unwrap();
    assert_eq!(trim.unwrap().trimmed_fields, names::trim(*n));
}

async fn set_trim_with_id(
    store: &Store,
    task: usize,
    (id, doc, n): (u128, usize, u64),
) -> Result<(), Error> {
    let document = store.document(&names::document(task, doc));
    let document = document.with_command_id(Uuid::from_u128(id));
    document.set_entity_trim(&names::owner(task), &names::connector(), names::trim(n)).await
}

/// A command with an id of its own, sent again, gets its first answer and does nothing; the id is
/// no other command's.
async fn repeats_do_nothing(store: &Store, storage: &dyn Storage, task: usize, state: &TaskState) {
    let before = storage.last_position().await.unwrap();
    for &(id, doc, n) in &state.ids {
        set_trim_with_id(store, task, (id, doc, n)).await.unwrap();
        let other = set_trim_with_id(store, task, (id, doc, n + 1)).await;
        assert!(matches!(other, Err(Error::CommandMismatch { .. })), "{other:?}");
    }
    assert_eq!(storage.last_position().await.unwrap(), before, "a repeat of task {task} wrote");
}

/// Opens the file, compares, and gives what the next round begins with.
async fn check(database: &Path, heard: &[Heard]) -> Vec<TaskState> {
    found::file_is_intact(database).await;
    let storage = names::open(database).await;
    let store = Store::builder().storage(Arc::clone(&storage)).arbiters(1).open().await.unwrap();
    found::store_is_whole(&store, &*storage).await;
    let mut tasks = Vec::new();
    for (task, heard) in heard.iter().enumerate() {
        let auths = heard.acknowledged.seen.auths.iter();
        let consumed = auths.filter(|(_, auth)| **auth == Auth::Consumed).map(|(n, _)| *n);
        let mut consumed: BTreeSet<u64> = consumed.collect();
        if let Some(Op::ConsumeAuth { n }) = heard.in_flight {
            consumed.insert(n);
        }
        let found = found::seen(&store, &*storage, task, &consumed).await;
        let mut state = judge(task, heard, &found);
        finish(&store, task, heard, &mut state).await;
        repeats_do_nothing(&store, &*storage, task, &state).await;
        state.next_round();
        tasks.push(state);
    }
    store.close().await.unwrap();
    tasks
}

#[test]
fn a_killed_process_loses_nothing_that_it_answered() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let rounds = setting("CRASH_ROUNDS", ROUNDS);
    let mut random = Random(setting("CRASH_SEED", 1));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut directory = tempfile::tempdir().unwrap();
    let mut tasks = vec![TaskState::new(); TASKS];
    let (mut total, mut inside) = (0, 0);
    for round in 0..rounds {
        if round % ROUNDS_PER_FILE == 0 {
            directory = tempfile::tempdir().unwrap();
            tasks = vec![TaskState::new(); TASKS];
        }
        let start = Start { seed: random.next(), tasks };
        let place = directory.path();
        std::fs::write(place.join("start.json"), serde_json::to_vec(&start).unwrap()).unwrap();
        let mut heard: Vec<Heard> = start
            .tasks
            .into_iter()
            .map(|acknowledged| Heard { acknowledged, in_flight: None })
            .collect();
        let moment = Moment {
            acknowledgements: MIN_ACKNOWLEDGED + random.below(300),
            after: [After::Any, After::CommitBegins, After::CommitBegins, After::CommitEnds]
                [random.below(4)],
            turns: random.below(2_000),
        };
        let (acknowledged, is_inside) = run_and_kill(place, &moment, &mut heard);
        assert!(acknowledged >= MIN_ACKNOWLEDGED);
        total += acknowledged;
        inside += u64::from(is_inside);
        tasks = runtime.block_on(check(&place.join("store.db"), &heard));
    }
    println!("{rounds} rounds, {inside} inside a commit, {total} acknowledgements");
    assert!(inside >= rounds / MIN_INSIDE_PART, "{inside} of {rounds} rounds inside a commit");
}
