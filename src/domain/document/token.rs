//! The content of observation copies while a document is in memory: tokens with what their
//! verification came to, and the payload that the copies of one claim share.
//!
//! It verifies nothing. A verdict is a memo of a function of the token, the keys and the signer
//! policy of one epoch, so it is no part of the state: whoever verifies the token notes it here.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// A token, and whether it was found valid.
#[derive(Serialize, Deserialize)]
#[serde(from = "Arc<str>", into = "Arc<str>")]
pub struct Token {
    text: Arc<str>,
    /// 0: not known. Else the epoch, then a bit that is set, then whether it is valid.
    verdict: AtomicU64,
}

const KNOWN: u64 = 0b10;

impl Token {
    /// A token of which nothing is known.
    #[must_use]
    pub const fn new(text: Arc<str>) -> Self {
        Self { text, verdict: AtomicU64::new(0) }
    }

    /// The token's text.
    #[must_use]
    pub const fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Whether it is valid under the keys and signers of an epoch; none when that is not known.
    #[must_use]
    pub fn verdict(&self, epoch: u64) -> Option<bool> {
        let noted = self.verdict.load(Ordering::Acquire);
        (noted & !1 == packed(epoch)).then_some(noted & 1 == 1)
    }

    /// Notes what its verification under an epoch came to.
    pub fn note(&self, epoch: u64, is_valid: bool) {
        self.verdict.store(packed(epoch) | u64::from(is_valid), Ordering::Release);
    }
}

const fn packed(epoch: u64) -> u64 {
    epoch << 2 | KNOWN
}

impl From<Arc<str>> for Token {
    fn from(text: Arc<str>) -> Self {
        Self::new(text)
    }
}

impl From<Token> for Arc<str> {
    fn from(token: Token) -> Self {
        token.text
    }
}

impl Clone for Token {
    fn clone(&self) -> Self {
        let verdict = AtomicU64::new(self.verdict.load(Ordering::Acquire));
        Self { text: Arc::clone(&self.text), verdict }
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Token {}

/// A token is content: it is not shown.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({} bytes)", self.text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_holds_for_its_epoch_alone() {
        let token = Token::new("t".into());
        assert_eq!(token.verdict(0), None);
        token.note(0, true);
        assert_eq!((token.verdict(0), token.verdict(1)), (Some(true), None));
        token.note(1, false);
        assert_eq!((token.verdict(0), token.verdict(1)), (None, Some(false)));
    }
}
