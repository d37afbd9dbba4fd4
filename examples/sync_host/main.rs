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
//! Local changes go the other way:
//!
//! ```text
//! cargo run --release --example sync_host -- --source DIR --edit owner-1/notes/a.md=TEXT
//! cargo run --release --example sync_host -- --crash-matrix
//! ```
//!
//! The first changes the document and writes the file back, exactly once, whatever happens on the
//! way. The second shows it: it kills runs after every step, and counts the writes in the log of the
//! provider, `<source>.writes.log`.
//!
//! In reading order: `sync` is one round over all owners, `partition` and `page` one enumeration,
//! `sweep` the deletions; `edit` takes a local change, `settle` brings it to the provider; `observe`
//! signs what was seen; `provider` is the account, `graph` and `document` the mirror; `lease` says
//! who may write; `host` and `owners` are what lies on the disk besides, `watch`, `report` and
//! `summary` what a person sees.

// A program talks to its user through these, a library must not.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod cli;
mod crash;
mod document;
mod edit;
mod graph;
mod host;
mod lease;
mod matrix;
mod observe;
mod owners;
mod page;
mod partition;
mod provider;
mod report;
mod settle;
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
use connector_store::records::DEFAULT_MAX_DRIFT;
use tokio::time::Instant;

use crate::cli::Cli;
use crate::crash::Crash;
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
    if cli.crash_matrix {
        return matrix::run(cli.json).await;
    }
    let report = Arc::new(Report::new(cli.verbose));
    let stop = Stop::on_signals();
    let source = cli.source().canonicalize().map_err(|error| {
        format!("the source {} cannot be read: {error}", cli.source().display())
    })?;
    let host = Host::open(&cli.place(&source))?;
    report.note(&format!("mirroring {} into {}", source.display(), host.dir().display()));
    let owners = owners::open(&host.keys_dir(), cli.owners)?;
    let graph = Graph::open(&host.graph_file()).await?;
    // Whose a document is, only the graph knows.
    let store = Store::builder()
        .sqlite(host.store_file())
        .document_owners(Arc::new(graph.clone()))
        .open()
        .await?;

    let holder = host.holder()?;
    // Above all that was ever stamped here: else what is fetched next would look older than what is
    // signed already, wherever the wall clock has stepped back.
    let mut clock = store.hlc_clock(holder.as_str(), DEFAULT_MAX_DRIFT).await?;
    if let Some(greatest) = graph.greatest_stamp().await? {
        clock = clock.starting_above(&greatest);
    }
    let mirror = Arc::new(Mirror {
        folder: Folder::new(source, host.own_paths())?,
        clock: Mutex::new(clock),
        opened: (sync::now(), Instant::now()),
        holder,
        connector: sync::connector()?,
        page_size: cli.page_size,
        allow_mass_delete: cli.allow_mass_delete,
        crash: Crash(cli.crash_after),
        stop_before_write: cli.stop_before_write,
        store: store.clone(),
        graph: graph.clone(),
        report: Arc::clone(&report),
        stop: stop.clone(),
    });
    let started = Instant::now();
    let outcome = rounds(&cli, &mirror, &owners).await;

    // The counters are read before the store closes, and the store closes whatever happened.
    let summary = |counts: &Counts, elapsed: Duration| {
        Summary::new(owners.len(), counts, &store.stats(), elapsed)
    };
    let summary = outcome.as_ref().map(|counts| summary(counts, started.elapsed()));
    report.finish();
    drop(mirror);
    store.close().await?;
    // The store has a handle of the graph.
    drop(store);
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
    edit::accept(mirror, owners, &cli.edits).await?;
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
