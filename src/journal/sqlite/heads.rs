//! What the writer knows without asking: heads of streams and tokens of leases.
//!
//! The file belongs to this store alone, so an entry is the truth until the writer changes it.
//! After a failure the writer forgets everything.

use std::collections::HashMap;
use std::hash::Hash;

use crate::base::StreamName;
use crate::domain::{RowKey, Value};
use crate::journal::Head;

/// Heads kept: about 200 bytes each with their names.
const MAX_CACHED_HEADS: usize = 65_536;
/// Lease tokens kept.
const MAX_CACHED_LEASES: usize = 4_096;

/// A bounded map that forgets what was not used lately: entries live in two generations, and when
/// the young one is full the old one goes.
#[derive(Debug)]
struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    max_young: usize,
}

impl<K: Hash + Eq + Clone, V: Clone> Recent<K, V> {
    fn new(max: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), max_young: max / 2 }
    }

    fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.insert(key, value.clone());
        Some(value)
    }

    fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.max_young && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, value);
    }

    fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }

    fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

/// A stream's id and head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownHead {
    /// The id in `connector_stream`.
    pub(super) stream: i64,
    /// The head.
    pub(super) head: Head,
}

/// Heads and lease tokens.
#[derive(Debug)]
pub(super) struct Known {
    heads: Recent<StreamName, KnownHead>,
    leases: Recent<RowKey, Option<Value>>,
}

impl Known {
    pub(super) fn new() -> Self {
        Self { heads: Recent::new(MAX_CACHED_HEADS), leases: Recent::new(MAX_CACHED_LEASES) }
    }

    pub(super) fn head(&mut self, stream: &StreamName) -> Option<KnownHead> {
        self.heads.get(stream)
    }

    pub(super) fn set_head(&mut self, stream: StreamName, head: KnownHead) {
        self.heads.insert(stream, head);
    }

    pub(super) fn forget_head(&mut self, stream: &StreamName) {
        self.heads.remove(stream);
    }

    /// The token of a lease; `Some(None)` when the lease is known not to be there.
    pub(super) fn lease(&mut self, key: &RowKey) -> Option<Option<Value>> {
        self.leases.get(key)
    }

    pub(super) fn set_lease(&mut self, key: RowKey, token: Option<Value>) {
        self.leases.insert(key, token);
    }

    pub(super) fn clear(&mut self) {
        self.heads.clear();
        self.leases.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_lately_stays_and_the_map_is_bounded() {
        let mut recent = Recent::new(8);
        for key in 0..100 {
            recent.insert(key, key);
            assert_eq!(recent.get(&0), Some(0), "{key}");
            assert!(recent.young.len() + recent.old.len() <= 8);
        }
        assert_eq!(recent.get(&50), None);
        recent.insert(0, 7);
        assert_eq!(recent.get(&0), Some(7));
        recent.remove(&0);
        assert_eq!(recent.get(&0), None);
    }
}
