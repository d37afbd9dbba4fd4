//! Kill -9 at any moment, and a new run ends in the state of an undisturbed one.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;

use crate::rows::{graph, mirrored, state, store};
use crate::world::{LONG, Run, World};

/// Rounds that must end by the kill, from each of the two beginnings.
const ROUNDS: u32 = 25;
/// The same, of runs with edits.
const EDIT_ROUNDS: u32 = 10;
const SIGKILL: i32 = 9;
const ARGS: [&str; 5] = ["--verbose", "--owners", "2", "--page-size", "4"];

/// A small generator, so that a failing round can be run again from its number.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit).unwrap()).unwrap()
    }
}

fn tree() -> World {
    let world = World::new();
    for number in 0..12 {
        world.write(&format!("a/{number:02}.txt"), &format!("a {number}"));
        let long = if number % 3 == 0 { LONG } else { 10 };
        world.write(&format!("b/{number:02}.txt"), &"b".repeat(long + number));
    }
    world.write("c/only.txt", "the last of its partition");
    world
}

/// Changes of every kind: new, changed, cut and no longer cut, gone with a trim and without one.
fn change(world: &World) {
    world.write("a/new.txt", "new");
    world.write("a/01.txt", "changed");
    world.write("a/02.txt", &"now long ".repeat(LONG));
    world.write("b/00.txt", "no longer long");
    world.write("b/03.txt", &"longer still ".repeat(LONG));
    world.remove("a/04.txt");
    world.remove("a/05.txt");
    world.remove("b/06.txt");
    world.remove("b/07.txt");
    world.remove("c/only.txt");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn run(world: &World, host: &Path) -> Run {
    Run::of(world.command(host, &ARGS).output().unwrap())
}

fn steps(run: &Run) -> usize {
    run.stderr.lines().filter(|line| line.starts_with("step: ")).count()
}

/// Starts a run and kills it as soon as it has told so many steps. Says whether the kill ended it.
fn run_killed_after(world: &World, host: &Path, steps: usize) -> bool {
    run_killed_at(world, host, steps, "step: ")
}

/// Starts a run and kills it as soon as it has told so many steps that begin with `step`.
pub fn run_killed_at(world: &World, host: &Path, steps: usize, step: &str) -> bool {
    kill_after(world.command(host, &ARGS).spawn().unwrap(), steps, step)
}

fn kill_after(mut child: Child, steps: usize, step: &str) -> bool {
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let (mut told, mut line) = (0, String::new());
    while told < steps && stderr.read_line(&mut line).unwrap() > 0 {
        told += usize::from(line.starts_with(step));
        line.clear();
    }
    child.kill().unwrap();
    stderr.read_to_end(&mut Vec::new()).unwrap();
    child.wait().unwrap().signal() == Some(SIGKILL)
}

/// Kills runs that begin in a copy of `beginning`, and compares where the last run ends.
fn kill_rounds(world: &World, beginning: &Path, seed: u64) {
    let undisturbed = world.path("undisturbed");
    copy(beginning, &undisturbed);
    let reference = run(world, &undisturbed);
    let (code, expected, steps) = (reference.code, state(&undisturbed), steps(&reference));
    assert!(steps > 20, "{reference:?}");

    let mut chance = Chance(seed);
    let mut killed = 0;
    for round in 0..4 * ROUNDS {
        if killed == ROUNDS {
            break;
        }
        let host = world.path(&format!("killed-{round}"));
        copy(beginning, &host);
        // Some hosts are killed again while they recover.
        let times = 1 + chance.below(3);
        let moments: Vec<_> = (0..times).map(|_| chance.below(steps)).collect();
        let ended: Vec<_> =
            moments.iter().map(|&steps| run_killed_after(world, &host, steps)).collect();
        killed += u32::from(ended.contains(&true));
        let last = run(world, &host);
        assert_eq!(last.code, code, "seed {seed}, round {round}, after {moments:?}: {last:?}");
        let found = state(&host);
        assert_eq!(found, expected, "seed {seed}, round {round}, after {moments:?}: {last:?}");
        fs::remove_dir_all(&host).unwrap();
    }
    assert_eq!(killed, ROUNDS, "too few runs lived long enough to be killed");
}

#[test]
fn a_first_run_that_is_killed_ends_as_if_it_had_not_been() {
    let world = tree();
    // Only the keys are there, because documents are named after them.
    let keys = world.path("other");
    assert_eq!(run(&world, &keys).code, Some(0));
    copy(&keys.join("keys"), &world.path("beginning/keys"));
    kill_rounds(&world, &world.path("beginning"), 0x5eed_0001);
}

#[test]
fn a_run_over_changes_that_is_killed_ends_as_if_it_had_not_been() {
    let world = tree();
    let beginning = world.path("beginning");
    assert_eq!(run(&world, &beginning).code, Some(0));
    change(&world);
    kill_rounds(&world, &beginning, 0x5eed_0002);
}

#[test]
fn edits_that_are_killed_anywhere_are_written_once_each() {
    const EDITS: [&str; 6] = [
        "--edit",
        "owner-1/a/01.txt=one",
        "--edit",
        "owner-2/b/01.txt=two",
        "--edit",
        "owner-1/new/file.txt=three",
    ];
    let mut chance = Chance(0x5eed_0003);
    let mut killed = 0;
    for round in 0..4 * EDIT_ROUNDS {
        if killed == EDIT_ROUNDS {
            break;
        }
        let world = tree();
        assert_eq!(run(&world, &world.host()).code, Some(0));
        let args = [&ARGS[..], &EDITS].concat();
        for _ in 0..2 {
            let mut command = world.command(&world.host(), &args);
            let child = command.spawn().unwrap();
            killed += u32::from(kill_after(child, chance.below(25), "step: "));
        }
        let last = Run::of(world.command(&world.host(), &args).output().unwrap());
        assert_eq!(last.code, Some(0), "round {round}: {last:?}");
        assert_eq!(world.log().len(), 3, "round {round}: {last:?}");
        let files = ["a/01.txt", "b/01.txt", "new/file.txt"].map(|file| world.read(file));
        assert_eq!(files, ["one", "two", "three"], "round {round}: {last:?}");
        assert_eq!(run(&world, &world.host()).code, Some(0));
        let edits = graph(&world.host(), "SELECT source_id, state FROM edit");
        assert!(edits.is_empty(), "round {round}: {edits:?}");
    }
    assert!(killed >= EDIT_ROUNDS, "too few runs lived long enough to be killed");
}

#[test]
fn a_sweep_that_was_begun_is_ended_even_if_its_file_came_back() {
    const BEGUN: &str = "SELECT document_id FROM connector_document_sweep";
    let world = World::with(&["a/1.txt", "a/2.txt", "a/3.txt"]);
    let beginning = world.path("beginning");
    assert_eq!(run(&world, &beginning).code, Some(0));
    // The program goes on until the kill arrives, so it is not always at the step it told last.
    for attempt in 0..50 {
        world.remove("a/2.txt");
        copy(&beginning, &world.host());
        run_killed_at(&world, &world.host(), 1, "step: 1 sweeps begun");
        world.write("a/2.txt", "back");
        if !store(&world.host(), BEGUN).is_empty() {
            assert_eq!(run(&world, &world.host()).code, Some(0));
            assert!(store(&world.host(), BEGUN).is_empty());
            assert_eq!(mirrored(&world.host()).len(), 6, "three files for two owners");
            return;
        }
        fs::rename(world.host(), world.path(&format!("too-late-{attempt}"))).unwrap();
    }
    panic!("no run was killed between the two ends of a sweep");
}
