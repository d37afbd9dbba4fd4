//! What came of it, as a table and a few lines.

use std::time::Duration;

use comfy_table::{Cell, CellAlignment, Table};

use crate::audit::{Audit, Counts};
use crate::fleet::Host;
use crate::names;

/// Prints it.
pub fn print(hosts: &[Host], audit: &Audit, is_sound: Option<bool>, took: Duration) {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_header(["host", "synced", "leases", "takeovers", "fenced", "killed", "paused"]);
    let mut sum = [0; 6];
    for host in hosts {
        let name = names::host(host.number);
        let none = Counts::default();
        let counts = audit.hosts.get(&name).unwrap_or(&none);
        let Counts { synced, leases, takeovers, fenced } = *counts;
        let numbers = [synced, leases, takeovers, fenced, host.kills, host.pauses];
        sum.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        table.add_row(row(name, numbers));
    }
    table.add_row(row("all".to_owned(), sum));
    println!("{table}\n");
    println!("synced in {:.1} s", took.as_secs_f64());
    println!("double syncs: {}", audit.doubles);
    println!("accounts not synced: {}", audit.missing);
    println!("lost commands: {} of {} acknowledged", audit.lost, audit.acknowledged);
    let store = match is_sound {
        Some(true) => "sound",
        Some(false) => "DAMAGED",
        None => "not verified",
    };
    println!("store: {store}");
}

fn row(name: String, numbers: [u64; 6]) -> Vec<Cell> {
    let numbers = numbers.map(|number| Cell::new(number).set_alignment(CellAlignment::Right));
    std::iter::once(Cell::new(name)).chain(numbers).collect()
}
