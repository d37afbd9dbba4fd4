//! The record of a pending authorization, its limits, and its row.

use std::fmt;

use crate::base::limits::{
    DEFAULT_MAX_JSON_BYTES, MAX_AUTH_SCOPES, MAX_AUTH_STATE_BYTES, MAX_AUTH_TEXT_BYTES,
    MAX_NAME_BYTES,
};
use crate::base::{Digest, Error, OwnerDid, Result, Secret, StreamKey, Timestamp};
use crate::domain::{BadColumn, Columns, Row, RowKey, Table, Value};

/// An authorization that the provider was asked for and has not answered yet.
#[derive(Clone, PartialEq, Eq)]
pub struct PendingAuthRecord {
    /// The random text that comes back with the provider's answer, and names the record. Secret.
    pub state: Secret,
    /// The PKCE code verifier; empty for a provider without PKCE. Secret.
    pub code_verifier: Secret,
    /// Who was asked.
    pub provider: String,
    /// For whom.
    pub owner: OwnerDid,
    /// The DID to which the owner's tokens can be wrapped.
    pub owner_wrappable_did: Option<String>,
    /// The DID to which the controller's tokens can be wrapped.
    pub controller_wrappable_did: Option<String>,
    /// When it was asked.
    pub created_at: Timestamp,
    /// Where the provider's answer comes to.
    pub redirect_url: String,
    /// What was asked for.
    pub scopes: Vec<String>,
    /// Only the missing scopes were asked for.
    pub is_incremental: bool,
    /// From then on the caller should not accept an answer. The store removes it only when asked.
    pub expires_at: Timestamp,
}

/// Neither secret is shown, nor the redirect URL, in whose query hosts put what they like.
impl fmt::Debug for PendingAuthRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingAuthRecord")
            .field("provider", &self.provider)
            .field("owner", &self.owner)
            .field("created_at", &self.created_at)
            .field("scopes", &self.scopes.len())
            .field("is_incremental", &self.is_incremental)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

impl PendingAuthRecord {
    /// Checks every field against its limit.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] that names the first field that does not fit, never its content.
    pub fn check(&self) -> Result<()> {
        check_state(&self.state)?;
        check_text("code_verifier", self.code_verifier.expose(), 0, MAX_AUTH_TEXT_BYTES)?;
        check_text("provider", &self.provider, 1, MAX_NAME_BYTES)?;
        check_did("owner_wrappable_did", self.owner_wrappable_did.as_deref())?;
        check_did("controller_wrappable_did", self.controller_wrappable_did.as_deref())?;
        check_text("redirect_url", &self.redirect_url, 1, MAX_AUTH_TEXT_BYTES)?;
        check_time("created_at", self.created_at)?;
        check_time("expires_at", self.expires_at)?;
        if self.scopes.len() > MAX_AUTH_SCOPES {
            return Err(Error::invalid("scopes", format!("expected at most {MAX_AUTH_SCOPES}")));
        }
        for scope in &self.scopes {
            check_text("scopes", scope, 1, MAX_AUTH_TEXT_BYTES)?;
        }
        if self.scopes_json().len() > DEFAULT_MAX_JSON_BYTES {
            let reason = format!("expected at most {DEFAULT_MAX_JSON_BYTES} bytes as JSON");
            return Err(Error::invalid("scopes", reason));
        }
        Ok(())
    }

    fn scopes_json(&self) -> String {
        serde_json::Value::from(self.scopes.as_slice()).to_string()
    }
}

/// The key of the actor that owns the authorization with this `state`.
#[must_use]
pub fn auth_key(state: &Secret) -> StreamKey {
    StreamKey::Auth(Digest::of(state.expose().as_bytes()))
}

/// Refuses a `state` that no record can have.
pub(super) fn check_state(state: &Secret) -> Result<()> {
    check_text("state", state.expose(), 1, MAX_AUTH_STATE_BYTES)
}

fn check_text(field: &'static str, text: &str, min_bytes: usize, max_bytes: usize) -> Result<()> {
    if !(min_bytes..=max_bytes).contains(&text.len()) {
        let reason = format!("expected {min_bytes} to {max_bytes} bytes, got {}", text.len());
        return Err(Error::invalid(field, reason));
    }
    if text.chars().any(char::is_control) {
        return Err(Error::invalid(field, "expected no control character"));
    }
    Ok(())
}

fn check_did(field: &'static str, did: Option<&str>) -> Result<()> {
    match did.map(OwnerDid::new) {
        Some(Err(Error::InvalidInput { reason, .. })) => Err(Error::invalid(field, reason)),
        Some(Err(error)) => Err(error),
        Some(Ok(_)) | None => Ok(()),
    }
}

fn check_time(field: &'static str, at: Timestamp) -> Result<()> {
    if at.as_millis() < 0 {
        return Err(Error::invalid(field, "expected a time from the epoch on"));
    }
    Ok(())
}

/// The key of the row that holds the record with this `state`.
pub(super) fn row_key(state: &Secret) -> RowKey {
    RowKey::new(Table::PendingAuth, vec![Value::text(state.expose())])
}

/// The row of a record.
#[must_use]
pub fn record_to_row(record: &PendingAuthRecord) -> Row {
    let values = vec![
        Value::text(record.state.expose()),
        Value::text(record.code_verifier.expose()),
        Value::text(record.provider.as_str()),
        Value::Text(record.owner.shared()),
        Value::text_or_null(record.owner_wrappable_did.as_deref()),
        Value::text_or_null(record.controller_wrappable_did.as_deref()),
        Value::Int(record.created_at.as_millis()),
        Value::text(record.redirect_url.as_str()),
        Value::text(record.scopes_json()),
        Value::Int(i64::from(record.is_incremental)),
        Value::Int(record.expires_at.as_millis()),
    ];
    Row::new(Table::PendingAuth, values)
}

/// The record of a row.
///
/// # Errors
/// The column, never its content, when the row is not one that [`record_to_row`] gives.
pub fn row_to_record(row: &Row) -> Result<PendingAuthRecord, BadColumn> {
    let columns = Columns(row);
    if row.table != Table::PendingAuth {
        return Err(columns.bad(0));
    }
    let scopes = |text| serde_json::from_str(text).ok();
    Ok(PendingAuthRecord {
        state: Secret::new(columns.text(0)?),
        code_verifier: Secret::new(columns.text(1)?),
        provider: columns.text(2)?.to_owned(),
        owner: columns.name(3, OwnerDid::new)?,
        owner_wrappable_did: columns.optional_text(4)?.map(str::to_owned),
        controller_wrappable_did: columns.optional_text(5)?.map(str::to_owned),
        created_at: columns.time(6)?,
        redirect_url: columns.text(7)?.to_owned(),
        scopes: columns.word(8, scopes)?,
        is_incremental: columns.flag(9)?,
        expires_at: columns.time(10)?,
    })
}
