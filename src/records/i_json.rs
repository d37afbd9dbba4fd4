//! I-JSON (RFC 7493) and its canonical form (RFC 8785).
//!
//! Two texts that are read to the same value say the same: a second member of one name, half a
//! surrogate pair and a number that would be rounded are refused, never repaired. It knows no token.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::decimal::Decimal;

/// Levels of nesting that are read: enough for any claim, and no danger to the stack of a thread.
const MAX_DEPTH: usize = 128;

const EARLY: &str = "expected JSON that does not end early";
const MALFORMED: &str = "expected well-formed JSON";
const LONE_SURROGATE: &str = "expected JSON without half a surrogate pair";

type Read<T> = Result<T, &'static str>;

/// The members of an object, by name.
pub(super) type Members = BTreeMap<String, JsonValue>;

/// A value that has one meaning for every reader. It is never nested deeper than is read.
#[derive(Clone, PartialEq)]
pub(super) enum JsonValue {
    Null,
    Bool(bool),
    /// Finite, and the value that was written.
    Number(f64),
    Text(String),
    Array(Vec<JsonValue>),
    Object(Members),
}

impl JsonValue {
    /// The one value of a text, or what was expected.
    pub(super) fn read(bytes: &[u8]) -> Read<Self> {
        let text = std::str::from_utf8(bytes).map_err(|_| "expected UTF-8")?;
        let mut reader = Reader { rest: text };
        let value = reader.value(MAX_DEPTH)?;
        if reader.rest.is_empty() { Ok(value) } else { Err("expected nothing after the JSON") }
    }

    /// The members of the one object of a text, or what was expected.
    pub(super) fn read_object(bytes: &[u8]) -> Read<Members> {
        match Self::read(bytes)? {
            Self::Object(members) => Ok(members),
            _ => Err("expected a JSON object"),
        }
    }

    /// The text, if it is one.
    pub(super) fn into_text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The members, if it is an object.
    pub(super) fn into_members(self) -> Option<Members> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }
}

impl From<&str> for JsonValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Serialize for JsonValue {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => to.serialize_unit(),
            Self::Bool(value) => to.serialize_bool(*value),
            Self::Number(value) => to.serialize_f64(*value),
            Self::Text(text) => to.serialize_str(text),
            Self::Array(items) => items.serialize(to),
            Self::Object(members) => members.serialize(to),
        }
    }
}

/// The RFC 8785 form of a value.
pub(super) fn canonical(value: &JsonValue) -> Read<String> {
    // It fails for infinite numbers and names that are no text, which no value of ours holds.
    serde_json_canonicalizer::to_string(value).map_err(|_| MALFORMED)
}

/// Whether a text may stand in I-JSON: code points that will never be characters may not.
pub(super) fn is_text(text: &str) -> bool {
    let is_noncharacter = |char: char| {
        let code = u32::from(char);
        (0xfdd0..=0xfdef).contains(&code) || code & 0xfffe == 0xfffe
    };
    !text.contains(is_noncharacter)
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    /// A value with the white space on both sides.
    fn value(&mut self, levels: usize) -> Read<JsonValue> {
        self.skip_space();
        let value = match self.rest.bytes().next().ok_or(EARLY)? {
            b'{' => self.object(levels)?,
            b'[' => self.array(levels)?,
            b'"' => JsonValue::Text(self.text()?),
            b'-' | b'0'..=b'9' => self.number()?,
            _ if self.takes("null") => JsonValue::Null,
            _ if self.takes("true") => JsonValue::Bool(true),
            _ if self.takes("false") => JsonValue::Bool(false),
            _ => return Err(MALFORMED),
        };
        self.skip_space();
        Ok(value)
    }

    fn object(&mut self, levels: usize) -> Read<JsonValue> {
        let levels = self.enter("{", levels)?;
        let mut members = Members::new();
        if self.takes("}") {
            return Ok(JsonValue::Object(members));
        }
        loop {
            self.skip_space();
            let name = self.text()?;
            self.skip_space();
            self.expect(":")?;
            let value = self.value(levels)?;
            if members.insert(name, value).is_some() {
                return Err("expected JSON without a second member of one name");
            }
            if self.takes("}") {
                return Ok(JsonValue::Object(members));
            }
            self.expect(",")?;
        }
    }

    fn array(&mut self, levels: usize) -> Read<JsonValue> {
        let levels = self.enter("[", levels)?;
        let mut items = Vec::new();
        if self.takes("]") {
            return Ok(JsonValue::Array(items));
        }
        loop {
            items.push(self.value(levels)?);
            if self.takes("]") {
                return Ok(JsonValue::Array(items));
            }
            self.expect(",")?;
        }
    }

    /// The levels that are left within.
    fn enter(&mut self, opening: &str, levels: usize) -> Read<usize> {
        self.expect(opening)?;
        self.skip_space();
        levels.checked_sub(1).ok_or("expected JSON nested at most 128 deep")
    }

    fn text(&mut self) -> Read<String> {
        self.expect("\"")?;
        let mut text = String::new();
        loop {
            let is_special = |char| matches!(char, '"' | '\\' | '\0'..='\u{1f}');
            let plain = self.rest.find(is_special).ok_or(EARLY)?;
            text.push_str(self.take(plain)?);
            match self.next()? {
                '"' if is_text(&text) => return Ok(text),
                '"' => return Err("expected JSON without code points that are no characters"),
                '\\' => text.push(self.escaped()?),
                _ => return Err("expected JSON whose control characters are escaped"),
            }
        }
    }

    fn escaped(&mut self) -> Read<char> {
        match self.next()? {
            char @ ('"' | '\\' | '/') => Ok(char),
            'b' => Ok('\u{8}'),
            'f' => Ok('\u{c}'),
            'n' => Ok('\n'),
            'r' => Ok('\r'),
            't' => Ok('\t'),
            'u' => self.code_point(),
            _ => Err(MALFORMED),
        }
    }

    fn code_point(&mut self) -> Read<char> {
        let unit = self.utf_16_unit()?;
        if let Some(char) = char::from_u32(u32::from(unit)) {
            return Ok(char);
        }
        if !self.takes("\\u") {
            return Err(LONE_SURROGATE);
        }
        let pair = [unit, self.utf_16_unit()?];
        char::decode_utf16(pair).next().and_then(Result::ok).ok_or(LONE_SURROGATE)
    }

    fn utf_16_unit(&mut self) -> Read<u16> {
        let digits = self.take(4)?;
        // Checked by hand, because the number parser takes a sign.
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(MALFORMED);
        }
        u16::from_str_radix(digits, 16).map_err(|_| MALFORMED)
    }

    fn number(&mut self) -> Read<JsonValue> {
        let is_part = |char| matches!(char, '0'..='9' | '+' | '-' | '.' | 'e' | 'E');
        let end = self.rest.find(|char| !is_part(char)).unwrap_or(self.rest.len());
        let written = self.take(end)?;
        let decimal = Decimal::parse(written).ok_or(MALFORMED)?;
        let value: f64 = written.parse().map_err(|_| MALFORMED)?;
        let number = JsonValue::Number(value);
        // Two numbers that are written with different values must not come to one text.
        if value.is_finite() && Decimal::parse(&canonical(&number)?) == Some(decimal) {
            Ok(number)
        } else {
            Err("expected JSON without numbers that a 64-bit float rounds")
        }
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    fn takes(&mut self, prefix: &str) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, prefix: &str) -> Read<()> {
        if self.takes(prefix) { Ok(()) } else { Err(MALFORMED) }
    }

    fn take(&mut self, bytes: usize) -> Read<&'a str> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(MALFORMED)?;
        self.rest = rest;
        Ok(taken)
    }

    fn next(&mut self) -> Read<char> {
        let mut chars = self.rest.chars();
        let char = chars.next().ok_or(EARLY)?;
        self.rest = chars.as_str();
        Ok(char)
    }
}

#[cfg(test)]
#[path = "i_json_tests.rs"]
mod tests;
