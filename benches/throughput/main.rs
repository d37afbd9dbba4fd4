//! How fast the store is, beside what the same rows cost on a bare connection in the same run.
//!
//! `cargo bench --bench throughput -- [--json] [--only NAME] [--seconds N]` prints one table; with
//! `--json` the last line is the same as a list of objects. Store and bare connection take turns in
//! short rounds and medians are given, because machines are noisy.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the table is what it is for")]
#![allow(clippy::disallowed_methods, reason = "it measures time")]
#![allow(clippy::cast_precision_loss, reason = "counts become rates")]

mod cases;
mod keys;
mod observations;
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
    let mut lines = Vec::new();
    for case in Case::ALL.into_iter().filter(|case| options.wants(case.name())) {
        eprintln!("{}", case.name());
        lines.extend(cases::run(case, &options.directory, &options.callers, seconds).await?);
    }
    if [observations::PUT_NEW, observations::PUT_KNOWN, observations::DECISION]
        .into_iter()
        .any(|name| options.wants(name))
    {
        eprintln!("observations");
        lines.extend(observations::run(&options.directory, &options.callers).await?);
    }
    if options.wants(keys::MEMORY) {
        eprintln!("{}", keys::MEMORY);
        lines.push(keys::memory(&options.directory).await?);
    }
    if options.wants("load_cold") {
        eprintln!("load_cold");
        lines.extend(keys::cold_loads(&options.directory).await?);
    }
    table::print(&lines);
    if options.json {
        println!("{}", serde_json::to_string(&lines)?);
    }
    Ok(())
}
