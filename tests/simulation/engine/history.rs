//! What happened, line by line, in an order and with times that are the same for the same seed.

use std::fmt::{self, Write as _};
use std::time::Duration;

use connector_store::Digest;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: &'static str,
    /// How it was broken.
    pub how: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken: {}: {}", self.rule, self.how)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct History {
    text: String,
}

impl History {
    /// `who` did or met `what`, so long after the start.
    pub fn note(&mut self, at: Duration, who: &str, what: fmt::Arguments<'_>) {
        let (seconds, millis) = (at.as_secs(), at.subsec_millis());
        writeln!(self.text, "{seconds:>7}.{millis:03} {who:<8} {what}").unwrap();
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn digest(&self) -> Digest {
        Digest::of(self.text.as_bytes())
    }
}
