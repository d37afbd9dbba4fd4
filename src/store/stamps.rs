//! A hybrid logical clock that goes on where the store's stamps end.

use std::time::Duration;

use super::Store;
use super::rows::hlc;
use crate::base::Result;
use crate::domain::{Table, Value};
use crate::journal::RowQuery;
use crate::records::{Hlc, HlcClock};

/// The columns that hold stamps.
const STAMP_COLUMNS: [(Table, usize); 7] = [
    (Table::Operation, 5),
    (Table::ProjectionWatch, 6),
    (Table::ProjectionWatch, 11),
    (Table::SweepReceipt, 8),
    (Table::ObservationRecords, 4),
    (Table::ObservationRepair, 2),
    (Table::ObservationRepair, 3),
];
/// Rows that are read at once: they may hold payloads, and few are ahead of the time.
const ROWS_PER_READ: u32 = 16;

impl Store {
    /// A clock whose stamps are above the store's time, and above the stamp of every operation, watch,
    /// receipt, observation copy and repair in it: to be made when the host starts. The version of a
    /// decision, where it is another stamp than its copies', is in their tokens: observe it when the
    /// decision is read.
    ///
    /// # Errors
    /// [`crate::Error::InvalidInput`] for the field `node` unless it is 1 to 64 of `[A-Za-z0-9_.:-]`;
    /// storage errors.
    pub async fn hlc_clock(&self, node: &str, max_drift: Duration) -> Result<HlcClock> {
        let mut clock = HlcClock::new(node, max_drift)?;
        // Nearly all stamps are of the past. Only those ahead of the time have to be looked for.
        let mut greatest = clock.now(self.now().await?.as_millis())?;
        for (table, column) in STAMP_COLUMNS {
            greatest = self.greatest_stamp(table, column, greatest).await?;
        }
        Ok(clock.starting_above(&greatest))
    }

    /// The greatest stamp of a column, if it is above this one; else this one.
    async fn greatest_stamp(&self, table: Table, column: usize, above: Hlc) -> Result<Hlc> {
        let key = table.spec().key;
        let order: Vec<usize> = std::iter::once(column).chain(key.iter().copied()).collect();
        // The keys of these tables are texts, and none is empty.
        let mut after = vec![Value::text(""); order.len()];
        after[0] = Value::Text(above.shared());
        let mut greatest = above;
        loop {
            let (filters, limit) = (Vec::new(), ROWS_PER_READ);
            let query =
                RowQuery { table, filters, order: order.clone(), after: Some(after), limit };
            let rows = self.rows(&query).await?;
            let Some(last) = rows.last() else { return Ok(greatest) };
            greatest = greatest.max(hlc(last, column)?);
            after = order.iter().filter_map(|column| last.values.get(*column).cloned()).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_of_a_stamp_is_looked_at() {
        let is_stamp = |table: Table, name: &str| {
            name.ends_with("hlc") || (table == Table::Operation && name == "version")
        };
        let mut stamps = Vec::new();
        for table in Table::ALL {
            let columns = table.spec().columns.iter().enumerate();
            let found = columns.filter(|(_, column)| is_stamp(table, column.name));
            stamps.extend(found.map(|(at, _)| (table, at)));
        }
        for stamp in &stamps {
            assert!(STAMP_COLUMNS.contains(stamp), "{stamp:?}");
        }
        assert_eq!(stamps.len(), STAMP_COLUMNS.len());
    }
}
