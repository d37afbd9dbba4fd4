//! Identifiers that cannot hold a wrong value: capped, at least one byte, no control character.
//!
//! It knows how an identifier is written, not what it stands for. Two identifiers are equal when
//! their bytes are: nothing is normalised, so two Unicode spellings are two identifiers.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::{Error, Result};
use super::limits::{
    MAX_CONNECTOR_BYTES, MAX_NAME_BYTES, MAX_OPERATION_ID_BYTES, MAX_OWNER_BYTES,
    MAX_SOURCE_ID_BYTES, MAX_VALUE_DIGEST_BYTES,
};

fn check(field: &'static str, text: &str, max_bytes: usize) -> Result<()> {
    if text.is_empty() {
        return Err(Error::invalid(field, "expected at least one byte"));
    }
    if text.len() > max_bytes {
        return Err(Error::invalid(
            field,
            format!("expected at most {max_bytes} bytes, got {}", text.len()),
        ));
    }
    if text.chars().any(char::is_control) {
        return Err(Error::invalid(field, "expected no control character"));
    }
    Ok(())
}

fn check_did(field: &'static str, text: &str) -> Result<()> {
    let parts = text.strip_prefix("did:").and_then(|rest| rest.split_once(':'));
    let well_formed = parts.is_some_and(|(method, id)| {
        let method_ok = !method.is_empty()
            && method.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        method_ok && !id.is_empty()
    });
    if well_formed {
        Ok(())
    } else {
        Err(Error::invalid(field, "expected a DID such as did:key:z6Mk…"))
    }
}

// A macro, because the types differ in name, field and cap alone and must not drift apart.
macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $field:literal, $max:expr, $extra:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes `text` if it fits the identifier's limits.
            ///
            /// # Errors
            /// [`Error::InvalidInput`] that names the field and what was expected.
            pub fn new(text: impl AsRef<str>) -> Result<Self> {
                let text = text.as_ref();
                check($field, text, $max)?;
                let extra: fn(&'static str, &str) -> Result<()> = $extra;
                extra($field, text)?;
                Ok(Self(Arc::from(text)))
            }

            /// The identifier's text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The identifier's text, shared.
            #[must_use]
            pub fn shared(&self) -> Arc<str> {
                Arc::clone(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(text: String) -> Result<Self> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = Error;

            fn try_from(text: &str) -> Result<Self> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.0.as_ref().to_owned()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        // Equality, order and hash are those of the text, so maps can be asked with a text.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

fn nothing_more(_: &'static str, _: &str) -> Result<()> {
    Ok(())
}

identifier!(
    /// The person whose accounts are mirrored, named by a DID.
    OwnerDid, "owner", MAX_OWNER_BYTES, check_did
);
identifier!(
    /// A kind of source, by name, such as `caldav`.
    ConnectorName, "connector", MAX_CONNECTOR_BYTES, nothing_more
);
identifier!(
    /// The opaque name of a document in the host's graph.
    DocumentId, "document_id", MAX_NAME_BYTES, nothing_more
);
identifier!(
    /// A thing at the provider, named within owner and connector.
    SourceId, "source_id", MAX_SOURCE_ID_BYTES, nothing_more
);
identifier!(
    /// A document's type.
    ModelId, "model_id", MAX_NAME_BYTES, nothing_more
);
identifier!(
    /// A part of a connector's source that is enumerated on its own.
    PartitionId, "partition", MAX_NAME_BYTES, nothing_more
);
identifier!(
    /// The lineage under which a partition's receipt sequences are comparable.
    Provenance, "provenance", MAX_NAME_BYTES, nothing_more
);
identifier!(
    /// One intended write to a provider, unique over the store.
    OperationId, "operation_id", MAX_OPERATION_ID_BYTES, nothing_more
);
identifier!(
    /// The name under which a host, or a task in it, holds a lease.
    Holder, "holder", MAX_NAME_BYTES, nothing_more
);
identifier!(
    /// The digest of a value in the host's own form, compared for equality and never computed here.
    ValueDigest, "value_digest", MAX_VALUE_DIGEST_BYTES, nothing_more
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_held_to_the_byte() {
        assert!(SourceId::new("ä".repeat(512)).is_ok());
        let refused = SourceId::new("ä".repeat(513));
        assert!(matches!(refused, Err(Error::InvalidInput { field: "source_id", .. })));
        assert!(ConnectorName::new("c".repeat(128)).is_ok());
        assert!(ConnectorName::new("c".repeat(129)).is_err());
    }

    #[test]
    fn control_characters_and_empty_text_are_refused() {
        for bad in ["", "a\0b", "a\u{1f}b", "a\u{85}b", "line\n"] {
            assert!(DocumentId::new(bad).is_err(), "{bad:?}");
        }
        assert!(DocumentId::new("🎈 right-to-left \u{202e}").is_ok());
    }

    #[test]
    fn an_owner_is_a_did() {
        for bad in ["owner-1", "did:", "did:key", "did:key:", "did:Key:x", "DID:key:x"] {
            assert!(OwnerDid::new(bad).is_err(), "{bad}");
        }
        assert!(OwnerDid::new("did:web:example.org").is_ok());
    }

    #[test]
    fn two_spellings_of_one_letter_are_two_identifiers() {
        let composed = SourceId::new("\u{e4}");
        let decomposed = SourceId::new("a\u{308}");
        assert_ne!(composed.ok(), decomposed.ok());
    }
}
