//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use connector_store::testing::PlantedBug;

use crate::engine::{Config, Faults};

/// Plays a whole deployment from a seed, on simulated time: hosts that share a database, the people
/// who use them, accounts at a provider, and all that goes wrong. Everything that is written is held to
/// the rules of the store.
///
/// Ends with 0 when no rule was broken, 1 when one was (or a file could not be written), 2 for a wrong
/// command line.
#[derive(Debug, Parser)]
#[command(name = "simulation")]
pub struct Cli {
    /// How many hosts share the database
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub hosts: u16,

    /// How many owners there are, each with an account
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=20_000))]
    pub owners: u16,

    /// How many commands there are before no new work begins [default: 10 for each owner, at least 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub commands: Option<u64>,

    /// All that happens follows from this number
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Plays so many seeds, from the given one on, until a rule is broken
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,

    /// What goes wrong: all, none, or some of the rest with commas between
    #[arg(long, value_name = "FAULTS", value_enum, value_delimiter = ',', default_value = "all")]
    pub faults: Vec<FaultKind>,

    /// Breaks the store on purpose, to see that it is noticed; a wrong name tells all
    #[arg(long, value_name = "NAME", value_parser = bug)]
    pub bug: Option<PlantedBug>,

    /// Writes what happened, line by line, to this file (of the last seed that was played)
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,

    /// Writes a page with plots to this file (of the last seed that was played)
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// A family of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FaultKind {
    /// Each of the others
    All,
    /// Nothing goes wrong
    None,
    /// Appends fail, stall, and lose their acknowledgement
    Storage,
    /// The provider fails, answers late, shows writes late
    Provider,
    /// Hosts are killed, and start again
    Kills,
    /// Hosts are paused, and go on
    Pauses,
    /// Hosts are cut off from the database
    Cuts,
}

impl Cli {
    /// What a seed is played with.
    pub fn config(&self, seed: u64) -> Config {
        let (hosts, owners) = (self.hosts.into(), self.owners.into());
        let (faults, bug) = (self.faults(), self.bug);
        Config { seed, hosts, owners, commands: self.commands(), faults, bug }
    }

    pub fn commands(&self) -> u64 {
        self.commands.unwrap_or((u64::from(self.owners) * 10).max(10_000))
    }

    fn faults(&self) -> Faults {
        let has = |kind| self.faults.contains(&FaultKind::All) || self.faults.contains(&kind);
        let (all, none) = (Faults::ALL, Faults::NONE);
        let of = |kind| if has(kind) { all } else { none };
        Faults {
            storage: of(FaultKind::Storage).storage,
            provider: of(FaultKind::Provider).provider,
            kills: of(FaultKind::Kills).kills,
            pauses: of(FaultKind::Pauses).pauses,
            cuts: of(FaultKind::Cuts).cuts,
        }
    }

    /// The line that plays one seed again, as it was played.
    pub fn replay(&self, seed: u64) -> String {
        let (Self { hosts, owners, .. }, commands) = (self, self.commands());
        let faults: Vec<_> = self.faults.iter().filter_map(ValueEnum::to_possible_value).collect();
        let faults: Vec<_> = faults.iter().map(clap::builder::PossibleValue::get_name).collect();
        let bug = self.bug.map(|bug| format!(" --bug {}", name(bug))).unwrap_or_default();
        format!(
            "cargo run --release --example simulation -- --hosts {hosts} \
             --owners {owners} --commands {commands} --seed {seed} --faults {}{bug}",
            faults.join(",")
        )
    }
}

/// The name of a planted bug on the command line.
pub fn name(bug: PlantedBug) -> String {
    let mut name = String::new();
    for letter in format!("{bug:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

fn bug(text: &str) -> Result<PlantedBug, String> {
    let found = PlantedBug::ALL.into_iter().find(|bug| name(*bug) == text);
    found.ok_or_else(|| format!("it is one of: {}", PlantedBug::ALL.map(name).join(", ")))
}
