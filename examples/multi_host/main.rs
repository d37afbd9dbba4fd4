//! Several host processes share many accounts in one PostgreSQL database. Some are killed, others
//! stopped until their leases have expired, and in the end each account was synced as often as it
//! should, never twice, and nothing that was acknowledged is lost, which is checked.
//!
//! ```text
//! cargo run --release --example multi_host
//! cargo run --release --example multi_host -- --hosts 8 --kills 10 --seed 7
//! ```
//!
//! Who syncs an account is decided by its lease. A host that comes back after it had been stopped goes on
//! as if nothing had happened, with leases that others have taken over meanwhile; whatever it sends
//! through their sessions is refused, for the database looks at the lease in the transaction that writes.
//!
//! Without `--url` a server is started that lives no longer than the program. It does not wait for the
//! disk, so that a run says something about the hosts and little about the disk.
//!
//! In reading order: `host` is one host; `witness` is what it notes beside the store; `fleet` starts,
//! kills, stops and wakes the processes; `audit` counts; `report` says what came of it.

// A program talks to its user through these, a library must not.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod audit;
#[path = "../observation_exchange/chance.rs"]
#[allow(dead_code, reason = "another example needs the rest of it")]
mod chance;
mod cli;
mod fleet;
mod host;
mod names;
mod report;
#[path = "../sync_host/tasks.rs"]
mod tasks;
mod witness;

use std::process::ExitCode;

use clap::Parser;
use connector_store::{ConnectorName, Store};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;
use uuid::Uuid;

use crate::audit::Audit;
use crate::cli::{Cli, Play, Role};
use crate::fleet::Fleet;

/// What went wrong, for a person to read.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// After Ctrl-C.
const EXIT_INTERRUPTED: u8 = 130;

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { role, play } = Cli::parse();
    let ended = match role {
        Some(Role::Host(args)) => host::run(args).await,
        None => tokio::select! {
            ended = run(&play) => ended.map(|is_well| ExitCode::from(u8::from(!is_well))),
            // What was started is ended as it is dropped.
            () = interrupted() => Ok(ExitCode::from(EXIT_INTERRUPTED)),
        },
    };
    ended.unwrap_or_else(|failure| {
        eprint!("error: {failure}");
        let mut source = failure.source();
        while let Some(cause) = source {
            eprint!(": {cause}");
            source = cause.source();
        }
        eprintln!();
        ExitCode::FAILURE
    })
}

/// The answer says whether each account was synced as it should, and nothing is lost.
async fn run(play: &Play) -> Result<bool, Failure> {
    let database = Database::of(play).await?;
    // An own connector for each run, so that a database can be used again.
    let connector = ConnectorName::new(format!("files-{}", Uuid::new_v4().simple()))?;
    let dir = tempfile::tempdir()?;
    let bar = ProgressBar::new(u64::from(play.work.keys) * u64::from(play.work.rounds));
    let style = ProgressStyle::with_template("{bar:30} {human_pos}/{human_len} {per_sec}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));

    let begun = Instant::now();
    let mut fleet = Fleet::start(play, &database.url, &connector, dir.path())?;
    eprintln!("{} hosts share {} accounts", play.work.hosts, play.work.keys);
    fleet.run(&bar).await?;
    let took = begun.elapsed();
    bar.finish_and_clear();

    let store = Store::builder().postgres(database.url.as_str()).open().await?;
    let audit = Audit::of(&store, &connector, &play.work, &fleet.hosts).await?;
    let is_sound = match play.verify {
        true => Some(store.verify().await?.is_sound()),
        false => None,
    };
    store.close().await?;
    report::print(&fleet.hosts, &audit, is_sound, took);
    Ok(audit.is_well() && is_sound != Some(false))
}

/// Ctrl-C, or the signal by which a program is ended.
async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The database of the run.
struct Database {
    url: String,
    /// Removed with this value.
    #[cfg(unix)]
    _server: Option<connector_store::testing::TestPostgres>,
}

impl Database {
    #[cfg(unix)]
    async fn of(play: &Play) -> Result<Self, Failure> {
        use connector_store::testing::TestPostgres;
        if let Some(url) = &play.url {
            return Ok(Self { url: url.clone(), _server: None });
        }
        tokio::task::spawn_blocking(|| {
            let server = TestPostgres::start(&[])?;
            let server = server.ok_or("install it, or give the URL of a database by --url")?;
            let url = server.url(&server.create_database()?);
            Ok(Self { url, _server: Some(server) })
        })
        .await?
    }

    #[cfg(not(unix))]
    async fn of(play: &Play) -> Result<Self, Failure> {
        let url = play.url.clone().ok_or("give the URL of a database by --url")?;
        Ok(Self { url })
    }
}
