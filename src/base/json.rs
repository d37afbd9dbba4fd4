//! JSON kept as the text that was given, and SHA-256 digests.
//!
//! The text is never parsed into numbers and written again, so a value above 2^53 or of any number
//! of digits comes back as it went in.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::error::{Error, Result};

/// Levels of nesting that any reader takes.
const MAX_JSON_DEPTH: usize = 128;

/// A well-formed JSON value, as text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Json(Arc<str>);

impl Json {
    /// Takes `text` if it is one JSON value that any reader can read: numbers in the range of a
    /// 64-bit float, no lone surrogate, nested at most 128 deep.
    ///
    /// The size is capped where the value enters a command, by the store's `max_json_bytes`.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] that names `field`.
    pub fn parse(field: &'static str, text: &str) -> Result<Self> {
        match serde_json::from_str::<serde_json::Value>(text) {
            Ok(_) => Ok(Self(Arc::from(text))),
            Err(error) => Err(Error::invalid(field, format!("expected JSON: {}", place(&error)))),
        }
    }

    /// The text of `value`.
    ///
    /// # Errors
    /// As [`Self::parse`]: a value that was built in memory may be nested deeper than any reader goes.
    pub fn from_value(field: &'static str, value: &serde_json::Value) -> Result<Self> {
        // Writing the text recurses, so the depth is bounded before.
        if is_nested_deeper(value, MAX_JSON_DEPTH) {
            return Err(Error::invalid(field, "expected JSON that is not nested as deep"));
        }
        Self::parse(field, &value.to_string())
    }

    /// The text, as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, shared.
    #[must_use]
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }

    /// The value. A number beyond the range of `i64`, `u64` and `f64` loses digits here, and only
    /// here.
    #[must_use]
    pub fn to_value(&self) -> serde_json::Value {
        serde_json::from_str(&self.0).unwrap_or(serde_json::Value::Null)
    }
}

/// Level by level, without recursion.
fn is_nested_deeper(value: &serde_json::Value, levels: usize) -> bool {
    let mut level = vec![value];
    for _ in 0..levels {
        let mut next: Vec<&serde_json::Value> = Vec::new();
        for value in level {
            match value {
                serde_json::Value::Array(items) => next.extend(items),
                serde_json::Value::Object(members) => next.extend(members.values()),
                _ => {}
            }
        }
        if next.is_empty() {
            return false;
        }
        level = next;
    }
    true
}

/// What is wrong and where, without the text itself: it may be somebody's data.
fn place(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        serde_json::error::Category::Eof => "it ends early",
        _ => "it is malformed, out of range or nested too deep",
    };
    format!("{what} at line {} column {}", error.line(), error.column())
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

impl TryFrom<String> for Json {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::parse("json", &text)
    }
}

impl From<Json> for String {
    fn from(value: Json) -> Self {
        value.0.as_ref().to_owned()
    }
}

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::of_parts(&[bytes])
    }

    /// The digest of the parts, one after the other.
    #[must_use]
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// A digest that was computed before.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest of 64 lower-case hex digits.
    #[must_use]
    pub fn from_hex(hex: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if hex.len() != 64 || !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(hex.get(2 * index..2 * index + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// Lower-case hex.
    #[must_use]
    pub fn to_hex(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = String::with_capacity(64);
        for byte in self.0 {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        text
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_they_were_written() {
        for text in [
            "9007199254740993",
            "-0.0",
            "123456789012345678901234567890",
            "18446744073709551615",
            "[1.10]",
        ] {
            let json = Json::parse("checkpoint", text).map(|json| json.as_str().to_owned());
            assert_eq!(json.ok().as_deref(), Some(text));
        }
    }

    #[test]
    fn what_a_reader_could_not_read_is_refused() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        for bad in ["", "NaN", "Infinity", "1e400", "{\"a\":}", "1 2", "\"\\ud800\"", deep.as_str()]
        {
            assert!(Json::parse("checkpoint", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_value_that_could_not_be_read_back_is_refused() {
        let nested = |levels: usize| {
            let wrap = |inner, _| serde_json::Value::Array(vec![inner]);
            (0..levels).fold(serde_json::Value::Null, wrap)
        };
        for (levels, is_taken) in [(0, true), (127, true), (128, false), (200, false)] {
            let json = Json::from_value("checkpoint", &nested(levels));
            assert_eq!(json.is_ok(), is_taken, "{levels}");
        }
        // One that would overflow the stack when written; dropping it would too.
        let endless = std::mem::ManuallyDrop::new(nested(100_000));
        assert!(Json::from_value("checkpoint", &endless).is_err());
    }

    #[test]
    fn the_digest_is_sha_256() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_hex(), empty);
        assert_eq!(Digest::of_parts(&[b"a", b"bc"]), Digest::of(b"abc"));
    }
}
