//! A sync host: it mirrors a folder, as if it were somebody's account, into a small document graph
//! of its own, and keeps everything it must not forget in a `connector_store::Store`.
//!
//! ```text
//! cargo run --release --example sync_host -- --source DIR
//! ```
//!
//! Every directory directly below the source is a partition, every file below a partition is a
//! source entity, named by its path below the source. Files that lie in the source itself belong to
//! no partition and are left alone.
//!
//! In reading order: `sync` is one round over all owners, `partition` and `page` one enumeration,
//! `sweep` the deletions; `provider` is the account, `graph` and `document` the mirror; `lease` says
//! who may write; `host` and `owners` are what lies on the disk besides, `watch`, `report` and
//! `summary` what a person sees.

// A program talks to its user through these, a library must not.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod cli;
mod document;
mod graph;
mod host;
mod lease;
mod owners;
mod page;
mod partition;
mod provider;
mod report;
mod stop;
mod summary;
mod sweep;
mod sync;
mod tasks;
mod watch;

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser;
use connector_store::Store;
use connector_store::records::{DEFAULT_MAX_DRIFT, HlcClock};

use crate::cli::Cli;
use crate::graph::Graph;
use crate::host::Host;
use crate::provider::Folder;
use crate::report::Report;
use crate::stop::Stop;
use crate::summary::{Counts, Summary};
use crate::sync::Mirror;

/// What went wrong, for a person to read.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The guard refused to sweep at least one partition.
const EXIT_REFUSED: u8 = 3;
/// Ctrl-C ended the run before it was through, as a shell reports it.
const EXIT_INTERRUPTED: u8 = 130;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli).await {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("error: {}", report::with_causes(failure.as_ref()));
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Result<u8, Failure> {
    let report = Arc::new(Report::new(cli.verbose));
    let stop = Stop::on_signals();
    let source = cli.source().canonicalize().map_err(|error| {
        format!("the source {} cannot be read: {error}", cli.source().display())
    })?;
    let host = Host::open(&cli.place(&source))?;
    report.note(&format!("mirroring {} into {}", source.display(), host.dir().display()));
    let owners = owners::open(&host.keys_dir(), cli.owners)?;
    let graph = Graph::open(&host.graph_file()).await?;
    let store = Store::builder().sqlite(host.store_file()).open().await?;

    let holder = host.holder()?;
    let mirror = Arc::new(Mirror {
        folder: Folder::new(source, host.own_paths())?,
        clock: Mutex::new(HlcClock::new(holder.as_str(), DEFAULT_MAX_DRIFT)?),
        holder,
        connector: sync::connector()?,
        page_size: cli.page_size,
        allow_mass_delete: cli.allow_mass_delete,
        store: store.clone(),
        graph: graph.clone(),
        report: Arc::clone(&report),
        stop: stop.clone(),
    });
    let started = tokio::time::Instant::now();
    let outcome = rounds(&cli, &mirror, &owners).await;

    // The counters are read before the store closes, and the store closes whatever happened.
    let summary = |counts: &Counts, elapsed: Duration| {
        Summary::new(owners.len(), counts, &store.stats(), elapsed)
    };
    let summary = outcome.as_ref().map(|counts| summary(counts, started.elapsed()));
    report.finish();
    drop(mirror);
    store.close().await?;
    graph.close().await?;
    let Ok(summary) = summary else { return outcome.map(|_| 0) };
    summary.print(cli.json);
    Ok(exit_code(&cli, &stop, &outcome.unwrap_or_default()))
}

/// One round, or with `--watch` one after the other until Ctrl-C.
async fn rounds(
    cli: &Cli,
    mirror: &Arc<Mirror>,
    owners: &[owners::Owner],
) -> Result<Counts, Failure> {
    if cli.watch { watch::rounds(mirror, owners).await } else { sync::round(mirror, owners).await }
}

fn exit_code(cli: &Cli, stop: &Stop, counts: &Counts) -> u8 {
    if counts.refused > 0 {
        EXIT_REFUSED
    } else if stop.requested() && !cli.watch {
        EXIT_INTERRUPTED
    } else {
        0
    }
}
