//! The hybrid logical clock stamp, as text. It knows how a stamp is written, not what it stamps.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::Error;

/// A hybrid logical clock stamp.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hlc(String);

impl Hlc {
    /// The stamp of a text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Hlc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Hlc {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        Self::parse(&text).ok_or_else(|| Error::invalid("hlc", "expected a stamp"))
    }
}

impl From<Hlc> for String {
    fn from(value: Hlc) -> Self {
        value.0
    }
}
