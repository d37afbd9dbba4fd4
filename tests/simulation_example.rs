//! The program `simulation`, from outside: how it ends, that a seed has one history, and the page that
//! it writes. It knows the command line and what is printed, and nothing of the code.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::Path;
use std::process::{Command, Output};

/// The program, which lies beside the tests: `cargo test` builds all examples first.
fn run(args: &[&str]) -> Output {
    let tests = std::env::current_exe().unwrap();
    let profile = tests.parent().and_then(Path::parent).unwrap();
    let binary =
        profile.join("examples").join(format!("simulation{}", std::env::consts::EXE_SUFFIX));
    assert!(binary.is_file(), "build it first: cargo build --all-features --example simulation");
    Command::new(binary).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

const SMALL: [&str; 6] = ["--hosts", "3", "--owners", "3", "--commands", "300"];

fn small(more: &[&str]) -> Output {
    run(&[&SMALL, more].concat())
}

#[test]
fn a_seed_has_one_history_in_every_process() {
    let digest = |seed| {
        let output = small(&["--seed", seed]);
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        let text = stdout(&output);
        assert!(text.contains("no rule was broken"), "{text}");
        text.lines().find(|line| line.starts_with("history of seed")).unwrap().to_owned()
    };
    assert_eq!(digest("7"), digest("7"));
    assert_ne!(digest("7").rsplit(' ').next(), digest("8").rsplit(' ').next());
}

#[test]
fn a_broken_rule_is_told_with_the_line_that_plays_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let bug = ["--seeds", "50", "--bug", "unknown-taken-for-success"];
    let output = small(&[&bug[..], &["--report", page.to_str().unwrap()]].concat());
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let broken = text.lines().find(|line| line.starts_with("broken: ")).unwrap();
    let replay = text.lines().find_map(|line| line.strip_prefix("play it again: ")).unwrap();
    let args: Vec<_> = replay.split_once(" -- ").unwrap().1.split(' ').collect();
    let again = run(&args);
    assert_eq!(again.status.code(), Some(1));
    assert!(stdout(&again).contains(broken), "{replay} does not break: {broken}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("A rule was broken") && page.contains("What happened last"));
}

#[test]
fn a_wrong_command_line_is_told_so() {
    for wrong in
        [["--hosts", "0"], ["--faults", "moon"], ["--bug", "none-of-them"], ["--seed", "x"]]
    {
        assert_eq!(run(&wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn the_page_has_each_plot_and_needs_nothing_but_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let output = small(&["--seed", "7", "--report", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let page = std::fs::read_to_string(path).unwrap();
    for plot in ["commands", "hosts", "faults", "batches", "held", "leases", "sweeps", "keys"] {
        assert!(page.contains(&format!("<figure id=\"{plot}\">")), "no plot of {plot}");
    }
    for foreign in ["http:", "https:", "url(", "src=", "@import", "<link rel=\"stylesheet"] {
        assert!(!page.contains(foreign), "the page has {foreign}");
    }
    for tag in ["svg", "figure", "rect", "title", "table", "tr", "section", "div", "span", "dl"] {
        let opened =
            page.matches(&format!("<{tag} ")).count() + page.matches(&format!("<{tag}>")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "of {tag}");
    }
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
}
