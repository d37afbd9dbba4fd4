//! The command line.

use clap::Parser;

/// Lets several hosts of one owner observe, edit and exchange, and shows that they come to the same
/// decisions.
///
/// Ends with 0 when all hosts hold the same in the end, 1 when they do not, or after an error, 2 for
/// a wrong command line.
#[derive(Debug, Parser)]
#[command(name = "observation_exchange")]
pub struct Cli {
    /// How many hosts there are, each with a store and a device key of its own
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=16))]
    pub hosts: u8,

    /// How many documents they observe
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u8).range(1..=200))]
    pub documents: u8,

    /// How many things happen before the last exchanges
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub steps: u32,

    /// What happens follows from this number alone
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// How many of a hundred messages are lost. With 100 no host ever hears of another, so they end
    /// with different decisions
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub loss: u8,
}
