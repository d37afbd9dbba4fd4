//! Strict base64url: no padding, no spare bits, no other alphabet, so bytes have one text.

use base64ct::{Base64UrlUnpadded, Encoding as _};

/// The bytes of a text, if it is the one text of them.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let bytes = Base64UrlUnpadded::decode_vec(text).ok()?;
    (encode(&bytes) == text).then_some(bytes)
}

/// The text of bytes.
pub(super) fn encode(bytes: &[u8]) -> String {
    Base64UrlUnpadded::encode_string(bytes)
}

#[cfg(test)]
#[path = "base64url_tests.rs"]
mod tests;
