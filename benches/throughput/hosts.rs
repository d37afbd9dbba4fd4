//! How much more several host processes do on one PostgreSQL database than one. The benchmark starts
//! itself as each of them.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use connector_store::Store;
use connector_store::testing::TestPostgres;

use crate::table::{Line, median};
use crate::{Outcome, cases};

/// The measurements, each with its number of hosts.
pub const NAMES: [(&str, usize); 3] =
    [("trim_by_1_host", 1), ("trim_by_2_hosts", 2), ("trim_by_4_hosts", 4)];
/// Rounds, in each of which every number of hosts has its turn.
const ROUNDS: usize = 3;
/// Callers of a host.
const CALLERS: usize = 256;
/// By this variable of the environment a host is told the database.
pub const URL: &str = "THROUGHPUT_HOST_URL";

/// What a host does: it says that it is ready, waits for a line, works, and says how fast it was.
pub async fn work(url: &str, number: usize, time: Duration) -> Outcome<()> {
    let begin = async {
        println!("ready");
        // Where the parent is gone nobody reads the answer either.
        let _ = std::io::stdin().read_line(&mut String::new());
    };
    let rate = cases::trims_of_a_host(url, number, CALLERS, time, begin).await?;
    println!("{rate}");
    Ok(())
}

/// Measures each number of hosts beside one host.
pub async fn run(server: &TestPostgres, time: Duration) -> Outcome<Vec<Line>> {
    let mut rates = vec![Vec::new(); NAMES.len()];
    for _ in 0..ROUNDS {
        for (rates, (_, hosts)) in rates.iter_mut().zip(NAMES) {
            let url = server.url(&server.create_database()?);
            Store::builder().postgres(url.as_str()).open().await?.close().await?;
            rates.push(rate(&url, hosts, time)?);
        }
    }
    let alone = rates[0].clone();
    let line = |((name, hosts), rates): ((&'static str, usize), Vec<f64>)| Line {
        name,
        backend: "postgres",
        callers: hosts * CALLERS,
        ratio: median(rates.iter().zip(&alone).map(|(rate, alone)| rate / alone).collect()),
        per_second: median(rates),
        raw_per_second: median(alone.clone()),
        row_at_a_time_per_second: None,
        mean_batch: 0.0,
        bytes_per_key: None,
        processor_us: None,
    };
    Ok(NAMES.into_iter().zip(rates).map(line).collect())
}

/// The rates of all hosts together, which begin at once.
fn rate(url: &str, hosts: usize, time: Duration) -> Outcome<f64> {
    let mut children: Vec<Child> =
        (0..hosts).map(|number| start(url, number, time)).collect::<Outcome<_>>()?;
    let mut outputs = Vec::new();
    for child in &mut children {
        let mut output = BufReader::new(child.stdout.take().ok_or("a host has no output")?);
        line(&mut output)?;
        outputs.push(output);
    }
    for child in &mut children {
        child.stdin.as_mut().ok_or("a host has no input")?.write_all(b"\n")?;
    }
    let mut sum = 0.0;
    for output in &mut outputs {
        sum += line(output)?.trim().parse::<f64>()?;
    }
    for mut child in children {
        child.wait()?;
    }
    Ok(sum)
}

fn line(output: &mut impl BufRead) -> Outcome<String> {
    let mut line = String::new();
    match output.read_line(&mut line)? {
        0 => Err("a host has ended early".into()),
        _ => Ok(line),
    }
}

fn start(url: &str, number: usize, time: Duration) -> Outcome<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--host").arg(number.to_string());
    command.arg("--seconds").arg(time.as_secs_f64().to_string()).env(URL, url);
    Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}
