//! Observation records: copies are put and pruned, and their decisions read.
//!
//! A document answers which standing copies it can say nothing of before they are verified; the
//! handle has them verified and asks again. It knows no token and no rule of copies.

use std::sync::Arc;

use super::watch::all;
use super::{DocumentRef, Route, Store, unexpected};
use crate::base::limits::MAX_PAGE_ROWS;
use crate::base::{DocumentId, Error, OwnerDid, Result};
use crate::domain::document::{
    DocumentCommand, DocumentReply, PutObservationCopy, Token, UnverifiedCopy,
};
use crate::records::{OBSERVATION_TYPE, RecordCopy, RecordDecision, RecordKey, SignedRecord};
use crate::runtime::{Verified, telemetry};

/// How often a command is sent again because copies had to be verified first: they change only
/// when others put meanwhile, or when the epoch of the keys moves.
const MAX_VERIFICATIONS: u32 = 8;
/// Documents that are asked at once.
const DOCUMENTS_AT_ONCE: usize = 64;
/// A page of decisions ends behind this many bytes of tokens and payloads.
const MAX_PAGE_BYTES: usize = 16 << 20;
/// Characters of a record's type that an error shows.
const SHOWN_TYPE_CHARS: usize = 64;

/// A page of decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionPage {
    /// The decisions, by owner, then document. Records without a valid copy are not among them.
    pub decisions: Vec<RecordDecision>,
    /// Where the next page goes on; none when this one is the last.
    pub next: Option<(OwnerDid, DocumentId)>,
}

/// Refuses records of other types than the one that is kept.
pub(super) fn check_type(record_type: &str) -> Result<()> {
    if record_type == OBSERVATION_TYPE {
        return Ok(());
    }
    let record_type = record_type.chars().take(SHOWN_TYPE_CHARS).collect();
    Err(Error::UnsupportedRecordType { record_type })
}

impl DocumentRef {
    /// Sends a command; copies that must be verified first are, and it is sent again.
    pub(super) async fn send_verified(
        &self,
        command: impl Fn() -> DocumentCommand,
    ) -> Result<DocumentReply> {
        for _ in 0..MAX_VERIFICATIONS {
            match self.send(command()).await? {
                DocumentReply::Unverified(copies) => self.judge(&copies).await?,
                reply => return Ok(reply),
            }
        }
        Err(Error::Contention)
    }

    async fn judge(&self, copies: &[UnverifiedCopy]) -> Result<()> {
        let verifier = &self.store().env().verifier;
        all(copies.iter().map(|copy| verifier.judge(copy))).await.into_iter().collect()
    }

    /// Puts a copy of an observation record of this document. A copy that is lower than the standing
    /// decision changes nothing, a higher one takes the place of all copies, an equal one of another
    /// signer stands beside them.
    ///
    /// Putting a copy again changes nothing; in one process it is answered at once.
    ///
    /// # Errors
    /// [`Error::UnsupportedRecordType`]; [`Error::InvalidInput`] for a record of another document;
    /// [`Error::NotDocumentOwner`], [`Error::NoDocumentOwners`]; [`Error::HlcDrift`] for stamps too far
    /// ahead; [`Error::InvalidObservationRecord`] for a record that does not verify;
    /// [`Error::KeyUnavailable`] while the key of its issuer, or of a standing copy's, can't be
    /// resolved; retryable errors.
    pub async fn put_observation_copy(&self, record: &SignedRecord) -> Result<()> {
        check_type(&record.key.record_type)?;
        if &record.key.id != self.id() {
            return Err(Error::invalid("id", "expected the id of the handle's document"));
        }
        let store = self.store();
        store.env().check_open()?;
        store.check_document_owner(&record.key.owner, self.id()).await?;
        let (verifier, is_plain) = (&store.env().verifier, self.is_plain());
        for _ in 0..MAX_VERIFICATIONS {
            let verified = verifier.admit(record, store.time_for_stamps().await?).await?;
            if is_plain && verified.still_stands() {
                telemetry::standing_put();
                return Ok(());
            }
            // Before the put is sent: what is taken back from now on may be this copy.
            let standing = if is_plain { store.directories().standing(self.key())? } else { None };
            let command = put_command(record, &verified);
            match self.send(command).await? {
                DocumentReply::Done => {
                    if let Some(standing) = standing {
                        verifier.stands(verified, standing);
                    }
                    return Ok(());
                }
                DocumentReply::Unverified(copies) => self.judge(&copies).await?,
                _ => return Err(unexpected()),
            }
        }
        Err(Error::Contention)
    }

    /// Nothing has to be judged or recorded besides the copy.
    fn is_plain(&self) -> bool {
        match &self.sender.route {
            Route::Store(options) => options.fence.is_none() && options.command_id.is_none(),
            Route::Unit(_) => false,
        }
    }

    /// Drops the copies of an issuer (of all its keys) of an owner's record, if a valid copy of another
    /// issuer stays: a prune never loses the decision. Else nothing happens.
    ///
    /// # Errors
    /// [`Error::KeyUnavailable`] while the key of a standing copy's issuer can't be resolved;
    /// retryable errors.
    pub async fn prune_observation_copy(&self, owner: &OwnerDid, issuer: &str) -> Result<()> {
        let issuer: Arc<str> = Arc::from(issuer);
        let command = || {
            let (owner, issuer) = (owner.clone(), Arc::clone(&issuer));
            DocumentCommand::PruneObservationCopies { owner, issuer }
        };
        match self.send_verified(command).await? {
            DocumentReply::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// What the valid copies of an owner's record come to; none without a valid copy.
    ///
    /// # Errors
    /// [`Error::KeyUnavailable`] while the key of a copy's issuer can't be resolved; retryable
    /// errors.
    pub async fn observation_decision(&self, owner: &OwnerDid) -> Result<Option<RecordDecision>> {
        let command = || DocumentCommand::ObservationDecision { owner: owner.clone() };
        match self.send_verified(command).await? {
            DocumentReply::Decision(decision) => Ok(decision.map(Arc::unwrap_or_clone)),
            _ => Err(unexpected()),
        }
    }
}

impl Store {
    /// The decisions of these records, in their order. One without a valid copy is absent.
    ///
    /// # Errors
    /// As [`DocumentRef::observation_decision`]; [`Error::UnsupportedRecordType`] for a key of
    /// another type.
    pub async fn observation_decisions(&self, keys: &[RecordKey]) -> Result<Vec<RecordDecision>> {
        decided_in_chunks(keys, |id| self.document(id)).await
    }

    /// A page of the decisions of all owners' records of these types, by owner, then document, behind
    /// `after`: none of no types. It looks at `limit` records, at fewer when they are large; those
    /// without a valid copy are left out, so how to go on is said by [`DecisionPage::next`] alone.
    ///
    /// # Errors
    /// As [`Self::observation_decisions`].
    pub async fn list_observation_decisions(
        &self,
        types: &[&str],
        after: Option<(&OwnerDid, &DocumentId)>,
        limit: u32,
    ) -> Result<DecisionPage> {
        self.list_decisions(types, after, limit, |id| self.document(id)).await
    }

    /// The same with the caller's handles.
    pub(super) async fn list_decisions(
        &self,
        types: &[&str],
        after: Option<(&OwnerDid, &DocumentId)>,
        limit: u32,
        handle: impl Fn(&DocumentId) -> DocumentRef,
    ) -> Result<DecisionPage> {
        types.iter().try_for_each(|record_type| check_type(record_type))?;
        let limit = limit.min(MAX_PAGE_ROWS);
        if types.is_empty() || limit == 0 {
            return Ok(DecisionPage::default());
        }
        let after = after.map(|(owner, document)| (owner.clone(), document.clone()));
        self.env().check_open()?;
        let observed = self.storage().observed(after.as_ref(), limit);
        let pairs = self.env().answer_in_time(observed).await?;
        let mut page = DecisionPage::default();
        let (mut looked_at, mut bytes) = (0, 0);
        for pairs in pairs.chunks(DOCUMENTS_AT_ONCE) {
            let keys: Vec<RecordKey> =
                pairs.iter().map(|(owner, id)| RecordKey::observation(owner, id)).collect();
            let decisions = decided(&keys, &handle).await?;
            bytes += decisions.iter().map(content_bytes).sum::<usize>();
            page.decisions.extend(decisions);
            looked_at += pairs.len();
            if bytes > MAX_PAGE_BYTES {
                break;
            }
        }
        let is_last = looked_at == pairs.len() && u32::try_from(looked_at) != Ok(limit);
        page.next = pairs.into_iter().take(looked_at).next_back().filter(|_| !is_last);
        Ok(page)
    }
}

fn put_command(record: &SignedRecord, verified: &Verified) -> DocumentCommand {
    let token = Token::new(Arc::clone(&record.op_jwt));
    token.note(verified.epoch, true);
    let said = &verified.record;
    let copy = RecordCopy::of(said, &record.op_jwt);
    let (owner, payload) = (said.key.owner.clone(), record.payload.clone());
    let put = PutObservationCopy { owner, copy, token: Arc::new(token), payload };
    DocumentCommand::PutObservationCopy(Box::new(put))
}

/// The decisions of records, a few asked for at once.
pub(super) async fn decided_in_chunks(
    keys: &[RecordKey],
    handle: impl Fn(&DocumentId) -> DocumentRef,
) -> Result<Vec<RecordDecision>> {
    keys.iter().try_for_each(|key| check_type(&key.record_type))?;
    let mut decisions = Vec::new();
    for keys in keys.chunks(DOCUMENTS_AT_ONCE) {
        decisions.extend(decided(keys, &handle).await?);
    }
    Ok(decisions)
}

/// The decisions of a few records, asked for at once.
async fn decided(
    keys: &[RecordKey],
    handle: impl Fn(&DocumentId) -> DocumentRef,
) -> Result<Vec<RecordDecision>> {
    let ask = |key: &RecordKey| {
        let (document, owner) = (handle(&key.id), key.owner.clone());
        async move { document.observation_decision(&owner).await }
    };
    let mut decisions = Vec::with_capacity(keys.len());
    for decision in all(keys.iter().map(ask)).await {
        decisions.extend(decision?);
    }
    Ok(decisions)
}

fn content_bytes(decision: &RecordDecision) -> usize {
    let tokens = decision.copies.iter().map(|copy| copy.op_jwt.len());
    tokens.chain(decision.payload.iter().map(|payload| payload.len())).sum()
}
