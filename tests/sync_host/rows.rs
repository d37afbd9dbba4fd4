//! What a host holds, as text that can be compared: the rows of the graph and of the store's read
//! tables without times, ids of the moment, versions, sequences and clocks.

use std::path::Path;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};

/// What is compared of each read table.
const READ_TABLES: [&str; 13] = [
    "SELECT connector_name, owner_did, checkpoint, entity_count, status, error, recovery, \
     lease_expires_at IS NULL FROM kubun_connector_sync_state",
    "SELECT owner_did, connector_name, partition, provenance, model_id, scope, keep, predicate, \
     kind, complete, committed_at IS NULL FROM kubun_connector_sweep_receipt",
    "SELECT owner_did, connector_name, partition, provenance, page, source_ids \
     FROM connector_receipt_page",
    "SELECT owner_did, connector_name, partition, provenance, document_id, source_id, model_id, \
     state FROM kubun_connector_sweep_candidate",
    "SELECT owner_did, connector_name, partition, provenance FROM kubun_connector_sweep_checkpoint",
    "SELECT owner_did, connector_name, partition FROM connector_owed_sweep",
    "SELECT document_id, owner_did, connector_name, trimmed_fields FROM kubun_connector_entity_trim",
    "SELECT document_id FROM connector_document_sweep",
    "SELECT scope FROM connector_lease",
    "SELECT document_id, state FROM kubun_connector_operation",
    "SELECT document_id, source_id, status FROM kubun_connector_projection_watch",
    "SELECT type, owner, id, CAST(payload AS TEXT) FROM kubun_connector_observation_records",
    "SELECT document_id, owner FROM kubun_connector_observation_repair",
];
/// What is compared of the graph.
const DOCUMENTS: &str = "SELECT document_id, owner, model, partition, source_id, title, body, \
                         digest, trim, trim_due, sign_due FROM document";

/// All that the host holds.
pub fn state(host: &Path) -> Vec<String> {
    let mut rows = graph(host, DOCUMENTS);
    for table in READ_TABLES {
        rows.extend(query(&host.join("store.db"), table));
    }
    rows
}

/// Rows of the graph, in order.
pub fn graph(host: &Path, sql: &str) -> Vec<String> {
    query(&host.join("graph.db"), sql)
}

/// The source ids that are mirrored, in order.
pub fn mirrored(host: &Path) -> Vec<String> {
    graph(host, "SELECT source_id FROM document")
}

/// Rows of the store, in order.
pub fn store(host: &Path, sql: &str) -> Vec<String> {
    query(&host.join("store.db"), sql)
}

fn query(file: &Path, sql: &str) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let options = SqliteConnectOptions::new().filename(file);
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        let sql = AssertSqlSafe(sql.to_owned());
        let found = sqlx::query(sql).fetch_all(&mut connection).await.unwrap();
        let mut rows: Vec<_> = found
            .iter()
            .map(|row| (0..row.len()).map(|at| text(row, at)).collect::<Vec<_>>().join(" | "))
            .collect();
        connection.close().await.unwrap();
        rows.sort();
        rows
    })
}

fn text(row: &sqlx::sqlite::SqliteRow, at: usize) -> String {
    if let Ok(text) = row.try_get::<Option<String>, _>(at) {
        return text.unwrap_or_else(|| "NULL".to_owned());
    }
    row.try_get::<i64, _>(at).unwrap().to_string()
}
