//! What tests of tokens begin with: a good claim, and tokens whose signature is right whatever they
//! say.

use super::base64url::encode;
use super::{
    Hlc, RecordKey, RecordLimits, SignedRecord, SigningKey, VerifiedRecord, parse, verify,
};
use crate::base::{Digest, DocumentId, OwnerDid, RecordFault};

pub(super) const HLC: &str = "001767225600000-00000000-node-a";
pub(super) const VERSION: &str = "001767225500000-00000001-node-b";
pub(super) const EDDSA: &str = r#"{"alg":"EdDSA","typ":"JWT"}"#;
pub(super) const ES256: &str = r#"{"alg":"ES256","typ":"JWT"}"#;
pub(super) const NO_LIMITS: RecordLimits =
    RecordLimits { max_token_bytes: usize::MAX, max_payload_bytes: usize::MAX };

pub(super) fn ed25519() -> SigningKey {
    SigningKey::ed25519_from_seed([7; 32])
}

pub(super) fn p256() -> SigningKey {
    SigningKey::p256_from_scalar([7; 32]).unwrap()
}

pub(super) fn did() -> String {
    ed25519().did().to_string()
}

pub(super) fn claim() -> String {
    let owner = did();
    format!(
        r#"{{"hlc":"{HLC}","key":{{"id":"doc-1","owner":"{owner}","type":"connector.observation"}},"meta":{{"version":"{VERSION}"}},"payload":null}}"#
    )
}

pub(super) fn payload() -> String {
    format!(r#"{{"claim":{},"iss":"{}"}}"#, claim(), did())
}

/// The record of a token, with the fields that [`claim`] names.
pub(super) fn record_of(token: &str) -> SignedRecord {
    SignedRecord {
        key: RecordKey::observation(
            &OwnerDid::new(did()).unwrap(),
            &DocumentId::new("doc-1").unwrap(),
        ),
        hlc: Hlc::parse(HLC).unwrap(),
        op_jwt: token.into(),
        op_hash: Digest::of(token.as_bytes()),
        payload: None,
    }
}

pub(super) fn token_by(key: &SigningKey, header: &str, payload: &str) -> String {
    let signed = format!("{}.{}", encode(header.as_bytes()), encode(payload.as_bytes()));
    format!("{signed}.{}", encode(&key.sign(signed.as_bytes())))
}

/// A token whose signature is right.
pub(super) fn token(header: &str, payload: &str) -> String {
    token_by(&ed25519(), header, payload)
}

pub(super) fn judge(record: &SignedRecord) -> Result<VerifiedRecord, RecordFault> {
    let parsed = parse(record, &NO_LIMITS)?;
    verify(&parsed, parsed.built_in_key().unwrap())
}

pub(super) fn judge_token(token: &str) -> Result<VerifiedRecord, RecordFault> {
    judge(&record_of(token))
}

pub(super) fn with_header(header: &str) -> Result<VerifiedRecord, RecordFault> {
    judge_token(&token(header, &payload()))
}

pub(super) fn with_payload(payload: &str) -> Result<VerifiedRecord, RecordFault> {
    judge_token(&token(EDDSA, payload))
}

/// The good payload with `part` replaced.
pub(super) fn replaced(part: &str, by: &str) -> String {
    let good = payload();
    assert!(good.contains(part), "{part}");
    good.replacen(part, by, 1)
}

pub(super) fn is_claims<T: std::fmt::Debug>(judged: &Result<T, RecordFault>) -> bool {
    matches!(judged, Err(RecordFault::Claims { .. }))
}
