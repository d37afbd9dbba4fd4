//! Observation copies: what a put and a prune come to, and the decisions that are read from them.
//!
//! The rules of copies are those of the records; here they meet the document. A copy whose
//! verdict is not known under the present keys is no verdict: the answer names the copies that must
//! be verified first, and nothing has changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::command::{DocumentReply, PutObservationCopy, ReadWinner, UnverifiedCopy};
use super::event::{DocumentEvent, ObservationCopiesDropped, ObservationCopyPut};
use super::state::Document;
use super::token::Token;
use crate::base::{Digest, DocumentId, OwnerDid};
use crate::domain::{ContentRef, Context, Decision, Row, RowKey, Table, Value};
use crate::records::{
    CopySet, Hlc, OBSERVATION_TYPE, RecordCopy, RecordDecision, RecordKey, SignedRecord,
    StandingCopy,
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
    /// What is in the rows alone, while the document is in memory.
    #[serde(skip)]
    pub content: ObservationContent,
}

/// The row-only content of one owner's copies. What was damaged is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservationContent {
    /// The value that all copies claim.
    pub payload: Option<Arc<[u8]>>,
    /// The tokens by their digests.
    pub tokens: BTreeMap<Digest, Arc<Token>>,
}

impl Observation {
    /// The content of a copy is whole. Without it nothing can be verified.
    fn token(&self, copy: &StandingCopy) -> Option<&Arc<Token>> {
        if self.payload.is_some() && self.content.payload.is_none() {
            return None;
        }
        self.content.tokens.get(&copy.op_hash)
    }

    fn is_valid(&self, copy: &StandingCopy, epoch: u64) -> bool {
        self.token(copy).and_then(|token| token.verdict(epoch)) == Some(true)
    }

    fn record(&self, key: &RecordKey, copy: &StandingCopy, token: &Token) -> SignedRecord {
        SignedRecord {
            key: key.clone(),
            hlc: self.set.hlc.clone(),
            op_jwt: Arc::clone(token.text()),
            op_hash: copy.op_hash,
            payload: self.content.payload.clone(),
        }
    }
}

impl Document {
    /// The copies of an owner that must be verified before anything can be said of them.
    fn unverified(
        &self,
        document: &DocumentId,
        owner: &OwnerDid,
        context: &Context,
    ) -> Option<Decision<Self>> {
        let observation = self.observations.get(owner)?;
        let key = RecordKey::observation(owner, document);
        let copies: Vec<UnverifiedCopy> = observation
            .set
            .copies
            .values()
            .filter_map(|copy| {
                let token = observation.token(copy)?;
                let is_open = token.verdict(context.records_epoch).is_none();
                let record = is_open.then(|| observation.record(&key, copy, token))?;
                Some(UnverifiedCopy { record, token: Arc::clone(token) })
            })
            .collect();
        (!copies.is_empty()).then(|| Decision::unchanged(DocumentReply::Unverified(copies)))
    }

    pub(super) fn put_observation_copy(
        &self,
        document: &DocumentId,
        put: &PutObservationCopy,
        context: &Context,
    ) -> Decision<Self> {
        if let Some(unverified) = self.unverified(document, &put.owner, context) {
            return unverified;
        }
        let standing = self.observations.get(&put.owner);
        let change = CopySet::put(standing.map(|at| &at.set), &put.copy, |copy| {
            standing.is_some_and(|at| at.is_valid(copy, context.records_epoch))
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
        if let Some(unverified) = self.unverified(document, owner, context) {
            return unverified;
        }
        let dropped = self.observations.get(owner).map_or_else(Vec::new, |at| {
            at.set.prune(issuer, |copy| at.is_valid(copy, context.records_epoch))
        });
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
        if let Some(unverified) = self.unverified(document, owner, context) {
            return unverified;
        }
        let decision = self.observations.get(owner).and_then(|at| {
            let key = RecordKey::observation(owner, document);
            let valid = at.set.copies.values().filter_map(|copy| {
                let token = at.token(copy)?;
                let is_valid = token.verdict(context.records_epoch) == Some(true);
                is_valid.then(|| at.record(&key, copy, token))
            });
            let copies: Vec<SignedRecord> = valid.collect();
            (!copies.is_empty()).then(|| RecordDecision {
                decision_hlc: at.set.version.clone(),
                content_digest: at.set.claim_digest,
                payload: at.content.payload.clone(),
                copies,
                key,
            })
        });
        Decision::unchanged(DocumentReply::Decision(decision.map(Box::new)))
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
        if let Some(unverified) = self.unverified(document, owner, context) {
            return unverified;
        }
        let is_valid = |copy| newer.is_valid(copy, context.records_epoch);
        if newer.set.copies.values().any(is_valid) {
            answer(ReadWinner::Decision { hlc: newer.set.version.clone() })
        } else {
            answer(ReadWinner::Source)
        }
    }

    pub(super) fn apply_copy_put(&mut self, put: &ObservationCopyPut) {
        let standing = self.observations.remove(&put.owner);
        let (set, content) = match standing {
            Some(at) => (Some(at.set), at.content),
            None => (None, ObservationContent::default()),
        };
        let Some(set) = CopySet::after_put(set, Some(&put.copy), &put.dropped) else { return };
        let mut content =
            if set.copies.len() == 1 { ObservationContent::default() } else { content };
        content.tokens.retain(|digest, _| set.copies.values().any(|copy| copy.op_hash == *digest));
        content.tokens.extend(put.token.clone().map(|token| (put.copy.op_hash, token)));
        let observation = Observation { set, payload: put.payload, content };
        self.observations.insert(put.owner.clone(), observation);
    }

    pub(super) fn apply_copies_dropped(&mut self, event: &ObservationCopiesDropped) {
        let Some(at) = self.observations.remove(&event.owner) else { return };
        let Observation { set, payload, mut content } = at;
        let Some(set) = CopySet::after_put(Some(set), None, &event.dropped) else { return };
        content.tokens.retain(|digest, _| set.copies.values().any(|copy| copy.op_hash == *digest));
        self.observations.insert(event.owner.clone(), Observation { set, payload, content });
    }

    /// The keys of the rows of all copies.
    pub(super) fn copy_keys(&self, document: &DocumentId) -> Vec<RowKey> {
        let owners = self.observations.iter();
        let keys = owners.flat_map(|(owner, at)| {
            at.set.copies.values().map(|copy| copy_key(owner, document, copy.op_hash))
        });
        keys.collect()
    }

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
        let Some((_, _, copy)) = self.standing_copy(row) else { return };
        let op_hash = copy.op_hash;
        let owner = row.values.get(1).and_then(Value::as_text);
        let Some(at) = owner.and_then(|owner| self.observations.get_mut(owner)) else { return };
        match (column, value) {
            // One that came with its event knows its verdict already.
            (TOKEN_COLUMN, Value::Text(text)) => {
                let tokens = &mut at.content.tokens;
                tokens.entry(op_hash).or_insert_with(|| Arc::new(Token::new(Arc::clone(text))));
            }
            (PAYLOAD_COLUMN, Value::Blob(payload)) => {
                at.content.payload = Some(Arc::clone(payload));
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

/// A copy as a command brings it.
impl PutObservationCopy {
    /// The command of a verified record.
    #[must_use]
    pub fn new(
        owner: OwnerDid,
        copy: RecordCopy,
        token: Arc<Token>,
        payload: Option<Arc<[u8]>>,
    ) -> Self {
        Self { owner, copy, token, payload }
    }
}
