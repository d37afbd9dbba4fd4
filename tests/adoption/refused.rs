//! What is not adopted: it is named, and the file is byte for byte what it was.

use std::path::Path;

use connector_store::{Error, ErrorClass, Store};

use crate::seed::{base, change, newest, owner_of, person, place, put_copy, said, tool};

/// The refusal of the file at `path`, which is not touched by it.
async fn refusal(path: &Path) -> (String, String, Vec<String>) {
    let before = std::fs::read(path).unwrap();
    let error = Store::builder().sqlite(path).open().await.expect_err("it was adopted");
    assert!(std::fs::read(path).unwrap() == before, "the file was changed: {error}");
    assert_eq!(error.code(), "CONNECTOR_ADOPTION_REFUSED", "{error:?}");
    assert_eq!(error.class(), ErrorClass::Refused);
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    let Error::AdoptionRefused { table, column, row } = error else { panic!("{error:?}") };
    (table, column.unwrap_or_default(), row)
}

/// A file of all tables, changed by `sql`, is refused for the column of the table.
async fn assert_refused(sql: &str, table: &str, column: &str) {
    let (_directory, path) = place();
    newest(&path).await;
    change(&path, sql).await;
    let (found, of_column, _) = refusal(&path).await;
    assert_eq!((found, of_column.as_str()), (format!("kubun_connector_{table}"), column), "{sql}");
}

#[tokio::test]
async fn columns_that_are_not_known_or_missing_or_of_another_kind() {
    let cases = [
        ("alter table kubun_connector_entity_trim add column more text", "entity_trim", "more"),
        ("alter table kubun_connector_sync_state drop column recovery", "sync_state", "recovery"),
        (
            "alter table kubun_connector_pending_auth drop column is_incremental",
            "pending_auth",
            "is_incremental",
        ),
        (
            "alter table kubun_connector_sweep_receipt rename column keep to kept",
            "sweep_receipt",
            "kept",
        ),
        (
            "alter table kubun_connector_observation_repair
             add column twice integer generated always as (present * 2)",
            "observation_repair",
            "twice",
        ),
        (
            "drop table kubun_connector_entity_trim; create table kubun_connector_entity_trim (
             document_id text primary key, owner_did text, connector_name text,
             trimmed_fields text, updated_at text)",
            "entity_trim",
            "updated_at",
        ),
        (
            "drop table kubun_connector_sweep_checkpoint;
             create table kubun_connector_sweep_checkpoint (owner_did text, connector_name text,
             partition text, provenance text, receipt_sequence bigint, updated_at bigint)",
            "sweep_checkpoint",
            "owner_did",
        ),
        (
            "drop table kubun_connector_sweep_checkpoint;
             create table kubun_connector_sweep_checkpoint (owner_did text, connector_name text,
             partition text, provenance text, receipt_sequence bigint, updated_at bigint,
             primary key (owner_did, connector_name, partition, provenance))",
            "sweep_checkpoint",
            "provenance",
        ),
    ];
    for (sql, table, column) in cases {
        assert_refused(sql, table, column).await;
    }
}

#[tokio::test]
async fn tables_that_are_not_known() {
    let cases = [
        (
            "create table kubun_connector_operation (operation_id text primary key,
             document_id text, state text, payload text)",
            "operation",
            "payload",
        ),
        (
            "create table kubun_connector_operation (operation_id text primary key,
             document_id text, state text)",
            "operation",
            "owner_did",
        ),
        (
            "create table kubun_connector_projection_watch (id integer, document_id text)",
            "projection_watch",
            "id",
        ),
        ("create table kubun_connector_unheard_of (x)", "unheard_of", ""),
        ("create view kubun_connector_operation as select 1", "operation", ""),
        (
            "create trigger t after delete on kubun_connector_sync_state begin select 1; end",
            "sync_state",
            "",
        ),
    ];
    for (sql, table, column) in cases {
        assert_refused(sql, table, column).await;
    }
}

#[tokio::test]
async fn tables_of_a_store_that_has_lost_its_journal() {
    for table in ["connector_lease", "connector_journal", "connector_receipt_page"] {
        let (_directory, path) = place();
        base(&path).await;
        change(&path, &format!("create table {table} (x)")).await;
        assert_eq!(refusal(&path).await, (table.to_owned(), String::new(), Vec::new()));
    }
}

#[tokio::test]
async fn rows_that_no_state_can_have() {
    let cases = [
        ("sync_state", "entity_count = -1", "entity_count"),
        ("sync_state", "entity_count = 1.5", "entity_count"),
        ("sync_state", "entity_count = 'many'", "entity_count"),
        ("sync_state", "status = 'asleep'", "status"),
        ("sync_state", "last_synced_at = 'yesterday'", "last_synced_at"),
        ("sync_state", "checkpoint = '{'", "checkpoint"),
        ("sync_state", "recovery = 'secret'", "recovery"),
        ("sync_state", "error = x'00'", "error"),
        ("sync_state", "error = 'a' || char(0)", "error"),
        ("sync_state", "incarnation = '6F9619FF-8B86-4D11-B42D-00C04FC964FF'", "incarnation"),
        ("sync_state", "incarnation = 'one'", "incarnation"),
        ("sync_state", "owner_did = 'somebody' where owner_did = 'did:web:other'", "owner_did"),
        ("sync_state", "connector_name = '' where owner_did = 'did:web:other'", "connector_name"),
        ("pending_auth", "scopes = '[1]'", "scopes"),
        ("pending_auth", "is_incremental = 2", "is_incremental"),
        ("pending_auth", "expires_at = -1", "expires_at"),
        ("pending_auth", "redirect_url = ''", "redirect_url"),
        ("pending_auth", "owner_did = 'me'", "owner_did"),
        ("pending_auth", "code_verifier = x'00'", "code_verifier"),
        ("sweep_receipt", "keep = '[1]' where partition = 'work'", "keep"),
        ("sweep_receipt", "kind = 'half'", "kind"),
        ("sweep_receipt", "complete = 0 where committed_at is not null", "committed_at"),
        ("sweep_receipt", "complete = 2", "complete"),
        ("sweep_receipt", "source_fetch_hlc = 'now'", "source_fetch_hlc"),
        ("sweep_receipt", "predicate = 'x'", "predicate"),
        ("sweep_receipt", "partition = '' where partition = 'work'", "partition"),
        ("sweep_candidate", "provenance = 'account-2' where document_id = 'd2'", "provenance"),
        ("sweep_candidate", "state = 'sure'", "state"),
        ("sweep_candidate", "attempts = 4294967296", "attempts"),
        ("sweep_candidate", "source_id = ''", "source_id"),
        ("sweep_checkpoint", "receipt_sequence = -1", "receipt_sequence"),
        ("entity_trim", "trimmed_fields = 'x'", "trimmed_fields"),
        ("entity_trim", "document_id = '' where document_id != 'd1'", "document_id"),
        ("entity_trim", "document_id = 'd1' || char(0) where document_id != 'd1'", "document_id"),
        ("observation_repair", "present = 2", "present"),
        ("observation_repair", "decision_hlc = '1'", "decision_hlc"),
        ("observation_records", "type = 'other'", "type"),
        ("observation_records", "op_jwt = 'a.b.c'", "op_jwt"),
        ("observation_records", "payload = x'00' where payload is not null", "payload"),
        ("observation_records", "payload = null where payload is not null", "payload"),
        ("observation_records", "owner = 'did:web:thief' where id = 'gone'", "owner"),
        ("observation_records", "hlc = '001767225600001-00000000-node'", "hlc"),
        ("observation_records", "op_hash = upper(op_hash) where id = 'gone'", "op_hash"),
    ];
    for (table, set, column) in cases {
        assert_refused(&format!("update kubun_connector_{table} set {set}"), table, column).await;
    }
}

#[tokio::test]
async fn copies_of_two_claims_of_one_record() {
    let (_directory, path) = place();
    newest(&path).await;
    let ada = person(1);
    // Both have the stamps of their record, so that only their claims differ.
    let other = said(&person(2), &owner_of(&ada), "gone", Some(b"there"));
    put_copy(&mut tool(&path).await, &other).await;
    let (table, column, row) = refusal(&path).await;
    assert_eq!(table, "kubun_connector_observation_records");
    assert_eq!((column.as_str(), row[2].as_str()), ("op_jwt", "gone"));
}

#[tokio::test]
async fn a_refusal_names_the_row_and_no_secret() {
    let (_directory, path) = place();
    newest(&path).await;
    let bad = "update kubun_connector_sweep_candidate set state = 'x' where document_id = 'd2'";
    change(&path, bad).await;
    let key = ["did:web:owner", "caldav", "work", "account-1", "d2"].map(str::to_owned);
    assert_eq!(refusal(&path).await.2, key);
    for provider in ["''", "x'00'"] {
        let (_directory, path) = place();
        newest(&path).await;
        let set = format!("update kubun_connector_pending_auth set provider = {provider}");
        change(&path, &format!("{set} where created_at > 0")).await;
        let row = refusal(&path).await.2;
        assert!(row[0].starts_with("auth:"), "{row:?}");
    }
}
