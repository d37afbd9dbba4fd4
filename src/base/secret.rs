//! Text that must not be shown.
//!
//! It knows no use of it; what may be stored of a secret is the domain's matter.

use std::fmt;

use zeroize::Zeroize as _;

/// A text that `Debug` does not show, that serde cannot write, and whose memory is overwritten when
/// it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the text over.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text. What is done with it from here on is the caller's care.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::new("hidden");
        assert_eq!(format!("{secret:?} {secret:#?}"), "Secret(…) Secret(…)");
        assert_eq!(secret.expose(), "hidden");
    }
}
