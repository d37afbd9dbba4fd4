//! Decisions of observation records: they only grow between two sweeps, in the journal and in what
//! readers are told, on both sites; a prune leaves one standing, and nobody decides for another.

use std::collections::{BTreeMap, BTreeSet};

use connector_store::domain::document::{
    DocumentEvent, ObservationCopiesDropped, ObservationCopyPut,
};
use connector_store::{Digest, DocumentId, Event, Hlc, OwnerDid, StreamKey};

use super::Written;
use crate::engine::work::observations::{DRIFT_MILLIS, Site};
use crate::engine::world::World;

const GROWS: &str = "a decision never goes back";
const PRUNED: &str = "a prune never loses the decision";
const SIGNED: &str = "only what an owner's device has signed decides";
const DRIFT: &str = "no stamp is far in the future";

/// What a claim says, as far as it decides: its version, then its digest.
pub type Said = (Hlc, Digest);
type Record = (DocumentId, OwnerDid);

#[derive(Debug)]
struct Standing {
    said: Said,
    copies: BTreeSet<Digest>,
}

/// What a read that begins now must show at least.
#[derive(Clone, Debug)]
pub struct Floor {
    sweeps: u64,
    pub said: Option<Said>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Decisions {
    /// By what is written, on the audited site.
    standing: BTreeMap<Record, Standing>,
    /// How often each document was swept there.
    sweeps: BTreeMap<DocumentId, u64>,
    signed: BTreeSet<(Record, Said)>,
    told: BTreeMap<(Site, Record), Said>,
}

impl Decisions {
    /// A device of the owner's has signed this.
    pub fn signed(&mut self, document: &DocumentId, owner: &OwnerDid, said: Said) {
        self.signed.insert(((document.clone(), owner.clone()), said));
    }

    pub fn floor(&self, site: Site, document: &DocumentId, owner: &OwnerDid) -> Floor {
        let record = (site, (document.clone(), owner.clone()));
        Floor { sweeps: self.sweeps(site, document), said: self.told.get(&record).cloned() }
    }

    /// The document was swept since then: what was told before counts no more.
    pub fn is_swept(&self, site: Site, document: &DocumentId, floor: &Floor) -> bool {
        self.sweeps(site, document) != floor.sweeps
    }

    fn sweeps(&self, site: Site, document: &DocumentId) -> u64 {
        let swept = self.sweeps.get(document).filter(|_| site == Site::Home);
        swept.copied().unwrap_or(0)
    }

    /// A call that began with this floor was told that the decision is this one, or greater.
    pub fn told(
        &mut self,
        world: &World,
        (site, document, owner): (Site, &DocumentId, &OwnerDid),
        said: Option<Said>,
        floor: &Floor,
    ) {
        let record = (document.clone(), owner.clone());
        if let Some(said) = &said {
            let is_signed = self.signed.contains(&(record.clone(), said.clone()));
            world.hold(SIGNED, is_signed, || format!("{document} of {owner}: {said:?}"));
        }
        if self.is_swept(site, document, floor) {
            return;
        }
        world.hold(GROWS, said >= floor.said, || {
            format!("{document} of {owner} on {site:?}: {said:?} after {:?}", floor.said)
        });
        let Some(said) = said else { return };
        let told = self.told.entry((site, record)).or_insert_with(|| said.clone());
        *told = said.max(told.clone());
    }

    pub(super) fn judge(&mut self, world: &World, written: &Written) {
        let (StreamKey::Document(document), Event::Document(event)) =
            (&written.key, &written.event)
        else {
            return;
        };
        match event {
            DocumentEvent::ObservationCopyPut(put) => {
                let ahead = put.copy.version.wall_ms() - written.at.as_millis();
                world.hold(DRIFT, ahead <= DRIFT_MILLIS, || {
                    format!("{document} has a copy that is {ahead} ms ahead")
                });
                self.put(world, document, put);
            }
            DocumentEvent::ObservationCopiesDropped(event) => self.drop(world, document, event),
            DocumentEvent::Swept => {
                *self.sweeps.entry(document.clone()).or_default() += 1;
                self.standing.retain(|(of, _), _| of != document);
                self.told.retain(|(site, (of, _)), _| *site != Site::Home || of != document);
            }
            _ => {}
        }
    }

    fn put(&mut self, world: &World, document: &DocumentId, put: &ObservationCopyPut) {
        let (owner, copy) = (&put.owner, &put.copy);
        let said = (copy.version.clone(), copy.claim_digest);
        let record = (document.clone(), owner.clone());
        let is_of_owner = world.observations.may_sign(owner, &copy.issuer)
            && self.signed.contains(&(record.clone(), said.clone()));
        world.hold(SIGNED, is_of_owner, || {
            format!("{document} of {owner} has a copy of {}", copy.issuer)
        });
        let mut copies = BTreeSet::from([copy.op_hash]);
        if let Some(before) = self.standing.get(&record) {
            world.hold(GROWS, said >= before.said, || {
                format!("{document} of {owner}: {said:?} is written over {:?}", before.said)
            });
            let left = before.copies.iter().filter(|copy| !put.dropped.contains(copy));
            copies.extend(left);
            world.hold(GROWS, said == before.said || copies.len() == 1, || {
                format!("{document} of {owner} keeps copies of {:?}", before.said)
            });
        }
        self.standing.insert(record, Standing { said, copies });
    }

    fn drop(&mut self, world: &World, document: &DocumentId, event: &ObservationCopiesDropped) {
        let record = (document.clone(), event.owner.clone());
        let Some(standing) = self.standing.get_mut(&record) else {
            return world.violate(PRUNED, format!("{document} has nothing to prune"));
        };
        standing.copies.retain(|copy| !event.dropped.contains(copy));
        world.hold(PRUNED, !standing.copies.is_empty(), || {
            format!("{document} of {} has no copy left", event.owner)
        });
    }
}
