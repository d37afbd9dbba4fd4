//! Files as another program has written them: its tables by plain SQL, with rows of every kind.

use std::path::{Path, PathBuf};

use connector_store::records::{RecordSigner, SigningKey};
use connector_store::{Digest, DocumentId, Hlc, OwnerDid, SignedRecord};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};

pub const OWNER: &str = "did:web:owner";

/// The tables that every such database has, beside what is not the store's.
const BASE: &str = r#"
create table "kubun_connector_sync_state" ("connector_name" text not null, "owner_did" text not null,
  "checkpoint" text, "last_synced_at" text not null, "entity_count" integer default 0 not null,
  "status" text not null, "error" text, "lease_expires_at" bigint, "recovery" text,
  "version" integer default 0 not null, "incarnation" text,
  constraint "sync_pkey" primary key ("connector_name", "owner_did"));
create table "kubun_connector_pending_auth" ("state" text not null primary key,
  "code_verifier" text not null, "provider" text not null, "owner_did" text not null,
  "owner_wrappable_did" text, "controller_wrappable_did" text, "created_at" bigint not null,
  "redirect_url" text not null, "scopes" text not null, "is_incremental" integer not null,
  "expires_at" bigint not null);
create table "graph" ("id" text primary key, "of" text);
insert into "graph" values ('d1', 'not ours');
"#;

/// What reads the tables.
const VIEW: &str = "create view failing as \
    select owner_did from kubun_connector_sync_state where status = 'error'";

/// The statements of the newest database, without the copies, for a server, whose integers have 32
/// bits.
#[cfg(all(feature = "postgres", unix))]
pub fn on_a_server() -> [String; 4] {
    [BASE, BASE_ROWS, NEWER, NEWER_ROWS].map(|sql| {
        let sql = sql.replace(" blob", " bytea").replace("9223372036854775806", "2147483646");
        sql.replace("9007199254740993, 'syncing'", "2147483647, 'syncing'")
    })
}

/// The tables that a newer one has besides.
const NEWER: &str = r#"
create table "kubun_connector_sweep_receipt" ("owner_did" text not null,
  "connector_name" text not null, "partition" text not null, "provenance" text not null,
  "sequence" bigint not null, "model_id" text not null, "scope" text not null,
  "keep" text not null, "source_fetch_hlc" text not null, "predicate" text, "kind" text not null,
  "complete" integer not null, "created_at" bigint not null, "committed_at" bigint,
  constraint "kubun_connector_sweep_receipt_pkey"
  primary key ("owner_did", "connector_name", "partition", "provenance"));
create table "kubun_connector_sweep_candidate" ("owner_did" text not null,
  "connector_name" text not null, "partition" text not null, "provenance" text not null,
  "document_id" text not null, "source_id" text not null, "model_id" text not null,
  "state" text not null, "attempts" integer not null, "apply_failures" integer default 0 not null,
  "last_error" text, "next_attempt_at" bigint default 0 not null, "updated_at" bigint not null,
  constraint "kubun_connector_sweep_candidate_pkey"
  primary key ("owner_did", "connector_name", "partition", "provenance", "document_id"));
create index "kubun_connector_sweep_candidate_due_idx" on "kubun_connector_sweep_candidate"
  ("owner_did", "connector_name", "state", "next_attempt_at");
create table "kubun_connector_sweep_checkpoint" ("owner_did" text not null,
  "connector_name" text not null, "partition" text not null, "provenance" text not null,
  "receipt_sequence" bigint not null, "updated_at" bigint not null,
  constraint "kubun_connector_sweep_checkpoint_pkey"
  primary key ("owner_did", "connector_name", "partition"));
create table "kubun_connector_observation_records" ("type" text not null, "owner" text not null,
  "id" text not null, "op_hash" text not null, "hlc" text not null, "op_jwt" text not null,
  "payload" blob, constraint "kubun_connector_observation_records_pkey"
  primary key ("type", "owner", "id", "op_hash"));
create table "kubun_connector_observation_repair" ("document_id" text not null primary key,
  "owner" text not null, "fetch_hlc" text not null, "decision_hlc" text not null,
  "present" integer not null, "value_digest" text, "written_at" bigint not null);
create index "idx_connector_observation_repair_written" on "kubun_connector_observation_repair"
  ("written_at", "document_id");
create table "kubun_connector_entity_trim" ("document_id" text not null primary key,
  "owner_did" text not null, "connector_name" text not null, "trimmed_fields" text not null,
  "updated_at" bigint not null);
"#;

/// Values that are odd, and right.
const BASE_ROWS: &str = r#"
insert into kubun_connector_sync_state values
  ('caldav', 'did:web:owner', '{"token": 9007199254740993}', '2026-01-31T08:00:00.000Z',
   9007199254740993, 'syncing', null, 1767225600000, ' [ {"raw":"\u00e9"} ]', 41,
   '6f9619ff-8b86-4d11-b42d-00c04fc964ff'),
  ('caldav', 'did:web:other', null, '1970-01-01T00:00:00Z', 0, 'idle', '', null, null, 0, null),
  ('a "name"', 'did:web:owner', 'null', '2026-01-31T08:00:00+05:30', 1, 'error', 'offline', 5,
   null, 9223372036854775806, null);
insert into kubun_connector_pending_auth values
  ('secret state', 'secret verifier', 'example', 'did:web:owner', 'did:key:zA', null,
   1767225600000, 'https://host.example/back?a=b', ' [ "read", "write" ] ', 1, 1767226200000),
  ('other state', '', 'example', 'did:web:other', null, null, 0, 'app:/back', '[]', 0, 0);
"#;

const NEWER_ROWS: &str = r#"
insert into kubun_connector_sweep_receipt values
  ('did:web:owner', 'caldav', 'work', 'account-1', 7, 'event', 'all', '["/b.ics","/a.ics","/b.ics"]',
   '001767225600000-00000000-node-a', null, 'full', 1, 10, 11),
  ('did:web:owner', 'caldav', 'home', 'account-1', 3, 'event', '', '[ "/\u00e9\"" ]',
   '001767225600000-00000000-node-a', null, 'full', 1, 20, null),
  ('did:web:owner', 'caldav', 'home', 'account-0', 9, 'event', 'all', '[]',
   '001767225600000-00000000-node-a', '{"from": 1}', 'predicate', 1, 19, 20),
  ('did:web:owner', 'caldav', 'open', 'account-1', 1, 'event', 'all', '["/seen.ics"]',
   '001767225600000-00000000-node-a', null, 'full', 0, 30, null);
insert into kubun_connector_sweep_candidate values
  ('did:web:owner', 'caldav', 'work', 'account-1', 'd1', '/c.ics', 'event', 'pending', 2, 0, null,
   40, 41),
  ('did:web:owner', 'caldav', 'work', 'account-1', 'd2', '/d.ics', 'event', 'confirmed', 0, 3,
   'locked', 42, 43),
  ('did:web:owner', 'caldav', 'work', 'account-1', 'd3', '/e.ics', 'event', 'dead', 1, 5, 'gone', 0,
   44),
  ('did:web:owner', 'caldav', 'lone', 'account-9', 'd4', '/f.ics', 'event', 'pending', 0, 0, null, 0,
   0);
insert into kubun_connector_sweep_checkpoint values
  ('did:web:owner', 'caldav', 'work', 'account-1', 6, 50),
  ('did:web:owner', 'caldav', 'bare', 'account-5', 12, 51);
insert into kubun_connector_observation_repair values
  ('d1', 'did:web:owner', '001767225600000-00000000-node-a', '001767225600000-00000001-node-a', 1,
   'sha256:ab', 9999999999999),
  ('r2', 'did:web:owner', '001767225600000-00000000-node-a', '001767225600000-00000001-node-a', 0,
   null, 7);
insert into kubun_connector_entity_trim values
  ('d1', 'did:web:owner', 'caldav', '["body", 9007199254740993]', 1767225600000),
  ('té "2"', 'did:web:other', 'files', '{}', 0);
"#;

/// Every table of the newest such database.
pub const TABLES: [&str; 8] = [
    "kubun_connector_entity_trim",
    "kubun_connector_observation_records",
    "kubun_connector_observation_repair",
    "kubun_connector_pending_auth",
    "kubun_connector_sweep_candidate",
    "kubun_connector_sweep_checkpoint",
    "kubun_connector_sweep_receipt",
    "kubun_connector_sync_state",
];

/// Somebody with a key of their own.
pub fn person(seed: u8) -> RecordSigner {
    RecordSigner::did_key(SigningKey::ed25519_from_seed([seed; 32]))
}

pub fn owner_of(person: &RecordSigner) -> OwnerDid {
    OwnerDid::new(person.issuer()).unwrap()
}

pub fn stamp(ms: i64) -> Hlc {
    Hlc::parse(&format!("{ms:015}-00000000-node")).unwrap()
}

/// What `signer` says of `owner`'s record.
pub fn said(
    signer: &RecordSigner,
    owner: &OwnerDid,
    on: &str,
    value: Option<&[u8]>,
) -> SignedRecord {
    let at = stamp(1_767_225_600_000);
    signer.sign(owner, &DocumentId::new(on).unwrap(), &at, &at, value).unwrap()
}

/// The copies in the newest database: a record that two have signed, one whose value is absent, and
/// one that nobody has signed so.
pub fn copies() -> Vec<SignedRecord> {
    let (ada, bob) = (person(1), person(2));
    let owner = owner_of(&ada);
    let mut forged = said(&bob, &owner_of(&bob), "d1", Some(b"forged"));
    let (text, signature) = forged.op_jwt.rsplit_once('.').unwrap();
    let first = if signature.starts_with('A') { "B" } else { "A" };
    let token = format!("{text}.{first}{}", &signature[1..]);
    forged.op_hash = Digest::of(token.as_bytes());
    forged.op_jwt = token.into();
    vec![
        said(&ada, &owner, "d1", Some(b"value \0 \xff")),
        said(&bob, &owner, "d1", Some(b"value \0 \xff")),
        said(&ada, &owner, "gone", None),
        forged,
    ]
}

pub async fn put_copy(tool: &mut SqliteConnection, copy: &SignedRecord) {
    let sql = "insert into kubun_connector_observation_records values (?, ?, ?, ?, ?, ?, ?)";
    sqlx::query(sql)
        .bind(&*copy.key.record_type)
        .bind(copy.key.owner.as_str())
        .bind(copy.key.id.as_str())
        .bind(copy.op_hash.to_hex())
        .bind(copy.hlc.as_str())
        .bind(&*copy.op_jwt)
        .bind(copy.payload.as_deref())
        .execute(tool)
        .await
        .unwrap();
}

/// A connection of another program.
pub async fn tool(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    options.connect().await.unwrap()
}

/// Changes the file as another program would.
pub async fn change(path: &Path, sql: &str) {
    let mut tool = tool(path).await;
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut tool).await.unwrap();
    tool.close().await.unwrap();
}

/// A file with the tables that every such database has, and their rows.
pub async fn base(path: &Path) {
    change(path, BASE).await;
    change(path, BASE_ROWS).await;
    change(path, VIEW).await;
}

/// A file with all tables and rows.
pub async fn newest(path: &Path) {
    base(path).await;
    change(path, NEWER).await;
    change(path, NEWER_ROWS).await;
    let mut tool = tool(path).await;
    for copy in copies() {
        put_copy(&mut tool, &copy).await;
    }
    tool.close().await.unwrap();
}

pub fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    (directory, path)
}

/// All rows of the tables that there are, each as one text.
pub async fn dump(path: &Path) -> Vec<String> {
    let mut tool = tool(path).await;
    let mut rows = Vec::new();
    for table in TABLES {
        let sql = format!("select name from pragma_table_info('{table}') order by name");
        let columns = sqlx::query(AssertSqlSafe(sql)).fetch_all(&mut tool).await.unwrap();
        let shown: Vec<String> = columns
            .iter()
            .map(|row| row.get::<String, _>(0))
            .map(|name| format!("'{name}=' || quote(\"{name}\")"))
            .collect();
        if shown.is_empty() {
            continue;
        }
        let sql = format!("select {} from {table} order by 1", shown.join(" || ' ' || "));
        let found = sqlx::query(AssertSqlSafe(sql)).fetch_all(&mut tool).await.unwrap();
        rows.extend(found.iter().map(|row| format!("{table} {}", row.get::<String, _>(0))));
    }
    tool.close().await.unwrap();
    rows
}

pub async fn number(path: &Path, sql: &str) -> i64 {
    let mut tool = tool(path).await;
    let found = sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut tool).await;
    tool.close().await.unwrap();
    found.unwrap()
}
