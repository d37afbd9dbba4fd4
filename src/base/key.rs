//! Stream keys: what an actor is the owner of, and the name of its stream in the journal.
//!
//! It knows how keys are named and ordered, not what their streams hold.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ids::{ConnectorName, DocumentId, OwnerDid};
use super::json::Digest;

/// The name of a stream in the journal.
pub type StreamName = Arc<str>;

/// Joins owner and connector in a stream's name. No identifier can hold it.
const UNIT_SEPARATOR: char = '\u{1f}';

/// The kinds of streams. The numbers are stored and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StreamKind {
    /// An owner's connector: sync state, lease, sweeps.
    Connector,
    /// A document: its trim, its begun sweep.
    Document,
    /// One pending authorization.
    Auth,
}

impl StreamKind {
    /// The stored number.
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::Document => 1,
            Self::Connector => 2,
            Self::Auth => 3,
        }
    }

    /// The kind of a stored number.
    #[must_use]
    pub const fn from_number(number: i64) -> Option<Self> {
        match number {
            1 => Some(Self::Document),
            2 => Some(Self::Connector),
            3 => Some(Self::Auth),
            _ => None,
        }
    }
}

/// What one actor owns and one stream records.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StreamKey {
    /// An owner's connector.
    Connector(OwnerDid, ConnectorName),
    /// A document.
    Document(DocumentId),
    /// A pending authorization, by the SHA-256 of its secret state.
    Auth(Digest),
}

impl StreamKey {
    /// The kind of this key's stream.
    #[must_use]
    pub const fn kind(&self) -> StreamKind {
        match self {
            Self::Connector(..) => StreamKind::Connector,
            Self::Document(_) => StreamKind::Document,
            Self::Auth(_) => StreamKind::Auth,
        }
    }

    /// The name of this key's stream.
    #[must_use]
    pub fn stream_name(&self) -> StreamName {
        match self {
            Self::Document(document) => format!("document:{document}").into(),
            Self::Connector(owner, connector) => {
                format!("connector:{owner}{UNIT_SEPARATOR}{connector}").into()
            }
            Self::Auth(state) => format!("auth:{}", state.to_hex()).into(),
        }
    }

    /// The key that a stream's name stands for, if it is one that [`Self::stream_name`] gives.
    #[must_use]
    pub fn from_stream_name(name: &str) -> Option<Self> {
        let (kind, rest) = name.split_once(':')?;
        match kind {
            "document" => DocumentId::new(rest).ok().map(Self::Document),
            "connector" => {
                let (owner, connector) = rest.split_once(UNIT_SEPARATOR)?;
                Some(Self::Connector(
                    OwnerDid::new(owner).ok()?,
                    ConnectorName::new(connector).ok()?,
                ))
            }
            "auth" => Digest::from_hex(rest).map(Self::Auth),
            _ => None,
        }
    }
}

impl fmt::Display for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Document(document) => write!(f, "document {document}"),
            Self::Connector(owner, connector) => write!(f, "connector {connector} of {owner}"),
            Self::Auth(_) => f.write_str("pending authorization"),
        }
    }
}

impl fmt::Debug for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_name_leads_back_to_its_key() -> super::super::error::Result<()> {
        let keys = [
            StreamKey::Document(DocumentId::new("a:b c")?),
            StreamKey::Connector(OwnerDid::new("did:web:a:b")?, ConnectorName::new("cal:dav")?),
            StreamKey::Auth(Digest::of(b"state")),
        ];
        for key in keys {
            assert_eq!(StreamKey::from_stream_name(&key.stream_name()), Some(key));
        }
        for bad in ["", "document:", "other:x", "connector:did:a:b", "auth:00", "document"] {
            assert_eq!(StreamKey::from_stream_name(bad), None, "{bad}");
        }
        Ok(())
    }
}
