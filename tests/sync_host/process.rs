//! The process: its command line, Ctrl-C, `--watch`, and two of them in one place.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command};

use crate::rows::mirrored;
use crate::world::{Run, World};

/// A running program whose standard error is read line by line.
struct Watched {
    child: Child,
    lines: BufReader<ChildStderr>,
}

impl Watched {
    fn start(world: &World, args: &[&str]) -> Self {
        let mut child = world.command(&world.host(), args).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        Self { child, lines }
    }

    /// Reads on until a line that holds `text`.
    fn wait_for(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it ended before {text:?}");
        }
    }

    /// Presses Ctrl-C and waits for the end.
    fn interrupt(mut self) -> Run {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let mut stderr = String::new();
        self.lines.read_to_string(&mut stderr).unwrap();
        let mut run = Run::of(self.child.wait_with_output().unwrap());
        run.stderr = stderr;
        run
    }
}

#[test]
fn a_wrong_command_line_is_told_apart_from_a_failure() {
    let world = World::with(&["a/1"]);
    let cases = [
        (vec!["--store", "postgres://host/db"], 2),
        (vec!["--owners", "0"], 2),
        (vec!["--page-size", "0"], 2),
        (vec!["--nonsense"], 2),
        (vec!["--store", "/dev/null/host"], 1),
    ];
    for (args, code) in cases {
        let mut command = Command::new(crate::world::binary());
        let run =
            Run::of(command.arg("--source").arg(world.source()).args(&args).output().unwrap());
        assert_eq!(run.code, Some(code), "{args:?}: {run:?}");
        assert!(!run.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn a_store_is_named_by_a_path_or_a_url() {
    let world = World::with(&["a/1"]);
    let run = |store: String| {
        let mut command = Command::new(crate::world::binary());
        command.arg("--source").arg(world.source()).args(["--json", "--store", &store]);
        Run::of(command.output().unwrap())
    };
    let host = world.host().display().to_string();
    run(host.clone()).expect(0, &[("created", 1)]);
    run(format!("sqlite:{host}")).expect(0, &[("unchanged", 1)]);
    run(format!("sqlite://{host}")).expect(0, &[("unchanged", 1)]);
    let file = world.path("elsewhere/mine.db").display().to_string();
    run(format!("sqlite:{file}")).expect(0, &[("created", 1)]);
    run(file.clone()).expect(0, &[("unchanged", 1)]);
    assert!(std::fs::metadata(file).unwrap().is_file());
}

#[test]
fn ctrl_c_ends_a_run_after_its_step_and_the_next_goes_on() {
    let files: Vec<_> = (0..40).map(|number| format!("a/{number:02}.txt")).collect();
    let world = World::with(&files.iter().map(String::as_str).collect::<Vec<_>>());
    let mut watched = Watched::start(&world, &["--verbose", "--page-size", "1"]);
    watched.wait_for("step: checkpoint");
    let run = watched.interrupt();
    assert_eq!(run.code, Some(130), "{run:?}");
    let created = run.summary()["created"].as_u64().unwrap();
    assert!((1..40).contains(&created), "{run:?}");
    world.run(&[]).expect(0, &[("unchanged", created), ("created", 40 - created)]);
}

#[test]
fn a_watch_mirrors_each_change_until_ctrl_c_and_keeps_others_out() {
    let world = World::with(&["a/1", "a/2"]);
    let mut watched = Watched::start(&world, &["--watch"]);
    watched.wait_for("2 created");
    let second = world.run(&[]);
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(second.stderr.contains("another sync_host"), "{second:?}");
    world.write("a/1", "changed");
    watched.wait_for("1 updated");
    world.remove("a/2");
    watched.wait_for("1 swept");
    watched
        .interrupt()
        .expect(0, &[("created", 2), ("updated", 1), ("unchanged", 1), ("swept", 1)]);
    assert_eq!(mirrored(&world.host()), ["a/1"]);
}
