//! The same on a PostgreSQL database, which several hosts may open at once.

use std::sync::Arc;

use connector_store::testing::TestPostgres;
use connector_store::{
    ConnectorName, DocumentId, Error, ErrorClass, Json, OwnerDid, Secret, Store,
};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

use crate::seed::{OWNER, TABLES, copies, on_a_server};

async fn run(tool: &mut PgConnection, sql: &str) -> Vec<PgRow> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_all(tool).await.unwrap()
}

async fn number(tool: &mut PgConnection, sql: &str) -> i64 {
    run(tool, sql).await[0].get(0)
}

/// A database as another program has written it; none without a server.
async fn newest() -> Option<(Arc<TestPostgres>, String, PgConnection)> {
    newest_on(&[]).await
}

async fn newest_on(settings: &[(&str, &str)]) -> Option<(Arc<TestPostgres>, String, PgConnection)> {
    let server = Arc::new(TestPostgres::start(settings).unwrap()?);
    let url = server.url(&server.create_database().unwrap());
    let mut tool = PgConnection::connect(&url).await.unwrap();
    for sql in on_a_server() {
        run(&mut tool, &sql).await;
    }
    for copy in copies() {
        let sql =
            "insert into kubun_connector_observation_records values ($1, $2, $3, $4, $5, $6, $7)";
        sqlx::query(sql)
            .bind(&*copy.key.record_type)
            .bind(copy.key.owner.as_str())
            .bind(copy.key.id.as_str())
            .bind(copy.op_hash.to_hex())
            .bind(copy.hlc.as_str())
            .bind(&*copy.op_jwt)
            .bind(copy.payload.as_deref())
            .execute(&mut tool)
            .await
            .unwrap();
    }
    Some((server, url, tool))
}

/// All rows of the tables, but for what adoption sets.
async fn dump(tool: &mut PgConnection) -> Vec<String> {
    let mut rows = Vec::new();
    for table in TABLES {
        let sql = format!(
            "select (to_jsonb(t) - 'lease_expires_at' - 'incarnation')::text from {table} as t"
        );
        rows.extend(run(tool, &sql).await.iter().map(|row| row.get::<String, _>(0)));
    }
    rows.sort();
    rows
}

async fn open(url: &str) -> Result<Store, Error> {
    Store::builder().postgres(url).accept_foreign_owners().open().await
}

async fn assert_sound(store: &Store) {
    let report = store.verify().await.unwrap();
    assert!(report.is_sound(), "{:?}", report.damages);
    let rebuilt = store.rebuild().await.unwrap();
    assert_eq!((rebuilt.written, rebuilt.removed), (0, 0), "{rebuilt:?}");
    assert!(rebuilt.lost.is_empty() && rebuilt.damages.is_empty(), "{rebuilt:?}");
}

/// Each is written by itself, all in one transaction.
#[tokio::test]
async fn more_connections_are_adopted_than_the_server_can_hold_locks() {
    let few = [("max_connections", "20"), ("max_locks_per_transaction", "10")];
    let Some((_server, url, mut tool)) = newest_on(&few).await else { return };
    let many = "insert into kubun_connector_sync_state \
                select 'c', 'did:web:o' || n, null, '2026-01-01T00:00:00Z', 0, 'idle' \
                from generate_series(1, 1000) as n";
    run(&mut tool, many).await;
    let store = open(&url).await.unwrap();
    let streams =
        number(&mut tool, "select count(*) from connector_stream where name ~ 'did:web:o[0-9]'");
    assert_eq!(streams.await, 1_000);
    store.close().await.unwrap();
}

#[tokio::test]
async fn hosts_that_start_at_once_adopt_every_row_once() {
    let Some((_server, url, mut tool)) = newest().await else { return };
    run(&mut tool, "create role reader; grant select on kubun_connector_entity_trim to reader with grant option")
        .await;
    let before = dump(&mut tool).await;
    let hosts: Vec<_> = (0..3)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { open(&url).await })
        })
        .collect();
    let mut stores = Vec::new();
    for host in hosts {
        stores.push(host.await.unwrap().unwrap());
    }
    assert_sound(&stores[0]).await;
    assert_eq!(dump(&mut tool).await, before);
    let events = number(&mut tool, "select count(*) from connector_journal").await;
    assert_eq!(events, i64::try_from(before.len()).unwrap());
    let incarnations = "select count(distinct incarnation) from kubun_connector_sync_state";
    assert_eq!(number(&mut tool, incarnations).await, 3);
    let kept = "select count(*) from kubun_connector_sync_state
                where incarnation = '6f9619ff-8b86-4d11-b42d-00c04fc964ff'";
    assert_eq!(number(&mut tool, kept).await, 1);
    // Numbers are wide, text is compared by its bytes, and readers may read on.
    let narrow = "select count(*) from pg_attribute as a join pg_class as c on c.oid = a.attrelid
        where c.relname like 'kubun_connector_%' and c.relkind = 'r' and a.attnum > 0
        and (format_type(a.atttypid, null) = 'integer'
        or (a.attcollation != 0 and a.attcollation != '\"C\"'::regcollation))";
    assert_eq!(number(&mut tool, narrow).await, 0);
    let readable = "select has_table_privilege('reader', 'kubun_connector_entity_trim', 'select with grant option')::int::bigint";
    assert_eq!(number(&mut tool, readable).await, 1);
    for store in stores {
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn commands_go_on() {
    let Some((_server, url, mut tool)) = newest().await else { return };
    let store = open(&url).await.unwrap();
    let document = DocumentId::new("d1").unwrap();
    let on = store.document(&document);
    let owner = OwnerDid::new(OWNER).unwrap();
    let fields = Json::parse("trimmed_fields", "[]").unwrap();
    on.set_entity_trim(&owner, &ConnectorName::new("caldav").unwrap(), fields).await.unwrap();
    store.consume_pending_auth(&Secret::new("secret state")).await.unwrap();
    let all = store.repairs_written_since(None, 10).await.unwrap();
    let last = all.last().unwrap();
    store.document(&DocumentId::new("new").unwrap()).put_repair(&last.repair).await.unwrap();
    let after = Some((last.written_at, &last.document_id));
    assert_eq!(store.repairs_written_since(after, 10).await.unwrap().len(), 1);
    on.sweep_document_rows().await.unwrap();
    assert_sound(&store).await;
    let left = "select count(*) from kubun_connector_observation_records where id = 'd1'";
    assert_eq!(number(&mut tool, left).await, 0);
    store.close().await.unwrap();
}

#[tokio::test]
async fn what_is_not_known_is_refused_and_nothing_has_changed() {
    let cases = [
        ("alter table kubun_connector_entity_trim add column more text", "entity_trim", "more"),
        ("alter table kubun_connector_sync_state drop column recovery", "sync_state", "recovery"),
        (
            "alter table kubun_connector_sync_state alter column entity_count type numeric",
            "sync_state",
            "entity_count",
        ),
        (
            "alter table kubun_connector_sweep_checkpoint
             drop constraint kubun_connector_sweep_checkpoint_pkey",
            "sweep_checkpoint",
            "owner_did",
        ),
        (
            "create table kubun_connector_operation (operation_id text primary key, x text)",
            "operation",
            "x",
        ),
        ("create table kubun_connector_unheard_of (x text)", "unheard_of", ""),
        ("create view seen as select * from kubun_connector_entity_trim", "entity_trim", ""),
        ("alter table kubun_connector_sync_state enable row level security", "sync_state", ""),
        ("create policy own on kubun_connector_sync_state using (false)", "sync_state", ""),
        (
            "create rule kept as on delete to kubun_connector_entity_trim do instead nothing",
            "entity_trim",
            "",
        ),
        ("grant select (state) on kubun_connector_pending_auth to public", "pending_auth", ""),
        ("create publication changes for table kubun_connector_entity_trim", "entity_trim", ""),
        (
            "alter table kubun_connector_entity_trim alter column trimmed_fields drop not null;
             update kubun_connector_entity_trim set trimmed_fields = null where document_id = 'd1'",
            "entity_trim",
            "trimmed_fields",
        ),
        ("update kubun_connector_sync_state set entity_count = -1", "sync_state", "entity_count"),
        ("update kubun_connector_pending_auth set scopes = 'x'", "pending_auth", "scopes"),
        (
            "update kubun_connector_observation_records set op_jwt = 'a.b.c'",
            "observation_records",
            "op_jwt",
        ),
    ];
    for (sql, table, column) in cases {
        let Some((_server, url, mut tool)) = newest().await else { return };
        run(&mut tool, sql).await;
        let before = dump(&mut tool).await;
        let shape = "select count(*) from pg_class where relnamespace = 'public'::regnamespace";
        let shape_before = number(&mut tool, shape).await;
        let refused = open(&url).await.expect_err(sql);
        assert_eq!(refused.class(), ErrorClass::Refused);
        let Error::AdoptionRefused { table: found, column: of, row } = refused else {
            panic!("{sql}: {refused:?}")
        };
        let expected = (format!("kubun_connector_{table}"), column.to_owned());
        assert_eq!((found, of.unwrap_or_default()), expected, "{sql}");
        assert!(row.iter().all(|part| !part.contains("secret")), "{row:?}");
        assert_eq!(number(&mut tool, shape).await, shape_before, "{sql}");
        assert_eq!(dump(&mut tool).await, before, "{sql}");
    }
}
