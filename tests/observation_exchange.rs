//! The exchange of observations from outside: whatever the seed, the hosts come to the same, and
//! where they cannot it is told.
//!
//! It knows the program's command line and what it prints, and nothing of the code.

#![cfg(feature = "sqlite")]
// A test says what failed best by failing where it did.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

/// Runs the program, which lies beside the tests: `cargo test` builds all examples first.
fn run(args: &[&str]) -> Output {
    let tests = std::env::current_exe().unwrap();
    let profile = tests.parent().and_then(std::path::Path::parent).unwrap();
    let name = format!("observation_exchange{}", std::env::consts::EXE_SUFFIX);
    let binary = profile.join("examples").join(name);
    assert!(binary.is_file(), "build it first: cargo build --example observation_exchange");
    Command::new(binary).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The numbers of a row of the counters, one for each host.
fn counters(output: &Output, name: &str) -> Vec<u64> {
    let text = stdout(output);
    let row = text.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap();
    row.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

fn sum(output: &Output, name: &str) -> u64 {
    counters(output, name).iter().sum()
}

#[test]
fn hosts_that_exchange_come_to_the_same_decisions_whatever_happens() {
    for (seed, more) in [
        ("2", ["--hosts", "2", "--loss", "0"]),
        ("3", ["--hosts", "3", "--loss", "30"]),
        ("4", ["--hosts", "3", "--loss", "90"]),
        ("5", ["--hosts", "5", "--loss", "60"]),
    ] {
        let args = [&["--steps", "300", "--documents", "5", "--seed", seed], &more[..]].concat();
        let output = run(&args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        assert!(stdout(&output).contains("all hosts hold the same"), "{args:?}: {output:?}");
        assert!(!stdout(&output).contains("DIFFERENT"), "{args:?}: {output:?}");
    }
}

#[test]
fn a_play_has_all_that_can_happen() {
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let met = [
        "signed here",
        "fetches that were outdated",
        "puts of others",
        "repeats",
        "lower",
        "pruned",
        "repaired",
    ];
    for name in met {
        assert!(sum(&output, name) > 0, "{name}: {}", stdout(&output));
    }
}

#[test]
fn hosts_that_never_hear_of_each_other_are_told_to_be_different() {
    let output = run(&["--steps", "100", "--loss", "100"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stdout(&output).contains("DIFFERENT"), "{output:?}");
    assert_eq!(sum(&output, "puts of others"), 0, "{output:?}");
}

#[test]
fn every_host_refuses_the_three_records_of_the_intruder() {
    let output = run(&["--steps", "100", "--hosts", "4"]);
    assert_eq!(counters(&output, "refused"), [3; 4], "{output:?}");
}

#[test]
fn the_same_seed_comes_to_the_same_and_another_to_something_else() {
    let play = |seed| stdout(&run(&["--steps", "150", "--seed", seed]));
    let first = play("11");
    assert_eq!(first, play("11"));
    assert_ne!(first, play("12"));
}

#[test]
fn a_wrong_command_line_is_told_apart_from_a_difference() {
    for args in [["--hosts", "1"], ["--documents", "0"], ["--loss", "101"], ["--seed", "x"]] {
        assert_eq!(run(&args).status.code(), Some(2), "{args:?}");
    }
}
