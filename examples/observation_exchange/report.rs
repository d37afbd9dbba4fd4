//! What came of it, as tables. Nothing here depends on how long anything took, so two runs with the
//! same options show the same.

use comfy_table::{Cell, CellAlignment, Table};
use connector_store::records::RecordDecision;

use crate::Failure;
use crate::host::{Counts, Host, Value, text};
use crate::play::Play;

type Counter = fn(&Counts) -> u64;

/// The counters and what they are called.
const COUNTERS: [(&str, Counter); 8] = [
    ("signed here", |counts| counts.signed),
    ("fetches that were outdated", |counts| counts.outdated),
    ("puts of others", |counts| counts.puts),
    ("repeats", |counts| counts.repeats),
    ("lower", |counts| counts.lower),
    ("refused", |counts| counts.refused),
    ("pruned", |counts| counts.pruned),
    ("repaired", |counts| counts.repaired),
];

/// Prints the tables. The answer says how many documents are not the same everywhere.
pub async fn print(play: &Play, rounds: u32) -> Result<usize, Failure> {
    let mut different = 0;
    let mut documents = table(play, "document");
    for document in &play.documents {
        let mut decisions = Vec::with_capacity(play.hosts.len());
        for host in &play.hosts {
            decisions.push(host.decision(document).await?);
        }
        let mut row = vec![document.to_string()];
        let mut are_shown = true;
        for (host, decision) in play.hosts.iter().zip(&decisions) {
            let decided = decision.as_ref().map(text).transpose()?;
            are_shown &= host.shown(document) == decided.clone().flatten();
            row.push(cell(decision.as_ref(), decided));
        }
        // Whole decisions are compared: version, digest, value and every copy.
        let is_same = decisions.iter().all(|decision| *decision == decisions[0]);
        different += usize::from(!(is_same && are_shown));
        row.push(if is_same && are_shown { "same".to_owned() } else { "DIFFERENT".to_owned() });
        documents.add_row(row);
    }
    println!("{documents}\n");

    let mut counters = table(play, "copies");
    for (name, counter) in COUNTERS {
        let numbers = play
            .hosts
            .iter()
            .map(|host| Cell::new(counter(&host.counts)).set_alignment(CellAlignment::Right));
        counters.add_row(std::iter::once(Cell::new(name)).chain(numbers));
    }
    println!("{counters}\n");

    let network = &play.network;
    println!("messages: {} sent, {} lost, {} doubled", network.sent, network.lost, network.doubled);
    println!("full exchanges: {rounds}");
    if different == 0 {
        println!("all hosts hold the same");
    } else {
        println!("documents that are DIFFERENT: {different}");
    }
    Ok(different)
}

fn table(play: &Play, first: &str) -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    let hosts = play.hosts.iter().map(|host: &Host| host.name.clone());
    table.set_header(std::iter::once(first.to_owned()).chain(hosts));
    table
}

/// What was decided, and by how many devices.
fn cell(decision: Option<&RecordDecision>, decided: Option<Value>) -> String {
    let copies = decision.map_or(0, |decision| decision.copies.len());
    match decided {
        None => "-".to_owned(),
        Some(None) => format!("deleted ({copies})"),
        Some(Some(value)) => format!("{value} ({copies})"),
    }
}
