//! What a run came to.

use std::ops::AddAssign;
use std::time::Duration;

use comfy_table::{CellAlignment, Table};
use connector_store::StoreStats;
use serde::Serialize;

/// What happened, counted over all owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Partitions that were enumerated, those that vanished included.
    pub partitions: u64,
    /// Entities that are mirrored.
    pub entities: u64,
    /// Documents that are new.
    pub created: u64,
    /// Documents whose file changed.
    pub updated: u64,
    /// Documents whose file is as it was.
    pub unchanged: u64,
    /// Created or updated documents whose body was cut.
    pub trimmed: u64,
    /// Documents that were deleted, because their file is gone.
    pub swept: u64,
    /// What is there but cannot be mirrored.
    pub skipped: u64,
    /// Partitions that the mass-delete guard refused to sweep.
    pub refused: u64,
    /// Edits that this run wrote to the source.
    pub written: u64,
    /// Edits that were found written, by a run that could not say so any more.
    pub reconciled: u64,
    /// Edits that were read back.
    pub verified: u64,
    /// Edits that were written, and something else was read.
    pub mismatched: u64,
    /// Edits that wait for a later run.
    pub deferred: u64,
    /// Those of them that wait because their file was changed at the source, too.
    pub conflicts: u64,
    /// Records of documents that were signed and put.
    pub signed: u64,
    /// Files that were read before something newer was decided of them, so they were not applied.
    pub decided: u64,
}

impl Counts {
    /// The round wrote or deleted a document, or a file.
    pub const fn changed(&self) -> bool {
        self.created + self.updated + self.swept + self.written + self.reconciled > 0
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.partitions += other.partitions;
        self.entities += other.entities;
        self.created += other.created;
        self.updated += other.updated;
        self.unchanged += other.unchanged;
        self.trimmed += other.trimmed;
        self.swept += other.swept;
        self.skipped += other.skipped;
        self.refused += other.refused;
        self.written += other.written;
        self.reconciled += other.reconciled;
        self.verified += other.verified;
        self.mismatched += other.mismatched;
        self.deferred += other.deferred;
        self.conflicts += other.conflicts;
        self.signed += other.signed;
        self.decided += other.decided;
    }
}

/// The summary. The order of the fields is the order in which they are written.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    owners: usize,
    partitions: u64,
    entities: u64,
    created: u64,
    updated: u64,
    unchanged: u64,
    trimmed: u64,
    swept: u64,
    skipped: u64,
    refused: u64,
    commands: u64,
    events: u64,
    batches: u64,
    seconds: f64,
    written: u64,
    reconciled: u64,
    verified: u64,
    mismatched: u64,
    deferred: u64,
    conflicts: u64,
    signed: u64,
    decided: u64,
}

impl Summary {
    /// Puts together what the host counted and what the store did.
    pub fn new(owners: usize, counts: &Counts, stats: &StoreStats, elapsed: Duration) -> Self {
        Self {
            owners,
            partitions: counts.partitions,
            entities: counts.entities,
            created: counts.created,
            updated: counts.updated,
            unchanged: counts.unchanged,
            trimmed: counts.trimmed,
            swept: counts.swept,
            skipped: counts.skipped,
            refused: counts.refused,
            commands: stats.commands,
            events: stats.events,
            batches: stats.batches,
            seconds: (elapsed.as_secs_f64() * 1_000.0).round() / 1_000.0,
            written: counts.written,
            reconciled: counts.reconciled,
            verified: counts.verified,
            mismatched: counts.mismatched,
            deferred: counts.deferred,
            conflicts: counts.conflicts,
            signed: counts.signed,
            decided: counts.decided,
        }
    }

    /// Writes it to standard output: one line of JSON, or a table.
    pub fn print(&self, json: bool) {
        if json {
            // The struct is written and not the value: a JSON map would sort the names.
            println!("{}", serde_json::to_string(self).unwrap_or_default());
            return;
        }
        let value = serde_json::to_value(self).unwrap_or_default();
        let mut table = Table::new();
        table.load_preset(comfy_table::presets::NOTHING);
        for name in NAMES {
            table.add_row([name, &value[name].to_string()]);
        }
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        println!("{table}");
    }
}

const NAMES: [&str; 22] = [
    "owners",
    "partitions",
    "entities",
    "created",
    "updated",
    "unchanged",
    "trimmed",
    "swept",
    "skipped",
    "refused",
    "commands",
    "events",
    "batches",
    "seconds",
    "written",
    "reconciled",
    "verified",
    "mismatched",
    "deferred",
    "conflicts",
    "signed",
    "decided",
];
