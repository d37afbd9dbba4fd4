-- The journal: events, heads and snapshots. Streams have small integer ids, because the leaves of
-- the unique index on (stream, stream_version) are what a busy writer dirties most. The base is the
-- newest event that was cut off; both of its columns are NULL while none was.
CREATE TABLE connector_stream (
  stream INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  kind INTEGER NOT NULL,
  version INTEGER NOT NULL,
  last_command_id BLOB NOT NULL,
  hash BLOB NOT NULL,
  base_version INTEGER,
  base_hash BLOB
) STRICT;

-- AUTOINCREMENT: a position is never given twice, also after the newest event is erased.
CREATE TABLE connector_journal (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  stream INTEGER NOT NULL,
  stream_version INTEGER NOT NULL,
  event_type INTEGER NOT NULL,
  event_schema INTEGER NOT NULL,
  payload BLOB NOT NULL,
  command_id BLOB NOT NULL,
  recorded_at INTEGER NOT NULL,
  hash BLOB NOT NULL,
  UNIQUE (stream, stream_version)
) STRICT;

CREATE TABLE connector_snapshot (
  stream INTEGER PRIMARY KEY,
  stream_version INTEGER NOT NULL,
  schema INTEGER NOT NULL,
  payload BLOB NOT NULL,
  hash BLOB NOT NULL,
  checksum BLOB NOT NULL
) STRICT;

CREATE TABLE connector_command (
  command_id BLOB NOT NULL PRIMARY KEY,
  digest BLOB NOT NULL,
  answer BLOB NOT NULL,
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX connector_command_at_idx ON connector_command (at);

-- The read tables. A row that is as small as its key lives in the key's own tree.
CREATE TABLE connector_lease (
  scope TEXT NOT NULL PRIMARY KEY,
  holder TEXT NOT NULL,
  token TEXT NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- The leases of operations wait as operations.
CREATE INDEX connector_lease_due_idx
  ON connector_lease (expires_at, scope) WHERE substr(scope, 1, 5) = 'sync:';

CREATE TABLE connector_owed_sweep (
  owner_did TEXT NOT NULL,
  connector_name TEXT NOT NULL,
  partition TEXT NOT NULL,
  owed_since INTEGER NOT NULL,
  PRIMARY KEY (owner_did, connector_name, partition)
) STRICT, WITHOUT ROWID;
CREATE INDEX connector_owed_sweep_due_idx ON connector_owed_sweep (owed_since);

CREATE TABLE connector_document_sweep (
  document_id TEXT NOT NULL PRIMARY KEY,
  begun_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX connector_document_sweep_due_idx ON connector_document_sweep (begun_at);

CREATE TABLE connector_receipt_page (
  owner_did TEXT NOT NULL,
  connector_name TEXT NOT NULL,
  partition TEXT NOT NULL,
  provenance TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  page INTEGER NOT NULL,
  source_ids TEXT NOT NULL,
  PRIMARY KEY (owner_did, connector_name, partition, provenance, sequence, page)
) STRICT;

CREATE TABLE kubun_connector_sync_state (
  connector_name TEXT NOT NULL,
  owner_did TEXT NOT NULL,
  checkpoint TEXT,
  last_synced_at TEXT NOT NULL,
  entity_count INTEGER NOT NULL DEFAULT 0,
  status TEXT NOT NULL,
  error TEXT,
  lease_expires_at INTEGER,
  recovery TEXT,
  version INTEGER NOT NULL DEFAULT 0,
  incarnation TEXT,
  PRIMARY KEY (connector_name, owner_did)
);

CREATE TABLE kubun_connector_pending_auth (
  state TEXT NOT NULL PRIMARY KEY,
  code_verifier TEXT NOT NULL,
  provider TEXT NOT NULL,
  owner_did TEXT NOT NULL,
  owner_wrappable_did TEXT,
  controller_wrappable_did TEXT,
  created_at INTEGER NOT NULL,
  redirect_url TEXT NOT NULL,
  scopes TEXT NOT NULL,
  is_incremental INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
);
CREATE INDEX connector_pending_auth_expires_idx ON kubun_connector_pending_auth (expires_at, state);
CREATE INDEX connector_pending_auth_owner_idx
  ON kubun_connector_pending_auth (owner_did, provider, state);

CREATE TABLE kubun_connector_sweep_receipt (
  owner_did TEXT NOT NULL,
  connector_name TEXT NOT NULL,
  partition TEXT NOT NULL,
  provenance TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  model_id TEXT NOT NULL,
  scope TEXT NOT NULL,
  keep TEXT NOT NULL,
  source_fetch_hlc TEXT NOT NULL,
  predicate TEXT,
  kind TEXT NOT NULL,
  complete INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  committed_at INTEGER,
  PRIMARY KEY (owner_did, connector_name, partition, provenance)
);
CREATE INDEX connector_sweep_receipt_open_idx
  ON kubun_connector_sweep_receipt (created_at) WHERE committed_at IS NULL;

CREATE TABLE kubun_connector_sweep_candidate (
  owner_did TEXT NOT NULL,
  connector_name TEXT NOT NULL,
  partition TEXT NOT NULL,
  provenance TEXT NOT NULL,
  document_id TEXT NOT NULL,
  source_id TEXT NOT NULL,
  model_id TEXT NOT NULL,
  state TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  apply_failures INTEGER NOT NULL DEFAULT 0,
  last_error TEXT,
  next_attempt_at INTEGER NOT NULL DEFAULT 0,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (owner_did, connector_name, partition, provenance, document_id)
);
CREATE INDEX kubun_connector_sweep_candidate_due_idx
  ON kubun_connector_sweep_candidate (owner_did, connector_name, state, next_attempt_at);
CREATE INDEX connector_sweep_candidate_document_idx
  ON kubun_connector_sweep_candidate (document_id);
-- Over all connectors, in the order in which candidates are due: those of one commit have one time.
CREATE INDEX connector_sweep_candidate_due_idx
  ON kubun_connector_sweep_candidate
  (next_attempt_at, owner_did, connector_name, partition, provenance, document_id)
  WHERE state IN ('pending', 'confirmed');
CREATE INDEX connector_sweep_candidate_dead_idx
  ON kubun_connector_sweep_candidate (updated_at) WHERE state IN ('dead');

CREATE TABLE kubun_connector_sweep_checkpoint (
  owner_did TEXT NOT NULL,
  connector_name TEXT NOT NULL,
  partition TEXT NOT NULL,
  provenance TEXT NOT NULL,
  receipt_sequence INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (owner_did, connector_name, partition)
) WITHOUT ROWID;

-- No index on owner and connector: each write of a trim would rewrite its entry too, and only the
-- forgetting of a connection asks for them. It reads the table once, in the order of its key.
CREATE TABLE kubun_connector_entity_trim (
  document_id TEXT NOT NULL PRIMARY KEY,
  owner_did TEXT NOT NULL,
  connector_name TEXT NOT NULL,
  trimmed_fields TEXT NOT NULL,
  updated_at INTEGER NOT NULL
) WITHOUT ROWID;

-- With a row id, since a token and a payload of a MiB would crowd the keys out of the key's own tree:
-- what asks for names alone reads the key's index.
CREATE TABLE kubun_connector_observation_records (
  type TEXT NOT NULL,
  owner TEXT NOT NULL,
  id TEXT NOT NULL,
  op_hash TEXT NOT NULL,
  hlc TEXT NOT NULL,
  op_jwt TEXT NOT NULL,
  payload BLOB,
  PRIMARY KEY (type, owner, id, op_hash)
);
-- The copies of a document, whoever owns them, in the order of their key: sorting them would carry
-- their payloads along.
CREATE INDEX connector_observation_records_document_idx
  ON kubun_connector_observation_records (id, type, owner, op_hash);

CREATE TABLE kubun_connector_observation_repair (
  document_id TEXT NOT NULL PRIMARY KEY,
  owner TEXT NOT NULL,
  fetch_hlc TEXT NOT NULL,
  decision_hlc TEXT NOT NULL,
  present INTEGER NOT NULL,
  value_digest TEXT,
  written_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX idx_connector_observation_repair_written
  ON kubun_connector_observation_repair (written_at, document_id);

CREATE TABLE kubun_connector_operation (
  operation_id TEXT NOT NULL PRIMARY KEY,
  document_id TEXT NOT NULL,
  owner_did TEXT NOT NULL,
  connector_name TEXT NOT NULL,
  op TEXT NOT NULL,
  version TEXT NOT NULL,
  request_digest TEXT NOT NULL,
  state TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  send_started_at INTEGER,
  send_until INTEGER,
  visibility_delay INTEGER NOT NULL,
  reconcile_read_at INTEGER,
  defer_reason TEXT,
  not_before INTEGER,
  lease_holder TEXT,
  lease_token TEXT,
  lease_expires_at INTEGER,
  source_id TEXT,
  source_version TEXT,
  error TEXT,
  sequence INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  due_at INTEGER
) WITHOUT ROWID;
CREATE INDEX connector_operation_document_idx ON kubun_connector_operation (document_id);
CREATE INDEX connector_operation_state_idx
  ON kubun_connector_operation (owner_did, connector_name, state);
CREATE INDEX connector_operation_due_idx
  ON kubun_connector_operation (due_at) WHERE due_at IS NOT NULL;

CREATE INDEX connector_operation_unknown_idx
  ON kubun_connector_operation (send_started_at) WHERE state IN ('reconcile_only');
CREATE INDEX connector_operation_dead_idx
  ON kubun_connector_operation (updated_at) WHERE state IN ('dead');

CREATE TABLE connector_operation_id (
  operation_id TEXT NOT NULL PRIMARY KEY,
  document_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE kubun_connector_projection_watch (
  document_id TEXT NOT NULL PRIMARY KEY,
  owner_did TEXT NOT NULL,
  connector_name TEXT NOT NULL,
  source_id TEXT NOT NULL,
  reason TEXT NOT NULL,
  expected_digest TEXT,
  written_hlc TEXT NOT NULL,
  armed_at INTEGER NOT NULL,
  deadline INTEGER NOT NULL,
  status TEXT NOT NULL,
  mismatches INTEGER NOT NULL,
  last_fetch_hlc TEXT
) WITHOUT ROWID;
CREATE INDEX connector_watch_source_idx
  ON kubun_connector_projection_watch (owner_did, connector_name, source_id);
CREATE INDEX connector_watch_deadline_idx
  ON kubun_connector_projection_watch (deadline, document_id);

CREATE TABLE connector_forgetting (
  owner_did TEXT NOT NULL,
  connector_name TEXT NOT NULL,
  begun_at INTEGER NOT NULL,
  PRIMARY KEY (owner_did, connector_name)
) STRICT, WITHOUT ROWID;
CREATE INDEX connector_forgetting_due_idx ON connector_forgetting (begun_at);
