//! What a token's payload says: the issuer, the claim and its digest.
//!
//! It knows the members and their forms, not the record that they are compared with.

use super::decimal::Decimal;
use super::hlc::Hlc;
use super::i_json::{JsonValue, Members, canonical};
use super::issuer::{EXPECTED_DID, Issuer, is_did};
use super::signed::RecordKey;
use crate::base::{Digest, DocumentId, OwnerDid, RecordFault};

/// The claims of a payload.
pub(super) struct Claims {
    pub(super) issuer: Issuer,
    pub(super) not_before_ms: Option<i64>,
    pub(super) claim: Claim,
    pub(super) claim_digest: Digest,
}

/// What is claimed of a record.
pub(super) struct Claim {
    pub(super) key: RecordKey,
    pub(super) hlc: Hlc,
    pub(super) version: Hlc,
    pub(super) payload: Option<Digest>,
}

impl Claims {
    /// Reads a payload. Members that are not named here are other people's and ignored, but for
    /// `exp`: a deciding copy that expires would make stores differ for ever. `issuer_of` gives what
    /// [`Issuer::parse`] does.
    pub(super) fn parse(
        mut payload: Members,
        issuer_of: impl FnOnce(&str) -> Option<Issuer>,
    ) -> Result<Self, RecordFault> {
        if payload.contains_key("exp") {
            return Err(fault("expected no exp"));
        }
        let issuer = payload.remove("iss").and_then(JsonValue::into_text);
        let issuer = issuer.as_deref().and_then(issuer_of);
        let issuer = issuer.ok_or(RecordFault::Issuer { reason: EXPECTED_DID })?;
        let mut date = |name| payload.remove(name).map(|date| numeric_date(&date)).transpose();
        date("iat")?;
        let not_before_ms = date("nbf")?;
        let claim = payload.remove("claim").ok_or(fault("expected a claim"))?;
        let text = canonical(&claim).map_err(fault)?;
        let claim_digest = Digest::of(text.as_bytes());
        let claim = Claim::parse(claim).map_err(fault)?;
        Ok(Self { issuer, not_before_ms, claim, claim_digest })
    }
}

/// A time as JWT writes it: seconds since the epoch, in any spelling of a number that is not
/// negative, also with a fraction. What is less than a millisecond is rounded up.
fn numeric_date(date: &JsonValue) -> Result<i64, RecordFault> {
    let text = match date {
        JsonValue::Number(_) => canonical(date).map_err(fault)?,
        _ => String::new(),
    };
    Decimal::parse(&text)
        .and_then(|seconds| seconds.seconds_to_ms())
        .ok_or(fault("expected iat and nbf in seconds since the epoch"))
}

impl Claim {
    fn parse(claim: JsonValue) -> Result<Self, &'static str> {
        let mut claim = claim.into_members().ok_or("expected an object as claim")?;
        let key = claim.remove("key").and_then(JsonValue::into_members);
        let mut meta = claim
            .remove("meta")
            .and_then(JsonValue::into_members)
            .ok_or("expected an object as claim.meta")?;
        let payload = match claim.remove("payload") {
            Some(JsonValue::Null) => None,
            Some(JsonValue::Text(hex)) => {
                let expected = "expected lower-case hex of SHA-256 as claim.payload";
                Some(Digest::from_hex(&hex).ok_or(expected)?)
            }
            _ => return Err("expected a digest or null as claim.payload"),
        };
        let claimed = Self {
            key: parse_key(key.ok_or("expected an object as claim.key")?)?,
            hlc: take_hlc(&mut claim, "hlc").ok_or("expected a canonical HLC as claim.hlc")?,
            version: take_hlc(&mut meta, "version")
                .ok_or("expected a canonical HLC as claim.meta.version")?,
            payload,
        };
        if !claim.is_empty() {
            return Err("expected no members of the claim but key, hlc, meta and payload");
        }
        Ok(claimed)
    }
}

fn parse_key(mut key: Members) -> Result<RecordKey, &'static str> {
    let mut take = |name: &str| key.remove(name).and_then(JsonValue::into_text);
    let record_type = take("type").ok_or("expected a text as claim.key.type")?;
    // Whether an owner's DID is a key that could sign is nobody's question here.
    let owner = take("owner").filter(|owner| is_did(owner));
    let owner = owner.and_then(|owner| OwnerDid::new(owner).ok());
    let id = take("id").and_then(|id| DocumentId::new(id).ok());
    let key_of_record = RecordKey {
        record_type: record_type.into(),
        owner: owner.ok_or("expected a canonical DID as claim.key.owner")?,
        id: id.ok_or("expected a document id as claim.key.id")?,
    };
    if !key.is_empty() {
        return Err("expected no members of claim.key but type, owner and id");
    }
    Ok(key_of_record)
}

fn take_hlc(members: &mut Members, name: &str) -> Option<Hlc> {
    members.remove(name)?.into_text().and_then(|text| Hlc::parse(&text))
}

const fn fault(reason: &'static str) -> RecordFault {
    RecordFault::Claims { reason }
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
