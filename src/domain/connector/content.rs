//! Lists of source ids as their rows hold them, and what is computed from the pages of a receipt.
//!
//! Pure helpers of whoever reads the page rows. It knows no state.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::base::{Digest, Error, Result, SourceId};
use crate::domain::{ContentRef, Value};

/// A JSON list of source ids, as text. A receipt's may be far larger than other JSON values, so it
/// is written and read without a tree of values in between.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceIdList(Arc<str>);

impl SourceIdList {
    /// The list of these ids, in their order.
    #[must_use]
    pub fn of<'a>(ids: impl IntoIterator<Item = &'a SourceId>) -> Self {
        let mut text = String::from("[");
        for id in ids {
            if text.len() > 1 {
                text.push(',');
            }
            push_json_string(&mut text, id.as_str());
        }
        text.push(']');
        Self(text.into())
    }

    /// The ids of a stored list.
    ///
    /// # Errors
    /// Damage, when the text is no list of source ids.
    pub fn ids(text: &str) -> Result<Vec<SourceId>> {
        serde_json::from_str(text).map_err(|_| Error::damaged("a page that lists no source ids"))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What the journal holds of it.
    #[must_use]
    pub fn content(&self) -> ContentRef {
        ContentRef::of(&self.0)
    }

    /// The value of its column.
    #[must_use]
    pub fn to_value(&self) -> Value {
        Value::Text(Arc::clone(&self.0))
    }
}

impl std::fmt::Debug for SourceIdList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SourceIdList({} bytes)", self.0.len())
    }
}

/// An identifier holds no control character, so two characters alone need an escape.
fn push_json_string(text: &mut String, id: &str) {
    text.push('"');
    for character in id.chars() {
        if matches!(character, '"' | '\\') {
            text.push('\\');
        }
        text.push(character);
    }
    text.push('"');
}

/// One digest over the digests of all pages, in their order.
#[must_use]
pub fn pages_digest(pages: &[Digest]) -> Digest {
    let parts: Vec<&[u8]> = pages.iter().map(|page| page.as_bytes().as_slice()).collect();
    Digest::of_parts(&parts)
}

/// How many distinct ids the pages hold, and the list of them in the order of their bytes.
#[must_use]
pub fn keep_content(pages: &[Vec<SourceId>]) -> (u64, SourceIdList) {
    let mut ids: Vec<&SourceId> = pages.iter().flatten().collect();
    ids.sort_unstable();
    ids.dedup();
    (ids.len() as u64, SourceIdList::of(ids))
}
