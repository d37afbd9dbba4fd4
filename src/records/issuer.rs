//! Who signs: the DID of an issuer, and the id of the one key of it.
//!
//! It knows how both are written, and resolves nothing.

use std::sync::Arc;

use super::did::DidKey;
use super::keys::PublicKey;
use crate::base::limits::MAX_OWNER_BYTES;

/// Longest key id: keeps a signer key short, and every fragment in use is far shorter.
const MAX_KEY_ID_BYTES: usize = 128;

/// What an issuer must be, for errors.
pub(super) const EXPECTED_DID: &str = "expected a canonical DID";
/// What a key id must be, for errors.
pub(super) const EXPECTED_KEY_ID: &str =
    "expected a key id of 1 to 128 of A-Z a-z 0-9 . _ ~ : = + -, alone, after # or after DID and #";

/// A canonical DID, with the key where the DID is one.
#[derive(Clone, Debug)]
pub(crate) struct Issuer {
    did: Arc<str>,
    built_in_key: Option<PublicKey>,
}

impl Issuer {
    /// The issuer of a DID, if the text is canonical.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.starts_with("did:key:") {
            return DidKey::parse(text).ok().map(|did| Self::from_key(&did));
        }
        is_did(text).then(|| Self { did: Arc::from(text), built_in_key: None })
    }

    /// The issuer that is a key.
    pub(super) fn from_key(did: &DidKey) -> Self {
        Self { did: Arc::from(did.as_str()), built_in_key: Some(did.key().clone()) }
    }

    /// The DID.
    pub(crate) const fn did(&self) -> &Arc<str> {
        &self.did
    }

    /// The key that the issuer is, if it is one.
    pub(crate) const fn built_in_key(&self) -> Option<&PublicKey> {
        self.built_in_key.as_ref()
    }

    /// The key id of a header's `kid`: its fragment, whether it is written alone, after `#` or after
    /// this DID and `#`.
    pub(super) fn key_id<'a>(&self, kid: &'a str) -> Option<&'a str> {
        let fragment = match kid.split_once('#') {
            Some((did, fragment)) if did.is_empty() || did == &*self.did => fragment,
            Some(_) => return None,
            None => kid,
        };
        let is_taken = |b: u8| b.is_ascii_alphanumeric() || b"._~:=+-".contains(&b);
        let is_short = (1..=MAX_KEY_ID_BYTES).contains(&fragment.len());
        (is_short && fragment.bytes().all(is_taken)).then_some(fragment)
    }

    /// The key that signs, by name: the DID where it is a key, else DID and key id. None where no key
    /// is named.
    pub(super) fn signer_key(&self, key_id: Option<&str>) -> Option<Arc<str>> {
        match (&self.built_in_key, key_id) {
            (Some(_), _) => Some(Arc::clone(&self.did)),
            (None, Some(id)) => Some(format!("{}#{id}", self.did).into()),
            (None, None) => None,
        }
    }
}

/// The grammar of a DID, where each has one spelling: a percent sign stands before two upper-case hex
/// digits of a byte that could not stand as itself.
pub(super) fn is_did(text: &str) -> bool {
    let Some((method, id)) = text.strip_prefix("did:").and_then(|rest| rest.split_once(':')) else {
        return false;
    };
    let is_method = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.len() <= MAX_OWNER_BYTES
        && !method.is_empty()
        && method.bytes().all(is_method)
        && !id.is_empty()
        && !id.ends_with(':')
        && is_method_specific_id(id)
}

fn is_method_specific_id(id: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b".-_".contains(&b);
    let mut parts = id.split('%');
    let is_plain_text = |text: &str| text.bytes().all(|b| is_plain(b) || b == b':');
    parts.next().is_some_and(is_plain_text)
        && parts.all(|part| {
            part.split_at_checked(2).is_some_and(|(hex, text)| {
                let is_digit = |b: u8| matches!(b, b'0'..=b'9' | b'A'..=b'F');
                let byte = u8::from_str_radix(hex, 16);
                hex.bytes().all(is_digit) && byte.is_ok_and(|b| !is_plain(b)) && is_plain_text(text)
            })
        })
}

#[cfg(test)]
#[path = "issuer_tests.rs"]
mod tests;
