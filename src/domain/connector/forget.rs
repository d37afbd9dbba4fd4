//! The rules of forgetting a connection: the account is disconnected.
//!
//! It begins with a mark that ends every session and refuses every other command; then everything
//! goes by pages, so that no event is large and a crash in between is gone on from; the last event
//! erases the stream. A later reconnection starts anew, at the versions that follow.

use super::command::{ConnectorCommand, ConnectorReply, ReceiptKey};
use super::event::{
    CandidatesWithdrawn, ConnectionForgetBegun, ConnectionForgotten, ConnectorEvent,
    PartitionForgotten, ReceiptForgotten,
};
use super::rows::Naming;
use super::state::{Connector, Forgetting, Partition};
use crate::base::limits::MAX_FORGET_PAGE_ROWS;
use crate::base::{Error, PartitionId, Result};
use crate::domain::{Context, Decision};

impl Connector {
    /// Refuses what is not part of the forgetting that has begun. A document's sweep goes on: it
    /// only removes. Who speaks of a lease learns that it is lost.
    pub(super) fn refuse_while_forgotten(
        &self,
        naming: &Naming<'_>,
        command: &ConnectorCommand,
    ) -> Result<()> {
        if self.forgetting.is_none() {
            return Ok(());
        }
        match command {
            ConnectorCommand::BeginForget
            | ConnectorCommand::Forgetting
            | ConnectorCommand::AbandonForget { .. }
            | ConnectorCommand::ForgetPage { .. }
            | ConnectorCommand::FinishForget { .. }
            | ConnectorCommand::VoidLease
            | ConnectorCommand::DropDocumentCandidates { .. } => Ok(()),
            ConnectorCommand::RenewLease { .. } | ConnectorCommand::ReleaseLease { .. } => {
                Err(naming.lease().lost())
            }
            _ => Err(Error::ConnectionForgotten {
                owner: naming.owner.clone(),
                connector: naming.connector.clone(),
            }),
        }
    }

    /// Sets the mark. One that stands is gone on with.
    pub(super) fn begin_forget(&self, context: &Context) -> Decision<Self> {
        if self.forgetting.is_some() {
            return Decision::unchanged(ConnectorReply::Forgetting(self.forgetting));
        }
        let forgetting = Forgetting { mark: context.next_version, begun_at: context.now };
        let event = ConnectionForgetBegun { forgetting };
        let reply = ConnectorReply::Forgetting(Some(forgetting));
        Decision::events(reply, vec![ConnectorEvent::ConnectionForgetBegun(event)])
    }

    /// Takes the mark back. Only what has removed nothing yet is abandoned: whoever calls has found
    /// an unfinished operation, and behind the mark none can begin.
    pub(super) fn abandon_forget(&self, mark: i64) -> Decision<Self> {
        if !self.is_forgetting(mark) {
            return self.forget_over(mark);
        }
        Decision::events(ConnectorReply::Done, vec![ConnectorEvent::ConnectionForgetAbandoned])
    }

    /// Removes up to `limit` rows: candidates, pages, receipts, what else the partitions have, the
    /// sync state.
    pub(super) fn forget_page(&self, mark: i64, limit: u32) -> Result<Decision<Self>> {
        if !self.is_forgetting(mark) {
            return Ok(self.forget_over(mark));
        }
        if !(MIN_FORGET_PAGE_ROWS..=MAX_FORGET_PAGE_ROWS).contains(&limit) {
            let reason =
                format!("expected {MIN_FORGET_PAGE_ROWS} to {MAX_FORGET_PAGE_ROWS}, got {limit}");
            return Err(Error::invalid("limit", reason));
        }
        let mut page = Page { left: limit, events: Vec::new() };
        let is_done = self.partitions.iter().all(|(name, known)| page.take(name, known))
            && (self.sync.is_none() || page.take_rows(1));
        if is_done && self.sync.is_some() {
            page.events.push(ConnectorEvent::SyncStateDeleted);
        }
        Ok(Decision::events(ConnectorReply::PageForgotten { is_done }, page.events))
    }

    /// Erases the stream, once nothing is left.
    pub(super) fn finish_forget(&self, mark: i64) -> Result<Decision<Self>> {
        if !self.is_forgetting(mark) {
            return Ok(self.forget_over(mark));
        }
        if self.sync.is_some() || !self.partitions.is_empty() {
            return Err(Error::invalid("mark", "expected a connection of which nothing is left"));
        }
        let event = ConnectorEvent::ConnectionForgotten(ConnectionForgotten { mark });
        let mut decision = Decision::events(ConnectorReply::Done, vec![event]);
        decision.erase = true;
        Ok(decision)
    }

    fn is_forgetting(&self, mark: i64) -> bool {
        self.forgetting.is_some_and(|forgetting| forgetting.mark == mark)
    }

    /// Somebody else has gone on with this forgetting and ended it. Marks grow, so one that went
    /// through later took everything of this one with it.
    fn forget_over(&self, mark: i64) -> Decision<Self> {
        let is_forgotten = self.forgotten >= mark;
        Decision::unchanged(ConnectorReply::ForgetOver { is_forgotten })
    }
}

/// The rows that a partition may have besides candidates and receipts: its checkpoint and its owed
/// sweep.
const MIN_FORGET_PAGE_ROWS: u32 = 2;

/// A page of what goes.
struct Page {
    left: u32,
    events: Vec<ConnectorEvent>,
}

impl Page {
    /// Room for so many rows, if there is.
    const fn take_rows(&mut self, rows: u32) -> bool {
        let fits = self.left >= rows;
        if fits {
            self.left -= rows;
        }
        fits
    }

    /// Takes what there is room for; false when something is left.
    fn take(&mut self, name: &PartitionId, known: &Partition) -> bool {
        if !self.take_candidates(name, known) {
            return false;
        }
        for (provenance, receipt) in &known.receipts {
            let pages = receipt.next_page();
            let is_whole = self.left > pages;
            let taken = pages.min(self.left);
            if !is_whole && taken == 0 {
                return false;
            }
            self.left -= taken + u32::from(is_whole);
            let key = ReceiptKey {
                partition: name.clone(),
                provenance: provenance.clone(),
                sequence: receipt.facts.sequence,
            };
            self.events.push(ConnectorEvent::ReceiptForgotten(ReceiptForgotten {
                key,
                pages_kept: pages - taken,
                pages_gone: taken,
                is_whole,
            }));
            if !is_whole {
                return false;
            }
        }
        let fits = self.take_rows(MIN_FORGET_PAGE_ROWS);
        if fits {
            let partition = name.clone();
            self.events.push(ConnectorEvent::PartitionForgotten(PartitionForgotten { partition }));
        }
        fits
    }

    fn take_candidates(&mut self, name: &PartitionId, known: &Partition) -> bool {
        let Some(swept) = &known.swept else { return true };
        let room = usize::try_from(self.left).unwrap_or(usize::MAX);
        let documents: Vec<_> = swept.candidates.keys().take(room).cloned().collect();
        let taken = documents.len();
        self.left -= u32::try_from(taken).unwrap_or(self.left);
        if taken > 0 {
            self.events.push(ConnectorEvent::CandidatesWithdrawn(CandidatesWithdrawn {
                partition: name.clone(),
                provenance: swept.era.provenance.clone(),
                documents,
            }));
        }
        taken == swept.candidates.len()
    }
}

#[cfg(test)]
#[path = "forget_tests.rs"]
mod tests;
