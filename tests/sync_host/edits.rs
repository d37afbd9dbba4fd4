//! Local edits: written back once, and seen to be, wherever the host is killed on the way.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use connector_store::Digest;

use crate::rows::{graph, store};
use crate::world::{LONG, Run, World, binary};

const SIGKILL: i32 = 9;
const TREE: [&str; 2] = ["a/1.txt", "a/2.txt"];
const EDIT: &str = "owner-1/a/1.txt=edited";
const OPERATIONS: &str = "SELECT state FROM kubun_connector_operation";
const WATCHES: &str = "SELECT status FROM kubun_connector_projection_watch";

/// What the log says of one write.
pub fn line(owner: &str, path: &str, text: &str) -> String {
    format!("{owner} {path} {}", Digest::of(text.as_bytes()).to_hex())
}

fn mirrored_world() -> World {
    let world = World::with(&TREE);
    world.run(&[]).expect(0, &[("created", 2)]);
    world
}

/// A run that must be killed at the step.
fn killed(world: &World, step: &str, args: &[&str]) {
    let mut command = world.command(&world.host(), &["--crash-after", step]);
    let output = command.args(args).output().unwrap();
    assert_eq!(output.status.signal(), Some(SIGKILL), "{step}: {:?}", Run::of(output));
}

fn body(world: &World, path: &str) -> Vec<String> {
    graph(&world.host(), &format!("SELECT body FROM document WHERE source_id = '{path}'"))
}

/// The edit is at the source, once in the log, in the graph, and its operation committed.
fn assert_written(world: &World, case: &str) {
    assert_eq!(world.read("a/1.txt"), "edited", "{case}");
    assert_eq!(world.log(), [line("owner-1", "a/1.txt", "edited")], "{case}");
    assert_eq!(body(world, "a/1.txt"), ["edited"], "{case}");
    assert_eq!(store(&world.host(), OPERATIONS), ["committed"], "{case}");
    assert_eq!(fs::read_dir(world.file("a")).unwrap().count(), TREE.len(), "{case}: a draft");
}

fn assert_read_back(world: &World, case: &str) {
    assert!(store(&world.host(), WATCHES).is_empty(), "{case}");
    assert!(graph(&world.host(), "SELECT number FROM edit").is_empty(), "{case}");
    world.run(&[]).expect(0, &[("unchanged", 2)]);
}

#[test]
fn an_edit_is_written_once_and_read_back_by_the_next_run() {
    let world = mirrored_world();
    world.run(&["--edit", EDIT]).expect(0, &[("unchanged", 2), ("written", 1)]);
    assert_written(&world, "written");
    assert_eq!(store(&world.host(), WATCHES), ["pending"]);
    world.run(&[]).expect(0, &[("unchanged", 2), ("verified", 1)]);
    assert_written(&world, "read back");
    assert_read_back(&world, "read back");
    // The document says so already.
    world.run(&["--edit", EDIT]).expect(0, &[("unchanged", 2)]);
    assert_written(&world, "once more");
}

#[test]
fn an_edit_that_was_killed_after_any_step_is_written_once() {
    let cases = [
        ("edit", "written"),
        ("claim", "written"),
        ("send", "written"),
        ("rename", "reconciled"),
        ("write", "reconciled"),
        ("finalize", "reconciled"),
    ];
    for (step, settled) in cases {
        // A rerun with the same command line finds the edit, and makes no other one of it.
        for args in [&[][..], &["--edit", EDIT]] {
            let world = mirrored_world();
            killed(&world, step, &["--edit", EDIT]);
            let run = world.run(args);
            run.expect(0, &[("unchanged", 2), (settled, 1)]);
            assert_written(&world, step);
            world.run(&[]).expect(0, &[("unchanged", 2), ("verified", 1)]);
            assert_written(&world, step);
            assert_read_back(&world, step);
        }
    }
}

#[test]
fn the_next_run_may_be_killed_as_well() {
    let cases = [
        ("write", "claim", "reconciled"),
        ("write", "finalize", "reconciled"),
        ("claim", "claim", "written"),
        ("claim", "send", "written"),
        ("send", "claim", "written"),
        ("send", "send", "written"),
        ("send", "rename", "reconciled"),
        ("edit", "write", "reconciled"),
    ];
    for (first, second, settled) in cases {
        let case = format!("{first}, {second}");
        let world = mirrored_world();
        killed(&world, first, &["--edit", EDIT]);
        killed(&world, second, &[]);
        let run = world.run(&[]);
        assert_eq!(run.summary()[settled], 1, "{case}: {run:?}");
        assert_written(&world, &case);
        world.run(&[]).expect(0, &[("unchanged", 2), ("verified", 1)]);
        assert_read_back(&world, &case);
    }
}

#[test]
fn the_lease_of_a_killed_run_does_not_keep_its_successor_waiting() {
    let world = mirrored_world();
    killed(&world, "claim", &["--edit", EDIT]);
    let leases = "SELECT count(*) FROM connector_lease WHERE scope LIKE '%edit-%'";
    assert_eq!(store(&world.host(), leases), ["1"]);
    let run = world.run(&[]);
    run.expect(0, &[("unchanged", 2), ("written", 1)]);
    assert!(!run.stderr.contains("waiting"), "{run:?}");
}

#[test]
fn an_edit_is_never_written_to_another_source() {
    let world = mirrored_world();
    killed(&world, "claim", &["--edit", EDIT]);
    let other = World::with(&TREE);
    let before = other.read("a/1.txt");
    let output = other.command(&world.host(), &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{:?}", Run::of(output));
    assert_eq!(other.read("a/1.txt"), before);
    assert!(other.log().is_empty());
    world.run(&[]).expect(0, &[("unchanged", 2), ("written", 1)]);
    assert_written(&world, "at its own source");
}

#[test]
fn an_edit_of_a_missing_file_makes_it_also_on_a_first_run() {
    let world = World::with(&TREE);
    let edit = ["--edit", "owner-1/new/deep/3.txt=hello=world"];
    world.run(&edit).expect(0, &[("created", 2), ("unchanged", 1), ("written", 1)]);
    assert_eq!(world.read("new/deep/3.txt"), "hello=world");
    assert_eq!(world.log(), [line("owner-1", "new/deep/3.txt", "hello=world")]);
    let kinds = "SELECT op, state FROM kubun_connector_operation";
    assert_eq!(store(&world.host(), kinds), ["create | committed"]);
    world.run(&[]).expect(0, &[("unchanged", 3), ("verified", 1)]);
    world.remove("new/deep/3.txt");
    world.write("new/deep/4.txt", "so that the partition is not empty");
    world.run(&[]).expect(0, &[("created", 1), ("unchanged", 2), ("swept", 1)]);
}

#[test]
fn several_edits_of_one_document_are_written_in_their_order() {
    let world = mirrored_world();
    let edits = ["--edit", "owner-1/a/1.txt=one", "--edit", EDIT];
    world.run(&edits).expect(0, &[("unchanged", 2), ("written", 2)]);
    let lines = [line("owner-1", "a/1.txt", "one"), line("owner-1", "a/1.txt", "edited")];
    assert_eq!(world.log(), lines);
    assert_eq!(world.read("a/1.txt"), "edited");
    world.run(&[]).expect(0, &[("unchanged", 2), ("verified", 1)]);
}

#[test]
fn the_same_text_after_another_is_another_edit() {
    let world = mirrored_world();
    for (text, lines) in [("one", 1), ("two", 2), ("one", 3)] {
        let edit = format!("owner-1/a/1.txt={text}");
        // What is written here is read back by the next run only, and then not that before it.
        world.run(&["--edit", &edit]).expect(0, &[("unchanged", 2), ("written", 1)]);
        assert_eq!((world.read("a/1.txt").as_str(), world.log().len()), (text, lines));
    }
}

#[test]
fn a_long_edit_is_written_whole_and_the_store_knows_what_the_model_lacks() {
    let world = mirrored_world();
    let text = "x".repeat(LONG);
    let run = world.run(&["--edit", &format!("owner-1/a/1.txt={text}")]);
    run.expect(0, &[("unchanged", 2), ("written", 1)]);
    assert_eq!(world.read("a/1.txt"), text);
    let trims = "SELECT trimmed_fields FROM kubun_connector_entity_trim";
    assert_eq!(store(&world.host(), trims), [r#"{"body":{"bytes":20000,"kept":16384}}"#]);
}

#[test]
fn a_write_keeps_the_permissions_of_its_file() {
    let world = mirrored_world();
    fs::set_permissions(world.file("a/1.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(world.run(&["--edit", EDIT]).summary()["written"], 1);
    let mode = fs::metadata(world.file("a/1.txt")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn a_draft_that_was_left_by_a_kill_does_not_stand_in_the_way() {
    let world = World::with(&TREE);
    let draft = world.file("a/.sync-host-draft");
    fs::write(&draft, "half of").unwrap();
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o400)).unwrap();
    fs::set_permissions(world.file("a"), fs::Permissions::from_mode(0o777)).unwrap();
    world.run_unprivileged(&[]).expect(0, &[("created", 2)]);
    assert_eq!(world.run_unprivileged(&["--edit", EDIT]).summary()["written"], 1);
    assert_written(&world, "over a draft");
}

#[test]
fn an_edit_that_cannot_be_written_waits_for_the_next_run() {
    let world = mirrored_world();
    // Where the draft would be there is a directory, so the provider fails before the write.
    fs::create_dir(world.file("a/.sync-host-draft")).unwrap();
    // The second of them is made upon the first, so it waits with it.
    let edits = ["--edit", "owner-1/a/1.txt=first", "--edit", EDIT];
    for args in [&edits[..], &[]] {
        world.run(args).expect(0, &[("unchanged", 2), ("deferred", 2)]);
        assert_eq!((world.read("a/1.txt").as_str(), world.log().len()), ("a/1.txt", 0));
        assert_eq!(body(&world, "a/1.txt"), ["edited"]);
    }
    fs::remove_dir(world.file("a/.sync-host-draft")).unwrap();
    world.run(&[]).expect(0, &[("unchanged", 2), ("written", 2)]);
    let lines = [line("owner-1", "a/1.txt", "first"), line("owner-1", "a/1.txt", "edited")];
    assert_eq!(world.log(), lines);
}

#[test]
fn edits_of_owners_beyond_the_run_are_not_forgotten() {
    let world = World::with(&TREE);
    world.run(&["--owners", "2"]).expect(0, &[("created", 4)]);
    let edit = "owner-2/a/1.txt=edited";
    killed(&world, "edit", &["--owners", "2", "--edit", edit]);
    world.run(&[]).expect(0, &[("unchanged", 2), ("deferred", 1)]);
    let run = world.run(&["--owners", "2"]);
    assert_eq!((run.code, &run.summary()["written"]), (Some(0), &1.into()), "{run:?}");
    assert_eq!(world.log(), [line("owner-2", "a/1.txt", "edited")]);
}

#[test]
fn a_wrong_edit_is_refused_before_anything_is_kept() {
    let world = mirrored_world();
    symlink("1.txt", world.file("a/link")).unwrap();
    let cases = [
        ("owner-1/a/1.txt", 2),
        ("owner-1/a=text", 2),
        ("a=text", 2),
        ("/a/1.txt=text", 2),
        ("owner-1/a/../../1.txt=text", 2),
        ("owner-1//1.txt=text", 2),
        ("owner-1/a/=text", 2),
        ("owner-2/a/1.txt=text", 1),
        ("owner-1/a/.sync-host-draft=text", 1),
        ("owner-1/a/link=text", 1),
        ("owner-1/a/1.txt/below=text", 1),
    ];
    for (edit, code) in cases {
        let run = world.run(&["--edit", edit]);
        assert_eq!(run.code, Some(code), "{edit}: {run:?}");
    }
    assert!(graph(&world.host(), "SELECT number FROM edit").is_empty());
    assert!(world.log().is_empty());
}

#[test]
fn the_crash_matrix_counts_one_write_in_every_case() {
    let mut command = Command::new(binary());
    let run = Run::of(command.args(["--crash-matrix", "--json"]).output().unwrap());
    assert_eq!(run.code, Some(0), "{run:?}");
    let rows: serde_json::Value = serde_json::from_str(run.stdout.trim()).unwrap();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 36);
    assert!(rows.iter().all(|row| row["writes"] == 1 && row["agrees"] == true), "{run:?}");
}
