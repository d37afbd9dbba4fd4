//! The hosts that share a database, from outside: whatever is done to them, each account is synced as
//! often as it should and nothing that was acknowledged is lost; and a run leaves nothing behind.
//!
//! It knows the program's command line and what it prints, and nothing of the code. Where no server is
//! installed, the tests say so and pass.

#![cfg(all(unix, feature = "postgres"))]
// A test says what failed best by failing where it did.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use connector_store::testing::TestPostgres;

/// A run that is small, and long enough for others to find the leases of a host that is gone.
const SMALL: [&str; 9] =
    ["--verify", "--keys", "100", "--rounds", "4", "--ttl-ms", "700", "--callers", "8"];

/// The program, which lies beside the tests: `cargo test` builds all examples first.
fn program() -> Command {
    let tests = std::env::current_exe().unwrap();
    let profile = tests.parent().and_then(Path::parent).unwrap();
    let binary = profile.join("examples/multi_host");
    assert!(binary.is_file(), "build it first: cargo build --all-features --example multi_host");
    Command::new(binary)
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The numbers of the table's last row: synced, leases, takeovers, fenced, killed, paused.
fn sums(output: &Output) -> Vec<u64> {
    let text = stdout(output);
    let row = text.lines().find_map(|line| line.trim().strip_prefix("all ")).unwrap();
    row.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// A folder in which the servers' user may make one.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tmp");
    std::fs::create_dir(&path).unwrap();
    for path in [dir.path(), &path] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    }
    (dir, path)
}

/// What was done to the hosts of a run that came out right: takeovers, fenced, killed, paused.
fn blows_of_a_right_run(server: &TestPostgres, seed: u64) -> [u64; 4] {
    let (url, seed) = (server.url(&server.create_database().unwrap()), seed.to_string());
    let blows = ["--hosts", "3", "--kills", "2", "--pauses", "2", "--seed", &seed];
    let output = program().args(SMALL).args(blows).args(["--url", &url]).output().unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "seed {seed}: {output:?}");
    let [synced, _, takeovers, fenced, killed, paused] = sums(&output)[..] else {
        panic!("{text}");
    };
    assert_eq!(synced, 400, "{text}");
    for line in ["double syncs: 0", "accounts not synced: 0", "store: sound"] {
        assert!(text.lines().any(|said| said == line), "{line}: {text}");
    }
    // Nearly a lease, two trims and a progress for each sync: killed hosts take some along.
    let lost = text.lines().find_map(|line| line.strip_prefix("lost commands: 0 of ")).unwrap();
    let acknowledged: u64 = lost.strip_suffix(" acknowledged").unwrap().parse().unwrap();
    assert!(acknowledged > 1_500, "{text}");
    [takeovers, fenced, killed, paused]
}

#[test]
fn each_account_is_synced_as_often_as_it_should_whoever_is_killed_or_paused() {
    let Some(server) = TestPostgres::start(&[]).unwrap() else { return };
    let mut sums = [0; 4];
    // A blow that finds no second host running waits, and in so short a run for too long: how many
    // fall in one run is up to the machine.
    for seed in 1..=10 {
        let blows = blows_of_a_right_run(&server, seed);
        sums.iter_mut().zip(blows).for_each(|(sum, count)| *sum += count);
        if seed >= 2 && sums.iter().all(|sum| *sum > 0) {
            return;
        }
    }
    panic!("takeovers, fenced, killed, paused: {sums:?}");
}

#[test]
fn an_interrupted_run_leaves_neither_server_nor_host_nor_file() {
    if TestPostgres::start(&[]).unwrap().is_none() {
        return;
    }
    let (_dir, path) = folder();
    let mut command = program();
    // More than it gets to.
    command.args(["--keys", "1000000"]).env("TMPDIR", &path);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut stderr = BufReader::new(run.stderr.take().unwrap());
    stderr.read_line(&mut said).unwrap();
    assert!(said.contains("4 hosts"), "{said}");
    assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let left: Vec<_> = std::fs::read_dir(&path).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    // The hosts and the server's processes have the folder on their command lines.
    let named = path.display().to_string();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        assert!(!line.contains(&named), "{line}");
    }
}

#[test]
fn a_wrong_command_line_is_told_apart_from_a_failure() {
    let cases: [(&[&str], i32); 4] = [
        (&["--hosts", "1"], 2),
        (&["--keys", "0"], 2),
        (&["--ttl-ms", "1"], 2),
        (&["--url", "postgres://nobody@127.0.0.1:1/nothing"], 1),
    ];
    for (args, code) in cases {
        let output = program().args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}
