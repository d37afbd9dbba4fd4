//! Pending authorizations: created, consumed once, deleted when expired.

use super::{Store, unexpected};
use crate::base::limits::MAX_PAGE_ROWS;
use crate::base::{Result, Secret, StreamKey, Timestamp};
use crate::domain::auth::{
    PendingAuth, PendingAuthCommand, PendingAuthRecord, PendingAuthReply, auth_key, row_to_record,
};
use crate::domain::{Table, Value};
use crate::journal::{Compare, Filter, RowQuery};
use crate::runtime::{CallOptions, Intent};

/// The column of the row that holds `expires_at`.
const EXPIRES_AT_COLUMN: usize = 10;

impl Store {
    async fn auth(&self, key: &StreamKey, command: PendingAuthCommand) -> Result<PendingAuthReply> {
        let intent = Intent::Plain(command);
        self.directories().call::<PendingAuth>(key, intent, CallOptions::default()).await
    }

    /// Keeps a pending authorization until it is consumed or deleted.
    ///
    /// # Errors
    /// [`crate::Error::AlreadyExists`] for a state that is pending or was consumed (as long as
    /// retention keeps its stream); [`crate::Error::InvalidInput`]; retryable errors.
    pub async fn create_pending_auth(&self, record: PendingAuthRecord) -> Result<()> {
        record.check()?;
        let key = auth_key(&record.state);
        let command = PendingAuthCommand::CreatePendingAuth(Box::new(record));
        match self.auth(&key, command).await? {
            PendingAuthReply::Created => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Removes and returns the authorization with this state, exactly once, whatever races. One
    /// that has expired and is still there is returned: the caller judges its `expires_at`.
    ///
    /// Consume before the token exchange: if the exchange fails, the authorization must be started
    /// anew.
    ///
    /// # Errors
    /// [`crate::Error::AlreadyConsumed`] for a repeat, as long as retention keeps the stream, then
    /// [`crate::Error::NotFound`]; retryable errors.
    pub async fn consume_pending_auth(&self, state: &Secret) -> Result<PendingAuthRecord> {
        let command = PendingAuthCommand::ConsumePendingAuth { state: state.clone() };
        self.auth(&auth_key(state), command).await?.into_consumed()
    }

    /// Deletes the authorizations with `expires_at < cutoff`; one that expires at the cutoff is
    /// kept. Gives how many were deleted.
    ///
    /// # Errors
    /// Retryable errors; what was deleted before stays deleted.
    pub async fn delete_expired_pending_auths(&self, cutoff: Timestamp) -> Result<u64> {
        let mut deleted = 0;
        let mut after = None;
        loop {
            let query = RowQuery {
                table: Table::PendingAuth,
                filters: vec![Filter {
                    column: EXPIRES_AT_COLUMN,
                    compare: Compare::Less(Value::Int(cutoff.as_millis())),
                }],
                order: vec![EXPIRES_AT_COLUMN, 0],
                after,
                limit: MAX_PAGE_ROWS / 10,
            };
            let rows = self.rows(&query).await?;
            let Some(last) = rows.last() else { return Ok(deleted) };
            after = Some(vec![last.values[EXPIRES_AT_COLUMN].clone(), last.values[0].clone()]);
            for row in &rows {
                let state = row_to_record(row)?.state.clone();
                let key = auth_key(&state);
                let command = PendingAuthCommand::ExpirePendingAuth { cutoff, state };
                if let PendingAuthReply::Expired { removed: true } =
                    self.auth(&key, command).await?
                {
                    deleted += 1;
                }
            }
        }
    }
}
