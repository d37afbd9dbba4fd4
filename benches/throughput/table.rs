//! The results: one line each, as a table and as JSON. It knows nothing of how they were measured.

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// What was done.
    pub name: &'static str,
    /// Where the store was kept.
    pub backend: &'static str,
    /// How many callers did it at once.
    pub callers: usize,
    /// How often in a second.
    pub per_second: f64,
    /// How often a bare connection did it in a second.
    pub raw_per_second: f64,
    /// The median of the rounds' ratios of the two.
    pub ratio: f64,
    /// How often clients did it that write row by row, where they were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_at_a_time_per_second: Option<f64>,
    /// Appends of a transaction; 0 for reads.
    pub mean_batch: f64,
    /// Bytes of a key in memory, where they were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_key: Option<f64>,
    /// Microseconds of processor time that one took, on all threads, and that what it is compared
    /// with took, where they were measured. On a machine that others use, too, the ratio of these
    /// is what the ratio of the rates would be on one of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor_us: Option<[f64; 2]>,
}

/// The middle value; of an even number the upper one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Prints the table.
pub fn print(lines: &[Line]) {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    table.set_header([
        "name",
        "backend",
        "callers",
        "per second",
        "raw",
        "ratio",
        "mean batch",
        "note",
    ]);
    for line in lines {
        let note = match (line.processor_us, line.bytes_per_key, line.row_at_a_time_per_second) {
            (Some([own, raw]), ..) => format!("{own:.2} µs of processor, beside {raw:.2}"),
            (_, Some(bytes), _) => format!("{bytes:.0} bytes a key"),
            (_, None, Some(rate)) => {
                format!("{:.1} × row at a time", line.per_second / rate.max(1e-9))
            }
            _ if line.name.starts_with("load_cold") => {
                format!("{:.0} µs", 1e6 / line.per_second.max(1e-9))
            }
            _ => String::new(),
        };
        table.add_row([
            line.name.to_owned(),
            line.backend.to_owned(),
            line.callers.to_string(),
            format!("{:.0}", line.per_second),
            format!("{:.0}", line.raw_per_second),
            format!("{:.2}", line.ratio),
            format!("{:.1}", line.mean_batch),
            note,
        ]);
    }
    for column in 2..7 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
}
