//! The content of observation copies while a document is in memory: tokens with what their
//! verification came to, and the payload that the copies of one claim share.
//!
//! It verifies nothing. A verdict is a memo of a function of the token, the keys and the signer
//! policy of one epoch, so it is no part of the state: whoever verifies the token notes it here.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// A token, and whether it was found valid.
#[derive(Serialize, Deserialize)]
#[serde(from = "Arc<str>", into = "Arc<str>")]
pub struct Token {
    text: Arc<str>,
    /// The newest verdict, with its epoch.
    verdict: Mutex<Option<(u64, bool)>>,
}

impl Token {
    /// A token of which nothing is known.
    #[must_use]
    pub const fn new(text: Arc<str>) -> Self {
        Self { text, verdict: Mutex::new(None) }
    }

    /// The token's text.
    #[must_use]
    pub const fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Whether it is valid under the keys and signers of an epoch; none when that is not known.
    #[must_use]
    pub fn verdict(&self, epoch: u64) -> Option<bool> {
        self.noted().filter(|(of, _)| *of == epoch).map(|(_, is_valid)| is_valid)
    }

    /// Notes what its verification under an epoch came to.
    pub fn note(&self, epoch: u64, is_valid: bool) {
        *self.verdict.lock().unwrap_or_else(PoisonError::into_inner) = Some((epoch, is_valid));
    }

    fn noted(&self) -> Option<(u64, bool)> {
        *self.verdict.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        Self { text: Arc::clone(&self.text), verdict: Mutex::new(self.noted()) }
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
        // Epochs are the host's: each of them is another one.
        for bit in 1..64 {
            assert_eq!(token.verdict(1 | 1 << bit), None, "{bit}");
        }
    }

    #[test]
    fn a_token_is_not_shown() {
        assert_eq!(format!("{:?}", Token::new("secret".into())), "Token(6 bytes)");
    }
}
