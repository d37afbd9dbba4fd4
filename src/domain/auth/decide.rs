//! The rules of a pending authorization: created once, consumed once, expired by pages.

use super::command::{PendingAuthCommand, PendingAuthReply};
use super::event::{self, PendingAuthConsumed, PendingAuthCreated, PendingAuthEvent};
use super::record::{
    PendingAuthRecord, auth_key, check_state, record_to_row, row_key, row_to_record,
};
use super::state::PendingAuth;
use crate::base::{Error, Result, Secret, StreamKey, StreamKind, Timestamp};
use crate::domain::{Aggregate, ContentRef, Context, Decision, Row, RowChange, RowKey};

impl Aggregate for PendingAuth {
    const KIND: StreamKind = event::KIND;
    const SNAPSHOT_SCHEMA: u16 = 1;
    type Command = PendingAuthCommand;
    type Event = PendingAuthEvent;
    type Reply = PendingAuthReply;

    fn command_name(command: &PendingAuthCommand) -> &'static str {
        match command {
            PendingAuthCommand::CreatePendingAuth(_) => "create_pending_auth",
            PendingAuthCommand::ConsumePendingAuth { .. } => "consume_pending_auth",
            PendingAuthCommand::ExpirePendingAuth { .. } => "expire_pending_auth",
            PendingAuthCommand::ForgetPendingAuth { .. } => "forget_pending_auth",
        }
    }

    fn is_read(_command: &PendingAuthCommand) -> bool {
        false
    }

    fn is_timeless(_command: &PendingAuthCommand) -> bool {
        false
    }

    fn decide(
        &self,
        key: &StreamKey,
        command: &PendingAuthCommand,
        context: &Context,
    ) -> Result<Decision<Self>> {
        match command {
            PendingAuthCommand::CreatePendingAuth(record) => {
                check_key(key, &record.state)?;
                record.check()?;
                self.create(record)
            }
            PendingAuthCommand::ConsumePendingAuth { state } => {
                check_key(key, state)?;
                self.consume(state, context.now)
            }
            PendingAuthCommand::ExpirePendingAuth { cutoff, state } => {
                check_key(key, state)?;
                Ok(self.expire(state, *cutoff))
            }
            PendingAuthCommand::ForgetPendingAuth { state } => {
                check_key(key, state)?;
                Ok(self.forget(state))
            }
        }
    }

    fn apply(&mut self, event: &PendingAuthEvent) {
        self.apply_event(event);
    }

    /// No event can name the row, whose key is a secret.
    fn touched(_key: &StreamKey, _event: &PendingAuthEvent, _rows: &mut Vec<RowKey>) {}

    fn row(&self, _key: &StreamKey, _row: &RowKey) -> Option<Row> {
        None
    }

    fn rows(&self, _key: &StreamKey) -> Vec<RowKey> {
        Vec::new()
    }

    fn content(&self, _key: &StreamKey, _row: &RowKey) -> Vec<(usize, ContentRef)> {
        Vec::new()
    }

    fn with_taken(reply: PendingAuthReply, taken: Vec<Row>) -> PendingAuthReply {
        let PendingAuthReply::Taking { row: expected } = reply else {
            return reply;
        };
        let taken = taken.iter().find(|&row| ContentRef::of_row(row) == expected);
        match taken.map(row_to_record) {
            Some(Ok(record)) => PendingAuthReply::Consumed(Box::new(record)),
            Some(Err(_)) | None => reply,
        }
    }

    /// A repeated consume is decided again, and so is `AlreadyConsumed`: its answer is a secret.
    fn recorded(reply: &PendingAuthReply) -> Option<PendingAuthReply> {
        match reply {
            PendingAuthReply::Created | PendingAuthReply::Expired { .. } => Some(reply.clone()),
            PendingAuthReply::Taking { .. } | PendingAuthReply::Consumed(_) => None,
        }
    }
}

impl PendingAuth {
    fn create(&self, record: &PendingAuthRecord) -> Result<Decision<Self>> {
        if matches!(self, Self::Pending(_) | Self::Consumed { .. }) {
            return Err(Error::AlreadyExists { what: "a pending authorization with this state" });
        }
        let row = record_to_row(record);
        let created = PendingAuthCreated {
            provider: record.provider.clone(),
            owner: record.owner.clone(),
            created_at: record.created_at,
            expires_at: record.expires_at,
            row: ContentRef::of_row(&row),
        };
        Ok(with_row(
            PendingAuthReply::Created,
            PendingAuthEvent::PendingAuthCreated(created),
            RowChange::Put(row),
        ))
    }

    /// Expiry is the caller's to judge, who has the record then.
    fn consume(&self, state: &Secret, now: Timestamp) -> Result<Decision<Self>> {
        match self {
            Self::Absent | Self::Expired => Err(Error::NotFound { what: "pending authorization" }),
            Self::Consumed { .. } => Err(Error::AlreadyConsumed),
            Self::Pending(pending) => Ok(with_row(
                PendingAuthReply::Taking { row: pending.row },
                PendingAuthEvent::PendingAuthConsumed(PendingAuthConsumed { at: now }),
                RowChange::Take(row_key(state)),
            )),
        }
    }

    fn expire(&self, state: &Secret, cutoff: Timestamp) -> Decision<Self> {
        match self {
            Self::Pending(pending) if pending.expires_at < cutoff => with_row(
                PendingAuthReply::Expired { removed: true },
                PendingAuthEvent::PendingAuthExpired,
                RowChange::Delete(row_key(state)),
            ),
            _ => Decision::unchanged(PendingAuthReply::Expired { removed: false }),
        }
    }
}

impl PendingAuth {
    fn forget(&self, state: &Secret) -> Decision<Self> {
        let Self::Pending(_) = self else {
            return Decision::unchanged(PendingAuthReply::Expired { removed: false });
        };
        let mut decision = with_row(
            PendingAuthReply::Expired { removed: true },
            PendingAuthEvent::PendingAuthExpired,
            RowChange::Delete(row_key(state)),
        );
        decision.trim = true;
        decision
    }
}

fn with_row(
    reply: PendingAuthReply,
    event: PendingAuthEvent,
    row: RowChange,
) -> Decision<PendingAuth> {
    let mut decision = Decision::events(reply, vec![event]);
    decision.rows.push(row);
    decision
}

/// A state of another stream would change another stream's row.
fn check_key(key: &StreamKey, state: &Secret) -> Result<()> {
    check_state(state)?;
    if *key == auth_key(state) {
        Ok(())
    } else {
        Err(Error::invalid("key", "expected the authorization of this state"))
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
