//! Observation copies: what a put and a prune come to, and the decisions that are read from them.
//!
//! The rules of copies are those of the records; here they meet the document. Where it is not known
//! whether a copy is valid under the present keys, the answer names the copies that must be verified
//! first, and nothing has changed. A copy whose content is damaged is not valid, and is whole again
//! once it is put again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::command::{DocumentReply, PutObservationCopy, ReadWinner, UnverifiedCopy};
use super::event::{DocumentEvent, ObservationCopiesDropped, ObservationCopyPut};
use super::state::Document;
use super::token::Token;
use crate::base::{Digest, DocumentId, OwnerDid};
use crate::domain::{ContentRef, Context, Decision, Row, RowKey, Table, Value};
use crate::records::{
    CopySet, Hlc, OBSERVATION_TYPE, RecordDecision, RecordKey, SignedRecord, StandingCopy,
};

/// The column of a copy's row that holds the token.
pub(super) const TOKEN_COLUMN: usize = 5;
/// The column of a copy's row that holds the payload.
pub(super) const PAYLOAD_COLUMN: usize = 6;

/// One owner's copies on a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// The copies that stand.
    pub set: CopySet,
    /// The value's reference; none when the claim is that it is absent.
    pub payload: Option<ContentRef>,
    /// What is in the rows alone, by the digest of the token, while the document is in memory.
    #[serde(skip)]
    pub content: BTreeMap<Digest, CopyContent>,
    /// What they were last found to come to.
    #[serde(skip)]
    pub decided: Decided,
}

/// A decision as it was built last, with its epoch. It is a memo of the copies, their content and
/// what is valid under the keys and signers of that epoch, so it is no part of the state: whatever
/// changes one of them starts an empty one.
#[derive(Default)]
pub struct Decided(Mutex<Option<(u64, Arc<RecordDecision>)>>);

impl Decided {
    fn of(&self, epoch: u64) -> Option<Arc<RecordDecision>> {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.as_ref().filter(|(of, _)| *of == epoch).map(|(_, decision)| Arc::clone(decision))
    }

    fn note(&self, epoch: u64, decision: &Arc<RecordDecision>) {
        let noted = Some((epoch, Arc::clone(decision)));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = noted;
    }
}

impl Clone for Decided {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Decided {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Decided {}

impl fmt::Debug for Decided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decided")
    }
}

/// The row-only content of one copy. What was damaged is missing, so that it does not hide behind
/// what another copy's row holds.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CopyContent {
    /// The token.
    pub token: Option<Arc<Token>>,
    /// The value. All copies of a claim share one.
    pub payload: Option<Arc<[u8]>>,
}

/// It is content: only what is there is shown.
impl fmt::Debug for CopyContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyContent")
            .field("token", &self.token)
            .field("payload_bytes", &self.payload.as_ref().map(|payload| payload.len()))
            .finish()
    }
}

impl Observation {
    /// The token of a copy whose content is whole. Without it nothing can be verified.
    fn token(&self, copy: &StandingCopy) -> Option<&Arc<Token>> {
        let content = self.content.get(&copy.op_hash)?;
        let is_whole = content.payload.is_some() == self.payload.is_some();
        content.token.as_ref().filter(|_| is_whole)
    }

    fn is_valid(&self, copy: &StandingCopy, context: &Context) -> bool {
        self.token(copy).and_then(|token| token.verdict(context.records_epoch)) == Some(true)
    }

    /// A copy as it was put, with its token; none when its content is damaged.
    fn record(&self, key: &RecordKey, copy: &StandingCopy) -> Option<(SignedRecord, &Arc<Token>)> {
        let token = self.token(copy)?;
        let record = SignedRecord {
            key: key.clone(),
            hlc: self.set.hlc.clone(),
            op_jwt: Arc::clone(token.text()),
            op_hash: copy.op_hash,
            payload: self.content.get(&copy.op_hash)?.payload.clone(),
        };
        Some((record, token))
    }

    /// What the valid copies come to; none without one.
    fn decision(&self, key: RecordKey, context: &Context) -> Option<RecordDecision> {
        let valid = self.set.copies.values().filter(|copy| self.is_valid(copy, context));
        let records = valid.filter_map(|copy| Some(self.record(&key, copy)?.0));
        let copies: Vec<SignedRecord> = records.collect();
        let payload = copies.first()?.payload.clone();
        let (decision_hlc, content_digest) = (self.set.version.clone(), self.set.claim_digest);
        Some(RecordDecision { key, decision_hlc, content_digest, payload, copies })
    }

    fn apply_dropped(self, dropped: &[Digest]) -> Option<Self> {
        let Self { set, payload, mut content, .. } = self;
        let set = set.without(dropped)?;
        content.retain(|op_hash, _| !dropped.contains(op_hash));
        Some(Self { set, payload, content, decided: Decided::default() })
    }
}

impl Document {
    /// The copies of an owner that must be verified before anything can be said of them.
    fn unverified(
        &self,
        document: &DocumentId,
        owner: &OwnerDid,
        context: &Context,
    ) -> Vec<UnverifiedCopy> {
        let Some(at) = self.observations.get(owner) else { return Vec::new() };
        let is_open = |token: &Arc<Token>| token.verdict(context.records_epoch).is_none();
        let copies = at.set.copies.values();
        let open = copies.filter(|copy| at.token(copy).is_some_and(is_open));
        let records = open.filter_map(|copy| {
            let (record, token) = at.record(&RecordKey::observation(owner, document), copy)?;
            Some(UnverifiedCopy { record, token: Arc::clone(token) })
        });
        records.collect()
    }

    pub(super) fn put_observation_copy(
        &self,
        document: &DocumentId,
        put: &PutObservationCopy,
        context: &Context,
    ) -> Decision<Self> {
        let mut unverified = self.unverified(document, &put.owner, context);
        // Keys and signers may have changed on its way: what is not valid now takes no valid
        // copy's place.
        if put.token.verdict(context.records_epoch) != Some(true) {
            let (record, token) = (put.record(document), Arc::clone(&put.token));
            unverified.push(UnverifiedCopy { record, token });
        }
        if !unverified.is_empty() {
            return Decision::unchanged(DocumentReply::Unverified(unverified));
        }
        let standing = self.observations.get(&put.owner);
        let change = CopySet::put(standing.map(|at| &at.set), &put.copy, |copy| {
            standing.is_some_and(|at| at.is_valid(copy, context))
        });
        let mut decision = Decision::unchanged(DocumentReply::Done);
        if change.is_empty() {
            return decision;
        }
        if !change.stands {
            decision.events.push(DocumentEvent::ObservationCopiesDropped(
                ObservationCopiesDropped { owner: put.owner.clone(), dropped: change.dropped },
            ));
            return decision;
        }
        let row = copy_key(&put.owner, document, put.copy.op_hash);
        let token = Value::Text(Arc::clone(put.token.text()));
        decision.content.push((row.clone(), TOKEN_COLUMN, token));
        let payload = put.payload.as_ref().map(|payload| Value::Blob(Arc::clone(payload)));
        decision.content.extend(payload.map(|payload| (row, PAYLOAD_COLUMN, payload)));
        decision.events.push(DocumentEvent::ObservationCopyPut(Box::new(ObservationCopyPut {
            owner: put.owner.clone(),
            copy: put.copy.clone(),
            payload: put.payload.as_deref().map(ContentRef::of_bytes),
            dropped: change.dropped,
            token: Some(Arc::clone(&put.token)),
        })));
        decision
    }

    pub(super) fn prune_observation_copies(
        &self,
        document: &DocumentId,
        owner: &OwnerDid,
        issuer: &str,
        context: &Context,
    ) -> Decision<Self> {
        let unverified = self.unverified(document, owner, context);
        if !unverified.is_empty() {
            return Decision::unchanged(DocumentReply::Unverified(unverified));
        }
        let dropped = self
            .observations
            .get(owner)
            .map_or_else(Vec::new, |at| at.set.prune(issuer, |copy| at.is_valid(copy, context)));
        let mut decision = Decision::unchanged(DocumentReply::Done);
        if !dropped.is_empty() {
            decision.retracts = true;
            decision.events.push(DocumentEvent::ObservationCopiesDropped(
                ObservationCopiesDropped { owner: owner.clone(), dropped },
            ));
        }
        decision
    }

    pub(super) fn observation_decision(
        &self,
        document: &DocumentId,
        owner: &OwnerDid,
        context: &Context,
    ) -> Decision<Self> {
        let answer = |decision| Decision::unchanged(DocumentReply::Decision(decision));
        let standing = self.observations.get_key_value(owner);
        let Some((owner, at)) = standing else { return answer(None) };
        if let Some(decided) = at.decided.of(context.records_epoch) {
            return answer(Some(decided));
        }
        let unverified = self.unverified(document, owner, context);
        if !unverified.is_empty() {
            return Decision::unchanged(DocumentReply::Unverified(unverified));
        }
        let decision = at.decision(RecordKey::observation(owner, document), context).map(Arc::new);
        if let Some(decision) = &decision {
            at.decided.note(context.records_epoch, decision);
        }
        answer(decision)
    }

    /// Whether a value that was fetched at `fetch_hlc` may be applied. Local intent comes first,
    /// then what the owner's records decided after the fetch.
    pub(super) fn read_winner(
        &self,
        document: &DocumentId,
        owner: &OwnerDid,
        fetch_hlc: &Hlc,
        context: &Context,
    ) -> Decision<Self> {
        let answer = |winner| Decision::unchanged(DocumentReply::ReadWinner(winner));
        if let Some(local) = self.local_write(fetch_hlc) {
            return answer(local);
        }
        let newer = self.observations.get(owner).filter(|at| &at.set.version > fetch_hlc);
        let Some(newer) = newer else { return answer(ReadWinner::Source) };
        let unverified = self.unverified(document, owner, context);
        if !unverified.is_empty() {
            return Decision::unchanged(DocumentReply::Unverified(unverified));
        }
        let is_valid = |copy| newer.is_valid(copy, context);
        if newer.set.copies.values().any(is_valid) {
            answer(ReadWinner::Decision { hlc: newer.set.version.clone() })
        } else {
            answer(ReadWinner::Source)
        }
    }

    pub(super) fn apply_copy_put(&mut self, put: &ObservationCopyPut) {
        let before = self.observations.remove(&put.owner);
        let left = before.and_then(|at| at.apply_dropped(&put.dropped));
        let (set, mut content) =
            left.map_or_else(Default::default, |at| (Some(at.set), at.content));
        // It comes with its verdict; the rest is attached, as it is after a load.
        let token = put.token.clone();
        content.insert(put.copy.op_hash, CopyContent { token, payload: None });
        let set = CopySet::with(set, &put.copy);
        let decided = Decided::default();
        let observation = Observation { set, payload: put.payload, content, decided };
        self.observations.insert(put.owner.clone(), observation);
    }

    pub(super) fn apply_copies_dropped(&mut self, event: &ObservationCopiesDropped) {
        let before = self.observations.remove(&event.owner);
        if let Some(left) = before.and_then(|at| at.apply_dropped(&event.dropped)) {
            self.observations.insert(event.owner.clone(), left);
        }
    }

    /// The keys of the rows of all copies.
    pub(super) fn copy_keys(&self, document: &DocumentId) -> Vec<RowKey> {
        let owners = self.observations.iter();
        let keys = owners.flat_map(|(owner, at)| {
            at.set.copies.values().map(|copy| copy_key(owner, document, copy.op_hash))
        });
        keys.collect()
    }

    /// The copy of a row's key, with its owner.
    fn standing_copy(&self, row: &RowKey) -> Option<(&OwnerDid, &Observation, &StandingCopy)> {
        let (owner, op_hash) = (row.values.get(1)?.as_text()?, row.values.get(3)?.as_text()?);
        let op_hash = Digest::from_hex(op_hash)?;
        let (owner, at) = self.observations.get_key_value(owner)?;
        let copy = at.set.copies.values().find(|copy| copy.op_hash == op_hash)?;
        Some((owner, at, copy))
    }

    pub(super) fn copy_row(&self, document: &DocumentId, row: &RowKey) -> Option<Row> {
        let (owner, at, copy) = self.standing_copy(row)?;
        let mut values = copy_key(owner, document, copy.op_hash).values;
        values.push(Value::text(at.set.hlc.as_str()));
        values.push(Value::Keep);
        values.push(at.payload.map_or(Value::Null, |_| Value::Keep));
        Some(Row::new(Table::ObservationRecords, values))
    }

    pub(super) fn copy_content(&self, row: &RowKey) -> Vec<(usize, ContentRef)> {
        let Some((_, at, copy)) = self.standing_copy(row) else { return Vec::new() };
        let token = ContentRef { digest: copy.op_hash, bytes: copy.token_bytes };
        let payload = at.payload.map(|payload| (PAYLOAD_COLUMN, payload));
        std::iter::once((TOKEN_COLUMN, token)).chain(payload).collect()
    }

    pub(super) fn attach_copy(&mut self, row: &RowKey, column: usize, value: &Value) {
        let Some((owner, _, copy)) = self.standing_copy(row) else { return };
        let (owner, op_hash) = (owner.clone(), copy.op_hash);
        let Some(at) = self.observations.get_mut(&owner) else { return };
        at.decided = Decided::default();
        let shared = at.content.values().find_map(|content| content.payload.clone());
        let content = at.content.entry(op_hash).or_default();
        match (column, value) {
            // One that came with its event knows its verdict already.
            (TOKEN_COLUMN, Value::Text(text)) => {
                let token = &mut content.token;
                token.get_or_insert_with(|| Arc::new(Token::new(Arc::clone(text))));
            }
            (PAYLOAD_COLUMN, Value::Blob(payload)) => {
                content.payload = Some(shared.unwrap_or_else(|| Arc::clone(payload)));
            }
            _ => {}
        }
    }
}

/// The key of a copy's row.
pub(super) fn copy_key(owner: &OwnerDid, document: &DocumentId, op_hash: Digest) -> RowKey {
    let values = vec![
        Value::text(OBSERVATION_TYPE),
        Value::Text(owner.shared()),
        Value::Text(document.shared()),
        Value::text(op_hash.to_hex()),
    ];
    RowKey::new(Table::ObservationRecords, values)
}

impl ObservationCopyPut {
    /// The keys of the rows that the event changes.
    pub(super) fn row_keys(&self, document: &DocumentId) -> impl Iterator<Item = RowKey> {
        let all = self.dropped.iter().copied().chain([self.copy.op_hash]);
        all.map(|op_hash| copy_key(&self.owner, document, op_hash))
    }
}

impl ObservationCopiesDropped {
    /// The keys of the rows that the event changes.
    pub(super) fn row_keys(&self, document: &DocumentId) -> impl Iterator<Item = RowKey> {
        self.dropped.iter().map(|op_hash| copy_key(&self.owner, document, *op_hash))
    }
}

impl PutObservationCopy {
    fn record(&self, document: &DocumentId) -> SignedRecord {
        SignedRecord {
            key: RecordKey::observation(&self.owner, document),
            hlc: self.copy.hlc.clone(),
            op_jwt: Arc::clone(self.token.text()),
            op_hash: self.copy.op_hash,
            payload: self.payload.clone(),
        }
    }
}

#[cfg(test)]
#[path = "observation_tests.rs"]
mod tests;
