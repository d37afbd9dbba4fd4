//! The comparison of an enumeration with the known documents, page by page.
//!
//! It runs where the pages are read, outside the actor; memory is bounded by what is known and
//! what stands, not by the enumeration. It knows no state.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::base::{DocumentId, Provenance, SourceId};

/// A document in the scope of a receipt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KnownDocument {
    /// The document.
    pub document_id: DocumentId,
    /// The entity that it mirrors.
    pub source_id: SourceId,
}

/// A candidate that stands while a receipt is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingCandidate {
    /// The lineage that it stands under.
    pub provenance: Provenance,
    /// The document and its entity.
    pub document: KnownDocument,
}

/// What an enumeration says of the known documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// How many documents are known.
    pub known: u64,
    /// Those that the enumeration lacks.
    pub missing: Vec<KnownDocument>,
    /// The standing candidates that it has.
    pub kept_again: Vec<(Provenance, DocumentId)>,
}

/// Compares an enumeration page by page.
#[derive(Debug)]
pub struct Comparer {
    known: Vec<KnownDocument>,
    standing: Vec<StandingCandidate>,
    seen: HashMap<SourceId, bool>,
}

impl Comparer {
    /// Begins with the known documents and all standing candidates of the partition.
    #[must_use]
    pub fn new(known: Vec<KnownDocument>, standing: Vec<StandingCandidate>) -> Self {
        let of_standing = standing.iter().map(|candidate| &candidate.document);
        let seen =
            known.iter().chain(of_standing).map(|entry| (entry.source_id.clone(), false)).collect();
        Self { known, standing, seen }
    }

    /// Takes a page.
    pub fn page(&mut self, ids: &[SourceId]) {
        for id in ids {
            if let Some(seen) = self.seen.get_mut(id) {
                *seen = true;
            }
        }
    }

    /// The result. A document that is known by several entities is missing only when all of them
    /// are. A standing candidate is kept again when its entity is there, and also when its
    /// document is there under another entity: nothing that is still there may be swept.
    #[must_use]
    pub fn finish(self) -> Comparison {
        let is_seen = |id: &SourceId| self.seen.get(id).copied().unwrap_or(false);
        let kept: HashSet<&DocumentId> = self
            .known
            .iter()
            .filter(|entry| is_seen(&entry.source_id))
            .map(|entry| &entry.document_id)
            .collect();
        let missing: BTreeMap<&DocumentId, &SourceId> = self
            .known
            .iter()
            .filter(|entry| !kept.contains(&entry.document_id))
            .map(|entry| (&entry.document_id, &entry.source_id))
            .collect();
        let kept_again = self
            .standing
            .iter()
            .filter(|standing| {
                let entry = &standing.document;
                is_seen(&entry.source_id) || kept.contains(&entry.document_id)
            })
            .map(|standing| (standing.provenance.clone(), standing.document.document_id.clone()))
            .collect();
        Comparison {
            known: (kept.len() + missing.len()) as u64,
            missing: missing
                .into_iter()
                .map(|(document_id, source_id)| KnownDocument {
                    document_id: document_id.clone(),
                    source_id: source_id.clone(),
                })
                .collect(),
            kept_again,
        }
    }
}
