//! A whole deployment in one thread, on simulated time, from a seed: hosts that share a database, the
//! people who use them, accounts at a provider, and all that goes wrong. Each thing that is written is
//! held to the rules of the store, and the first rule that is broken ends the run.
//!
//! ```text
//! cargo run --release --example simulation -- --hosts 4 --owners 2000 --seed 7 --faults all
//! cargo run --release --example simulation -- --seed 7 --report report.html
//! ```
//!
//! The same seed plays the same history, in every process: its digest says so. The engine is that of
//! the test `simulation`. In reading order: `cli`, `summary` (what came of it, in a terminal), `page`
//! (the same as a page with plots).

// A program talks to its user through these, a library must not.
#![allow(clippy::print_stdout, clippy::print_stderr)]
#![allow(clippy::unwrap_used, reason = "the engine is that of a test")]

mod cli;
#[path = "../../tests/simulation/engine/mod.rs"]
#[allow(dead_code, reason = "the test needs the rest of it")]
mod engine;
mod page;
mod summary;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use cli::Cli;
use engine::{Progress, Report, run_watched};
use summary::Summary;

/// Commands, or parts of the end, between two lines of progress where no terminal is.
const LINE_EVERY: u64 = 1_000;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match play(&cli) {
        Ok(is_sound) => ExitCode::from(u8::from(!is_sound)),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The answer says whether every rule was kept.
#[allow(clippy::disallowed_methods, reason = "how fast it was in real time is shown, and no more")]
fn play(cli: &Cli) -> std::io::Result<bool> {
    let begun = Instant::now();
    let mut summary = Summary::default();
    for seed in cli.seed..cli.seed.saturating_add(cli.seeds) {
        let report = play_seed(cli, seed);
        summary.add(&report);
        let digest = report.history.digest().to_hex();
        let is_broken = report.violation.is_some();
        if cli.seeds > 1 {
            let came = if is_broken { "a rule is broken" } else { "sound" };
            println!("seed {seed}: {came}, history {digest}");
        }
        if !is_broken && seed + 1 < cli.seed.saturating_add(cli.seeds) {
            continue;
        }
        summary.took = begun.elapsed();
        println!("{summary}");
        println!("history of seed {seed}: {digest}");
        if let Some(path) = &cli.history {
            std::fs::write(path, report.history.as_str())?;
        }
        if let Some(path) = &cli.report {
            std::fs::write(path, page::render(cli, seed, &report, &summary))?;
        }
        tell(cli, seed, &report);
        return Ok(!is_broken);
    }
    Ok(true)
}

fn tell(cli: &Cli, seed: u64, report: &Report) {
    match &report.violation {
        None => println!("no rule was broken"),
        Some(violation) => println!("{violation}\nplay it again: {}", cli.replay(seed)),
    }
}

fn play_seed(cli: &Cli, seed: u64) -> Report {
    let bar = ProgressBar::new(cli.commands());
    let style = ProgressStyle::with_template("{prefix} {bar:30} {human_pos}/{human_len} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(format!("seed {seed}"));
    let shown = bar.clone();
    let report = run_watched(&cli.config(seed), move |progress| show(&shown, seed, progress));
    bar.finish_and_clear();
    report
}

/// On the bar, or in lines where no terminal is.
fn show(bar: &ProgressBar, seed: u64, progress: Progress) {
    let (done, of, what) = match progress {
        Progress::Commands(count) => (count, bar.length().unwrap_or(count), "commands"),
        Progress::End { what, done, of } => (done as u64, of as u64, what),
    };
    let is_new = bar.message() != what;
    if is_new {
        bar.set_message(what);
    }
    let is_round = done.is_multiple_of(LINE_EVERY) && done != bar.position();
    if bar.is_hidden() && (is_new || is_round) {
        eprintln!("seed {seed}: {what}: {done} of {of}");
    }
    bar.set_length(of);
    bar.set_position(done.min(of));
}
