//! How fast the store is, beside what the same rows cost on a bare connection in the same run.
//!
//! `cargo bench --bench throughput -- [--json] [--only NAME] [--seconds N]` prints
//! one table; with `--json` the last line is the same as a list of objects. Store and bare connection
//! take turns in short rounds and medians are given, because machines are noisy. The feature starts a
//! PostgreSQL server, which waits for the disk as one does that keeps what matters.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the table is what it is for")]
#![allow(clippy::disallowed_methods, reason = "it measures time")]
#![allow(clippy::cast_precision_loss, reason = "counts become rates")]

mod cases;
#[cfg(all(unix, feature = "postgres"))]
mod hosts;
mod keys;
mod mirror;
mod observations;
#[cfg(all(unix, feature = "postgres"))]
mod postgres;
mod raw;
mod table;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use cases::Case;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Parser)]
struct Options {
    /// Ends with the results as a JSON list on one line.
    #[arg(long)]
    json: bool,
    /// Runs only cases whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Seconds of the store's work for each case and number of callers.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Numbers of callers.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64, 256, 1_024])]
    callers: Vec<usize>,
    /// Where the files are: on a disk like the one that is asked about.
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    directory: PathBuf,
    /// Works as the host of this number on a database that the environment names.
    #[cfg(all(unix, feature = "postgres"))]
    #[arg(long, hide = true)]
    host: Option<usize>,
    /// What cargo passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let options = Options::parse();
    let seconds = Duration::try_from_secs_f64(options.seconds)?;
    #[cfg(all(unix, feature = "postgres"))]
    if let Some(number) = options.host {
        return hosts::work(&std::env::var(hosts::URL)?, number, seconds).await;
    }
    let mut lines = Vec::new();
    for case in Case::ALL.into_iter().filter(|case| options.wants(case.name())) {
        eprintln!("{}", case.name());
        lines.extend(cases::run(case, &options.directory, &options.callers, seconds).await?);
    }
    if observations::NAMES.into_iter().any(|name| options.wants(name)) {
        eprintln!("observations");
        let wants = |name: &str| options.wants(name);
        lines.extend(observations::run(&options.directory, &options.callers, wants).await?);
    }
    if options.wants(keys::MEMORY) {
        eprintln!("{}", keys::MEMORY);
        lines.push(keys::memory(&options.directory).await?);
    }
    if options.wants("load_cold") {
        eprintln!("load_cold");
        lines.extend(keys::cold_loads(&options.directory).await?);
    }
    lines.extend(on_postgres(&options, seconds).await?);
    table::print(&lines);
    if options.json {
        println!("{}", serde_json::to_string(&lines)?);
    }
    Ok(())
}

/// The main cases on a PostgreSQL server. Nothing, loudly, where none is installed.
#[cfg(all(unix, feature = "postgres"))]
async fn on_postgres(options: &Options, seconds: Duration) -> Outcome<Vec<table::Line>> {
    let cases: Vec<Case> =
        Case::ON_POSTGRES.into_iter().filter(|case| options.wants(case.name())).collect();
    let wants_hosts = hosts::NAMES.iter().any(|(name, _)| options.wants(name));
    let mut lines = Vec::new();
    if cases.is_empty() && !wants_hosts {
        return Ok(lines);
    }
    let server = [("fsync", "on"), ("full_page_writes", "on"), ("shared_buffers", "256MB")];
    let Some(server) = connector_store::testing::TestPostgres::start(&server)? else {
        return Ok(lines);
    };
    for case in cases {
        eprintln!("{} on PostgreSQL", case.name());
        lines.extend(cases::run_on_postgres(case, &server, &options.callers, seconds).await?);
    }
    if wants_hosts {
        eprintln!("hosts on PostgreSQL");
        lines.extend(hosts::run(&server, seconds).await?);
    }
    Ok(lines)
}

#[cfg(not(all(unix, feature = "postgres")))]
async fn on_postgres(_: &Options, _: Duration) -> Outcome<Vec<table::Line>> {
    eprintln!("SKIPPED: PostgreSQL is measured with the features postgres and testing, on Unix");
    Ok(Vec::new())
}
