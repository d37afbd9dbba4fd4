//! The compact JWS: its three parts and its header.
//!
//! It knows which header is taken, not what a payload says, nor whose key verifies.

use super::base64url;
use super::i_json::{JsonValue, Members};
use super::keys::PublicKey;
use crate::base::RecordFault;

/// The algorithms that are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    EdDsa,
    Es256,
}

impl Algorithm {
    /// The algorithm of a key: the only one that it verifies.
    pub(super) const fn of(key: &PublicKey) -> Self {
        match key {
            PublicKey::Ed25519(_) => Self::EdDsa,
            PublicKey::P256(_) => Self::Es256,
        }
    }

    /// The header's `alg`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::EdDsa => "EdDSA",
            Self::Es256 => "ES256",
        }
    }
}

/// A token's parts, decoded. Nothing is verified.
pub(super) struct Jws<'a> {
    pub(super) algorithm: Algorithm,
    /// The header's `kid`, as it stands there.
    pub(super) kid: Option<String>,
    pub(super) payload: Members,
    /// What was signed: header and payload, as they stand in the token.
    pub(super) signed: &'a str,
    pub(super) signature: [u8; 64],
}

impl<'a> Jws<'a> {
    /// Reads a token.
    pub(super) fn parse(token: &'a str) -> Result<Self, RecordFault> {
        let mut parts = token.split('.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(RecordFault::Token { reason: "expected three parts" });
        };
        let signed = token.get(..header.len() + 1 + payload.len()).unwrap_or_default();
        let header = JsonValue::read_object(&decode(header)?)
            .map_err(|reason| RecordFault::Header { reason })?;
        let (algorithm, kid) = read_header(header)?;
        let payload = JsonValue::read_object(&decode(payload)?)
            .map_err(|reason| RecordFault::Claims { reason })?;
        let signature =
            decode(signature)?.as_slice().try_into().map_err(|_| RecordFault::Signature)?;
        Ok(Self { algorithm, kid, payload, signed, signature })
    }
}

fn decode(part: &str) -> Result<Vec<u8>, RecordFault> {
    let reason = "expected parts of base64url without padding, spare bits or other characters";
    base64url::decode(part).ok_or(RecordFault::Token { reason })
}

/// Takes `typ`, `alg` and `kid` alone: any other member may be one that changes what a token means
/// to somebody, or where a key is looked for.
fn read_header(mut header: Members) -> Result<(Algorithm, Option<String>), RecordFault> {
    let refused = |reason| Err(RecordFault::Header { reason });
    let mut take = |name: &str| header.remove(name).map(JsonValue::into_text);
    let (typ, alg, kid) = (take("typ"), take("alg"), take("kid"));
    if typ != Some(Some("JWT".to_owned())) {
        return refused("expected the typ JWT");
    }
    let alg = alg.flatten();
    let known = [Algorithm::EdDsa, Algorithm::Es256];
    let Some(alg) = known.into_iter().find(|known| alg.as_deref() == Some(known.name())) else {
        return refused("expected the alg EdDSA or ES256");
    };
    if kid == Some(None) {
        return refused("expected a text as kid");
    }
    if !header.is_empty() {
        return refused("expected no members but typ, alg and kid");
    }
    Ok((alg, kid.flatten()))
}

#[cfg(test)]
#[path = "jws_tests.rs"]
mod tests;
