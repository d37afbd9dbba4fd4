//! `--crash-matrix`: runs of this program over a temporary tree, killed after every step of an edit,
//! and the next run left alone or killed as well. However that goes, the provider's log must show
//! the edit exactly once in the end, and the edit must be read back.

use std::fs;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use comfy_table::Table;
use serde::Serialize;
use serde_json::Value;
use tokio::process::Command;

use crate::Failure;
use crate::crash::CrashPoint;
use crate::tasks::at_once;

/// So many cases are played at a time.
const CASES_AT_ONCE: usize = 4;
/// More runs than this are never needed to settle an edit and to read it back.
const MAX_RUNS: usize = 4;
const FILE: &str = "notes/edited.md";
const TEXT: &str = "edited";

/// One case, and what came of it.
#[derive(Debug, Serialize)]
struct Row {
    killed_after: &'static str,
    next_run: String,
    runs: usize,
    writes: usize,
    agrees: bool,
    right: bool,
}

/// Plays all cases and shows them. The exit code says whether all were right.
pub async fn run(json: bool) -> Result<u8, Failure> {
    let next = std::iter::once(None).chain(CrashPoint::ALL[1..].iter().copied().map(Some));
    let cases =
        CrashPoint::ALL.iter().flat_map(|&first| next.clone().map(move |next| (first, next)));
    let cases: Vec<_> =
        cases.enumerate().map(|(at, (first, next))| case(at, first, next)).collect();
    let mut rows = Vec::new();
    for row in at_once(CASES_AT_ONCE, cases).await? {
        rows.push(row?);
    }
    rows.sort_by_key(|(at, _)| *at);
    let rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
    print(&rows, json);
    Ok(u8::from(!rows.iter().all(|row| row.right)))
}

fn print(rows: &[Row], json: bool) {
    if json {
        println!("{}", serde_json::to_string(rows).unwrap_or_default());
        return;
    }
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_header(["killed after", "the next run", "runs", "writes in the log", "read back"]);
    for row in rows {
        let agrees = if row.agrees { "yes" } else { "NO" };
        let numbers = [row.runs.to_string(), row.writes.to_string()];
        let [runs, writes] = &numbers;
        table.add_row([row.killed_after, &row.next_run, runs, writes, agrees]);
    }
    println!("{table}");
}

async fn case(
    at: usize,
    first: CrashPoint,
    next: Option<CrashPoint>,
) -> Result<(usize, Row), Failure> {
    let world = tempfile::tempdir()?;
    let source = world.path().join("source");
    fs::create_dir_all(source.join("notes"))?;
    fs::write(source.join(FILE), "as it was")?;
    fs::write(source.join("notes/other.md"), "another")?;
    let host = world.path().join("host");

    let begun = start(&source, &host, &[]).await?;
    let edit = format!("owner-1/{FILE}={TEXT}");
    let crashed = start(&source, &host, &["--edit", &edit, "--crash-after", first.name()]).await?;
    let mut right = begun.status.success() && was_killed(crashed.status);
    let mut next_run = "ends".to_owned();
    let mut runs = 2;
    if let Some(next) = next {
        // The edit is not given again: what is safe in the graph is enough.
        let again = start(&source, &host, &["--crash-after", next.name()]).await?;
        runs += 1;
        let ended = if was_killed(again.status) { "killed" } else { "ends, never" };
        next_run = format!("{ended} after {}", next.name());
        right &= was_killed(again.status) || again.status.success();
    }
    let mut verified = 0;
    let last = runs + MAX_RUNS;
    // Until a run has nothing to settle and nothing to read back.
    loop {
        let run = start(&source, &host, &[]).await?;
        runs += 1;
        let count = |name: &str| run.summary[name].as_u64().unwrap_or_default();
        verified += count("verified");
        let open = ["written", "reconciled", "verified", "deferred"].map(count).iter().sum::<u64>();
        right &= run.status.success();
        if open == 0 || runs == last || !run.status.success() {
            break;
        }
    }
    let log = fs::read_to_string(world.path().join("source.writes.log")).unwrap_or_default();
    let writes = log.lines().count();
    let agrees = fs::read_to_string(source.join(FILE))? == TEXT && verified == 1;
    let row = Row { killed_after: first.name(), next_run, runs, writes, agrees, right: false };
    let right = right && writes == 1 && agrees;
    Ok((at, Row { right, ..row }))
}

/// A run that has ended.
struct Ended {
    status: ExitStatus,
    summary: Value,
}

async fn start(source: &Path, host: &Path, args: &[&str]) -> Result<Ended, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--source").arg(source).arg("--store").arg(host).arg("--json").args(args);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().await?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    Ok(Ended { status: output.status, summary: serde_json::from_str(line).unwrap_or_default() })
}

#[cfg(unix)]
fn was_killed(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(9)
}

#[cfg(not(unix))]
fn was_killed(status: ExitStatus) -> bool {
    !status.success()
}
