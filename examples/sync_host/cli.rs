//! The command line.

use std::path::{Path, PathBuf};

use clap::Parser;

use crate::crash::CrashPoint;
use crate::edit::Request;
use crate::host::Place;

/// Mirrors a folder tree into a host's own document graph, and writes local edits back to it.
///
/// Ends with 0 when all is mirrored (edits may wait or conflict: see `deferred` and `conflicts`), 3
/// when the mass-delete guard refused a partition, 1 after an error, 2 for a wrong command line, 130
/// when Ctrl-C ended it early.
#[derive(Debug, Parser)]
#[command(name = "sync_host")]
pub struct Cli {
    /// The folder to mirror: each directory directly below it is a partition, files in it itself are
    /// left alone; by default the folder that comes with the example
    #[arg(long, value_name = "DIR", default_value = DEFAULT_SOURCE, hide_default_value = true)]
    source: PathBuf,

    /// Where the host keeps its things: a directory, or `sqlite:PATH`; by default a directory for
    /// this source below ./sync-host-data
    #[arg(long, value_name = "URL", value_parser = Place::parse)]
    store: Option<Place>,

    /// Mirrors the source for so many owners at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub owners: u32,

    /// Prints the summary as one JSON object, on the last line
    #[arg(long)]
    pub json: bool,

    /// Goes on until Ctrl-C, with a new round whenever the source changed
    #[arg(long)]
    pub watch: bool,

    /// How many entities are mirrored between two checkpoints
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub page_size: u32,

    /// Sweeps even when most of a partition, or all of it, is gone
    #[arg(long)]
    pub allow_mass_delete: bool,

    /// Changes a document and writes it back to the source; PATH is below the source, its first
    /// part the partition. Made again on a conflict, it decides it
    #[arg(long = "edit", value_name = "OWNER/PATH=TEXT", value_parser = Request::parse)]
    pub edits: Vec<Request>,

    /// Kills the process with SIGKILL after this step of the first edit that gets there
    #[arg(long, value_name = "STEP")]
    pub crash_after: Option<CrashPoint>,

    /// Kills runs of its own over a temporary tree after every step, and counts the writes. Of the
    /// other options it takes `--json` alone
    #[arg(long)]
    pub crash_matrix: bool,

    /// Stops the process between the permission to send and the request
    #[arg(long, hide = true)]
    pub stop_before_write: bool,

    /// Tells every step that is safe on the disk
    #[arg(long)]
    pub verbose: bool,
}

/// The tree that comes with the example.
const DEFAULT_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sync_host/source");

impl Cli {
    /// The folder to mirror.
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// The host's place for this source.
    pub fn place(&self, source: &Path) -> Place {
        self.store.clone().unwrap_or_else(|| Place::for_source(source))
    }
}
