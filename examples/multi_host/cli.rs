//! The command line, and the hidden one by which the program starts itself as a host.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use connector_store::ConnectorName;

/// Lets several host processes share many accounts in one PostgreSQL database, kills some and pauses
/// others, and shows that every account was synced, and none twice.
///
/// Ends with 0 when all is well, 1 when an account was synced twice or not at all, when a command that
/// was acknowledged is lost, or after an error, 2 for a wrong command line.
#[derive(Debug, Parser)]
#[command(name = "multi_host", args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    pub role: Option<Role>,

    #[command(flatten)]
    pub play: Play,
}

/// What the program is when it is not told by a user what to play.
#[derive(Debug, Subcommand)]
pub enum Role {
    /// One of the hosts
    #[command(hide = true)]
    Host(HostArgs),
}

/// What is played.
#[derive(Clone, Debug, Args)]
pub struct Play {
    /// The database, which may hold other stores' things; by default a server is started and removed
    /// again
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,

    /// How many kills there are; a killed host is started again once its leases have expired
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=1_000))]
    pub kills: u16,

    /// How many times a host is paused until its leases have expired
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=1_000))]
    pub pauses: u16,

    /// Which hosts are killed or paused, and in which order, follows from this number
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Verifies the whole store at the end, key by key, which takes longer than the syncs
    #[arg(long)]
    pub verify: bool,

    #[command(flatten)]
    pub work: Work,
}

/// What the hosts do together.
#[derive(Clone, Debug, Args)]
pub struct Work {
    /// How many hosts there are, each a process
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub hosts: u32,

    /// How many accounts (an owner and a connector) they share
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub keys: u32,

    /// How many times each account is synced
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,

    /// How long a lease lasts, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(200..=600_000))]
    pub ttl_ms: u32,

    /// How many accounts a host syncs at once
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub callers: u32,
}

impl Work {
    /// How long a lease lasts.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms.into())
    }

    /// The options by which a host is told of it.
    pub fn to_args(&self) -> Vec<String> {
        let Self { hosts, keys, rounds, ttl_ms, callers } = self;
        let pairs = [
            ("hosts", hosts),
            ("keys", keys),
            ("rounds", rounds),
            ("ttl-ms", ttl_ms),
            ("callers", callers),
        ];
        pairs.into_iter().map(|(name, value)| format!("--{name}={value}")).collect()
    }
}

/// What one host is told. The URL, which may hold a password, comes by the environment.
#[derive(Clone, Debug, Args)]
pub struct HostArgs {
    /// Its number, from 1
    #[arg(long)]
    pub number: u32,

    /// The connector whose accounts are synced
    #[arg(long, value_parser = |text: &str| ConnectorName::new(text).map_err(|error| error.to_string()))]
    pub connector: ConnectorName,

    /// The file in which it notes what was acknowledged
    #[arg(long)]
    pub witness: PathBuf,

    #[command(flatten)]
    pub work: Work,
}
