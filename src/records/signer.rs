//! Signs records in the one form that is verified here.
//!
//! It knows no clock: the stamps are arguments.

use std::sync::Arc;

use super::base64url;
use super::hlc::Hlc;
use super::i_json::{self, JsonValue, Members, canonical};
use super::issuer::{EXPECTED_DID, EXPECTED_KEY_ID, Issuer};
use super::jws::Algorithm;
use super::keys::SigningKey;
use super::signed::{RecordKey, RecordLimits, SignedRecord};
use super::token;
use crate::base::{Digest, DocumentId, Error, Json, OwnerDid, Result};

/// Signs records with one key.
///
/// ```
/// use connector_store::records::{Hlc, RecordLimits, RecordSigner, SigningKey, parse, verify};
/// use connector_store::{DocumentId, OwnerDid};
///
/// # fn main() -> connector_store::Result<()> {
/// let signer = RecordSigner::did_key(SigningKey::ed25519_from_seed([7; 32]));
/// let owner = OwnerDid::new(signer.issuer())?;
/// let document = DocumentId::new("document-1")?;
/// let stamp = Hlc::parse("001767225600000-00000000-node-a").unwrap();
/// let record = signer.sign(&owner, &document, &stamp, &stamp, Some(b"value"))?;
///
/// let parsed = parse(&record, &RecordLimits::default()).unwrap();
/// let verified = verify(&parsed, parsed.built_in_key().unwrap()).unwrap();
/// assert_eq!((&verified.key.id, &*verified.signer_key), (&document, signer.issuer()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RecordSigner {
    key: SigningKey,
    issuer: Issuer,
    key_id: Option<String>,
}

impl RecordSigner {
    /// The signer whose DID is the key.
    #[must_use]
    pub fn did_key(key: SigningKey) -> Self {
        let issuer = Issuer::from_key(&key.did());
        Self { key, issuer, key_id: None }
    }

    /// A signer of another DID method, in whose document the key has this id: the fragment, without
    /// the DID.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for the field `did` unless it is a canonical DID of another method than
    /// `key`, for the field `key_id` unless it is 1 to 128 of `[A-Za-z0-9._~:=+-]`.
    pub fn with_key_id(key: SigningKey, did: &str, key_id: &str) -> Result<Self> {
        let issuer = Issuer::parse(did).ok_or_else(|| Error::invalid("did", EXPECTED_DID))?;
        if issuer.built_in_key().is_some() {
            return Err(Error::invalid("did", "expected a DID of another method than key"));
        }
        if issuer.key_id(key_id) != Some(key_id) {
            return Err(Error::invalid("key_id", EXPECTED_KEY_ID));
        }
        Ok(Self { key, issuer, key_id: Some(key_id.to_owned()) })
    }

    /// The DID that signs.
    #[must_use]
    pub fn issuer(&self) -> &str {
        self.issuer.did()
    }

    /// The observation record of a value, or of its absence. `hlc` is the record's stamp, `version`
    /// that of the decision.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for the field `document_id` when JSON can't hold it, and
    /// [`Error::InvalidObservationRecord`] when the record would be refused: its owner is no canonical
    /// DID.
    pub fn sign(
        &self,
        owner: &OwnerDid,
        document: &DocumentId,
        hlc: &Hlc,
        version: &Hlc,
        payload: Option<&[u8]>,
    ) -> Result<SignedRecord> {
        self.sign_members(owner, document, hlc, Members::new(), version, payload)
    }

    /// As [`Self::sign`], with further members of the claim's `meta`.
    ///
    /// # Errors
    /// As [`Self::sign`], and [`Error::InvalidInput`] for the field `meta` unless it is an object of
    /// I-JSON without `version`.
    pub fn sign_with_meta(
        &self,
        owner: &OwnerDid,
        document: &DocumentId,
        hlc: &Hlc,
        version: &Hlc,
        payload: Option<&[u8]>,
        meta: &Json,
    ) -> Result<SignedRecord> {
        let meta = JsonValue::read_object(meta.as_str().as_bytes())
            .map_err(|reason| Error::invalid("meta", reason))?;
        if meta.contains_key("version") {
            return Err(Error::invalid("meta", "expected no member version: it is an argument"));
        }
        self.sign_members(owner, document, hlc, meta, version, payload)
    }

    fn sign_members(
        &self,
        owner: &OwnerDid,
        document: &DocumentId,
        hlc: &Hlc,
        mut meta: Members,
        version: &Hlc,
        payload: Option<&[u8]>,
    ) -> Result<SignedRecord> {
        if !i_json::is_text(document.as_str()) {
            let reason = "expected no code points that are no characters";
            return Err(Error::invalid("document_id", reason));
        }
        meta.insert("version".to_owned(), version.as_str().into());
        let key = RecordKey::observation(owner, document);
        let digest = payload.map(Digest::of);
        let claim = object([
            ("hlc", hlc.as_str().into()),
            (
                "key",
                object([
                    ("id", key.id.as_str().into()),
                    ("owner", key.owner.as_str().into()),
                    ("type", JsonValue::from(&*key.record_type)),
                ]),
            ),
            ("meta", JsonValue::Object(meta)),
            ("payload", digest.map_or(JsonValue::Null, |digest| digest.to_hex().as_str().into())),
        ]);
        let op_jwt: Arc<str> = self.token(claim)?.into();
        let op_hash = Digest::of(op_jwt.as_bytes());
        let payload = payload.map(Arc::from);
        let record = SignedRecord { key, hlc: hlc.clone(), op_jwt, op_hash, payload };
        // What was signed must be taken, so it is read as everybody reads it. How large it may be is
        // for those who take it.
        let limits = RecordLimits { max_token_bytes: usize::MAX, max_payload_bytes: usize::MAX };
        match token::parse(&record, &limits) {
            Ok(_) => Ok(record),
            Err(reason) => Err(Error::InvalidObservationRecord { reason }),
        }
    }

    /// The token that makes a claim.
    fn token(&self, claim: JsonValue) -> Result<String> {
        let algorithm = Algorithm::of(&self.key.public_key());
        let mut header = Members::new();
        header.insert("alg".to_owned(), algorithm.name().into());
        header.insert("typ".to_owned(), "JWT".into());
        if let Some(key_id) = &self.key_id {
            header.insert("kid".to_owned(), JsonValue::Text(format!("#{key_id}")));
        }
        let payload = object([("claim", claim), ("iss", self.issuer().into())]);
        let part = |value| match canonical(&value) {
            Ok(text) => Ok(base64url::encode(text.as_bytes())),
            Err(reason) => Err(Error::invalid("meta", reason)),
        };
        let signed = format!("{}.{}", part(JsonValue::Object(header))?, part(payload)?);
        let signature = base64url::encode(&self.key.sign(signed.as_bytes()));
        Ok(format!("{signed}.{signature}"))
    }
}

fn object<const N: usize>(members: [(&str, JsonValue); N]) -> JsonValue {
    JsonValue::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

#[cfg(test)]
#[path = "signer_tests.rs"]
mod tests;
