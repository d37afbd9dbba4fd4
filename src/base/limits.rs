//! Every limit of the store's input, with its unit in its name and its reason beside it.
//!
//! It knows numbers only; the types that enforce them are elsewhere.

/// Longest owner DID. Chosen with the other identifier limits so that every key fits an index row
/// of PostgreSQL (2,704 bytes).
pub const MAX_OWNER_BYTES: usize = 255;
/// Longest connector name.
pub const MAX_CONNECTOR_BYTES: usize = 128;
/// Longest partition, provenance, document, model and holder name.
pub const MAX_NAME_BYTES: usize = 512;
/// Longest version of a source entity, such as an ETag: opaque as a source id, and as long.
pub const MAX_SOURCE_VERSION_BYTES: usize = 1_024;
/// Longest source id.
pub const MAX_SOURCE_ID_BYTES: usize = 1_024;
/// Largest JSON value by default; the builder can set another.
pub const DEFAULT_MAX_JSON_BYTES: usize = 1 << 20;
/// Longest error text that a host may record: long enough for a provider's message, short enough
/// that a repeated failure does not fill the journal.
pub const MAX_ERROR_TEXT_BYTES: usize = 4_096;
/// Longest RFC 3339 text: nanoseconds and an offset have 35 bytes, and a fraction has no end of its own.
pub const MAX_RFC3339_BYTES: usize = 64;
/// Longest authorization `state`: it is a key, and must fit an index row of PostgreSQL.
pub const MAX_AUTH_STATE_BYTES: usize = 2_048;
/// Longest code verifier, scope and redirect URL of an authorization.
pub const MAX_AUTH_TEXT_BYTES: usize = 8_192;
/// Most scopes of one authorization.
pub const MAX_AUTH_SCOPES: usize = 1_000;
/// Most source ids of one receipt.
pub const MAX_RECEIPT_IDS: u64 = 1_000_000;
/// Most bytes of source ids of one receipt.
pub const MAX_RECEIPT_BYTES: u64 = 64 << 20;
/// Most pages of one receipt: the state holds a digest of each.
pub const MAX_RECEIPT_PAGES: u32 = 100_000;
/// Longest scope and fingerprint of a receipt: a filter in the host's words fits, a listing does not.
pub const MAX_RECEIPT_TEXT_BYTES: usize = 8_192;
/// Most candidates in one event: keeps an event far below the codec's size limit.
pub const MAX_CANDIDATES_PER_EVENT: usize = 1_000;
/// Most rows that one command of a forgetting removes, for the same reason.
pub const MAX_FORGET_PAGE_ROWS: u32 = 1_000;
/// Shortest lease: below it a lease is lost before its holder can use it.
pub const MIN_LEASE_MS: i64 = 1;
/// Longest lease: a forgotten one must end within a day.
pub const MAX_LEASE_MS: i64 = 24 * 3_600_000;
/// A candidate whose apply failed this often is dead: listed, never due.
pub const MAX_SWEEP_APPLY_ATTEMPTS: u32 = 5;
/// First backoff of a sweep candidate.
pub const SWEEP_BACKOFF_BASE_MS: i64 = 1_000;
/// Longest backoff of a sweep candidate.
pub const SWEEP_BACKOFF_CAP_MS: i64 = 3_600_000;
/// Share of the known documents that one commit may make candidates, by default.
pub const DEFAULT_MASS_DELETE_RATIO: f64 = 0.5;
/// Below this number of candidates the share is not asked, by default.
pub const DEFAULT_MASS_DELETE_MIN_COUNT: u64 = 20;
/// Tries after the first of a conditional progress update.
pub const DEFAULT_PROGRESS_RETRIES: u32 = 5;
/// Largest recorded answer of a command with a caller's id.
pub const MAX_ANSWER_BYTES: usize = 4_096;
/// Largest page of a list call.
pub const MAX_PAGE_ROWS: u32 = 10_000;
/// Longest operation id.
pub const MAX_OPERATION_ID_BYTES: usize = 255;
/// Longest deferral, visibility delay and watch deadline: a year.
pub const MAX_DELAY_MS: i64 = 366 * 24 * 3_600_000;
/// Longest digest in a host's own form: one of 128 bytes in hex, with a prefix that names it, fits.
pub const MAX_VALUE_DIGEST_BYTES: usize = 300;
/// Largest token of a signed record by default; the builder can set another.
pub const DEFAULT_MAX_TOKEN_BYTES: usize = 64 << 10;
/// Largest payload of a signed record by default; the builder can set another.
pub const DEFAULT_MAX_PAYLOAD_BYTES: usize = 1 << 20;
/// Most equal copies of one record, each of another signer: nobody can fill a document with them.
pub const MAX_RECORD_COPIES: usize = 64;
