//! Edits that meet a change at the source, another owner's write, or their own late request.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command};

use crate::edits::line;
use crate::rows::{graph, mirrored, store};
use crate::world::{Run, World};

const EDIT: [&str; 2] = ["--edit", "owner-1/a/1.txt=edited"];
const OPERATIONS: &str = "SELECT state, defer_reason FROM kubun_connector_operation";

fn body(world: &World) -> Vec<String> {
    graph(&world.host(), "SELECT body FROM document WHERE source_id = 'a/1.txt'")
}

/// An edit of a file that was changed at the source after it was mirrored.
fn conflict() -> World {
    let world = World::with(&["a/1.txt", "a/2.txt"]);
    world.run(&[]).expect(0, &[("created", 2)]);
    world.write("a/1.txt", "changed at the source");
    world.run(&EDIT).expect(0, &[("unchanged", 2), ("deferred", 1), ("conflicts", 1)]);
    world
}

#[test]
fn a_conflict_loses_neither_side_and_is_told_by_every_run() {
    let world = conflict();
    for _ in 0..2 {
        let run = world.run(&[]);
        run.expect(0, &[("unchanged", 2), ("deferred", 1), ("conflicts", 1)]);
        assert!(run.stderr.contains("conflict: a/1.txt"), "{run:?}");
        assert_eq!(world.read("a/1.txt"), "changed at the source");
        assert_eq!(body(&world), ["edited"]);
        assert_eq!(store(&world.host(), OPERATIONS), ["attempted | conflict"]);
        assert!(world.log().is_empty());
    }
}

#[test]
fn an_edit_made_once_more_decides_a_conflict() {
    let world = conflict();
    world.run(&EDIT).expect(0, &[("unchanged", 2), ("written", 1)]);
    assert_eq!(world.log(), [line("owner-1", "a/1.txt", "edited")]);
    assert_eq!(store(&world.host(), OPERATIONS), ["committed | NULL", "dead | NULL"]);
    world.run(&[]).expect(0, &[("unchanged", 2), ("verified", 1)]);
    assert_eq!((world.read("a/1.txt").as_str(), body(&world)), ("edited", vec!["edited".into()]));
}

#[test]
fn a_decision_stands_upon_what_the_user_was_told_of() {
    let world = conflict();
    world.write("a/1.txt", "changed again");
    world.run(&EDIT).expect(0, &[("unchanged", 2), ("deferred", 1), ("conflicts", 1)]);
    assert_eq!((world.read("a/1.txt").as_str(), world.log().len()), ("changed again", 0));
    world.run(&EDIT).expect(0, &[("unchanged", 2), ("written", 1)]);
    assert_eq!(world.read("a/1.txt"), "edited");
}

#[test]
fn an_edit_upon_one_that_conflicts_conflicts_as_well() {
    let world = World::with(&["a/1.txt", "a/2.txt"]);
    world.run(&[]).expect(0, &[("created", 2)]);
    world.write("a/1.txt", "changed at the source");
    let edits = [&["--edit", "owner-1/a/1.txt=first"], &EDIT[..]].concat();
    world.run(&edits).expect(0, &[("unchanged", 2), ("deferred", 1), ("conflicts", 1)]);
    assert_eq!(store(&world.host(), OPERATIONS), ["attempted | conflict", "dead | NULL"]);
    assert_eq!((world.read("a/1.txt").as_str(), world.log().len()), ("changed at the source", 0));
    // It stands now upon what the first one stood upon.
    world.write("a/1.txt", "a/1.txt");
    world.run(&[]).expect(0, &[("unchanged", 2), ("written", 1)]);
    assert_eq!(world.log(), [line("owner-1", "a/1.txt", "edited")]);
}

#[test]
fn an_edit_to_the_text_of_the_file_takes_the_side_of_the_source() {
    let world = conflict();
    let edit = ["--edit", "owner-1/a/1.txt=changed at the source"];
    world.run(&edit).expect(0, &[("unchanged", 2), ("reconciled", 1)]);
    assert_eq!(body(&world), ["changed at the source"]);
    assert!(world.log().is_empty());
    world.run(&[]).expect(0, &[("unchanged", 2), ("verified", 1)]);
}

#[test]
fn a_conflict_ends_when_the_file_is_as_it_was_or_as_it_was_edited() {
    for (text, settled, writes) in [("a/1.txt", "written", 1), ("edited", "reconciled", 0)] {
        let world = conflict();
        world.write("a/1.txt", text);
        world.run(&[]).expect(0, &[("unchanged", 2), (settled, 1)]);
        assert_eq!((world.read("a/1.txt").as_str(), world.log().len()), ("edited", writes));
    }
}

#[test]
fn a_file_that_is_gone_while_its_edit_is_unfinished_is_a_conflict_and_no_deletion() {
    let world = World::with(&["a/1.txt", "a/2.txt"]);
    world.run(&[]).expect(0, &[("created", 2)]);
    world.remove("a/1.txt");
    world.run(&EDIT).expect(0, &[("unchanged", 1), ("deferred", 1), ("conflicts", 1)]);
    world.run(&[]).expect(0, &[("unchanged", 1), ("deferred", 1), ("conflicts", 1)]);
    assert_eq!(mirrored(&world.host()), ["a/1.txt", "a/2.txt"]);
    let candidates = "SELECT document_id FROM kubun_connector_sweep_candidate";
    assert!(store(&world.host(), candidates).is_empty());
    // Made once more, it is a new file.
    world.run(&EDIT).expect(0, &[("unchanged", 2), ("written", 1)]);
    assert_eq!(world.read("a/1.txt"), "edited");
}

#[test]
fn a_file_that_changes_while_a_killed_edit_is_unfinished_is_a_conflict() {
    for (step, writes) in [("claim", 0), ("send", 0), ("rename", 1), ("write", 1)] {
        let world = World::with(&["a/1.txt", "a/2.txt"]);
        world.run(&[]).expect(0, &[("created", 2)]);
        let mut command = world.command(&world.host(), &EDIT);
        assert_eq!(command.args(["--crash-after", step]).status().unwrap().code(), None);
        world.write("a/1.txt", "newer");
        world.run(&[]).expect(0, &[("unchanged", 2), ("deferred", 1), ("conflicts", 1)]);
        assert_eq!(
            (world.read("a/1.txt").as_str(), world.log().len()),
            ("newer", writes),
            "{step}"
        );
        assert_eq!(body(&world), ["edited"], "{step}");
    }
}

#[test]
fn what_replaces_a_write_before_it_is_read_back_is_a_mismatch_and_wins() {
    let world = World::with(&["a/1.txt", "a/2.txt"]);
    world.run(&[]).expect(0, &[("created", 2)]);
    world.run(&EDIT).expect(0, &[("unchanged", 2), ("written", 1)]);
    world.write("a/1.txt", "replaced");
    world.run(&[]).expect(0, &[("unchanged", 1), ("updated", 1), ("mismatched", 1)]);
    assert_eq!(body(&world), ["replaced"]);
}

#[test]
fn of_two_owners_edits_of_one_file_one_is_written_and_the_other_is_a_conflict() {
    let world = World::with(&["a/1.txt", "a/2.txt"]);
    let owners = ["--owners", "2"];
    world.run(&owners).expect(0, &[("created", 4)]);
    let edits = ["--edit", "owner-1/a/1.txt=of one", "--edit", "owner-2/a/1.txt=of two"];
    let run = world.run(&[&owners[..], &edits].concat());
    let summary = run.summary();
    assert_eq!((&summary["written"], &summary["conflicts"]), (&1.into(), &1.into()), "{run:?}");
    let text = world.read("a/1.txt");
    let (winner, loser) =
        if text == "of one" { ("owner-1", "owner-2") } else { ("owner-2", "owner-1") };
    assert_eq!(world.log(), [line(winner, "a/1.txt", &text)]);
    let mut bodies = body(&world);
    bodies.sort();
    assert_eq!(bodies, ["of one", "of two"]);

    let edit = format!("{loser}/a/1.txt=decided");
    let run = world.run(&[&owners[..], &["--edit", &edit]].concat());
    assert_eq!((run.code, &run.summary()["written"]), (Some(0), &1.into()), "{run:?}");
    assert_eq!(world.log().len(), 2);
    world.run(&owners);
    assert_eq!(body(&world), ["decided", "decided"]);
}

/// A run that stopped itself between the permission to send and the request.
struct Stopped {
    child: Child,
    lines: BufReader<ChildStderr>,
}

impl Stopped {
    fn start(world: &World) -> Self {
        let mut command = world.command(&world.host(), &EDIT);
        let mut child = command.arg("--stop-before-write").spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("stopping") {
            line.clear();
            assert_ne!(lines.read_line(&mut line).unwrap(), 0, "it ended before it stopped");
        }
        let pid = child.id().to_string();
        let is_stopped = || {
            let output = Command::new("ps").args(["-o", "state=", "-p", &pid]).output().unwrap();
            output.stdout.trim_ascii_start().starts_with(b"T")
        };
        while !is_stopped() {
            std::thread::yield_now();
        }
        Self { child, lines }
    }

    fn wake(mut self) -> Run {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-CONT", &pid]).status().unwrap().success());
        let mut stderr = String::new();
        self.lines.read_to_string(&mut stderr).unwrap();
        let mut run = Run::of(self.child.wait_with_output().unwrap());
        run.stderr = stderr;
        run
    }
}

/// The host as another process finds it that takes over: with all its files, but not its lock.
fn taken_over(world: &World) -> std::path::PathBuf {
    let host = world.path("taken-over");
    fs::create_dir_all(host.join("keys")).unwrap();
    for directory in ["", "keys"] {
        for entry in fs::read_dir(world.host().join(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::copy(&path, host.join(directory).join(path.file_name().unwrap())).unwrap();
            }
        }
    }
    host
}

#[test]
fn a_request_that_leaves_too_late_neither_writes_twice_nor_over_a_newer_version() {
    for newer in [None, Some("newer")] {
        let world = World::with(&["a/1.txt", "a/2.txt"]);
        world.run(&[]).expect(0, &[("created", 2)]);
        let stopped = Stopped::start(&world);
        assert_eq!(world.read("a/1.txt"), "a/1.txt");

        // The other must not send before no request can be under way, and then does.
        let run = Run::of(world.command(&taken_over(&world), &[]).output().unwrap());
        run.expect(0, &[("unchanged", 2), ("written", 1)]);
        assert!(run.stderr.contains("may still be under way"), "{run:?}");
        if let Some(text) = newer {
            world.write("a/1.txt", text);
        }

        let late = stopped.wake();
        assert_eq!((late.code, &late.summary()["written"]), (Some(0), &0.into()), "{late:?}");
        assert_eq!(world.log(), [line("owner-1", "a/1.txt", "edited")]);
        assert_eq!(world.read("a/1.txt"), newer.unwrap_or("edited"));
    }
}
