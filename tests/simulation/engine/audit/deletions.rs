//! No source entity that exists is ever swept.
//!
//! A host asks the provider right before it deletes a document, so the entity does not exist at that
//! moment. One of the same name may come into being between that and the sweep of the rows: it is
//! another one, which the next sync finds. No store can promise more.

use std::collections::BTreeMap;

use connector_store::domain::document::DocumentEvent;
use connector_store::{Event, FencingToken, PartitionId, SourceId, StreamKey};

use super::Written;
use crate::engine::graph::Entity;
use crate::engine::world::World;

const RULE: &str = "no source entity that exists is ever swept";

/// See the module.
#[derive(Debug, Default)]
pub struct Deletions {
    /// Counts births and deletions, so that of two it is known which came first.
    moments: u64,
    /// When the entity of each name came into being for the last time.
    born: BTreeMap<(usize, PartitionId, SourceId), u64>,
    /// Documents that a host has deleted and whose rows are still there: when, and under which lease.
    deleted: BTreeMap<Entity, (u64, FencingToken)>,
    /// Documents that were swept.
    pub swept: u64,
}

impl Deletions {
    fn moment(&mut self) -> u64 {
        self.moments += 1;
        self.moments
    }

    /// An entity came into being at the provider.
    pub fn born(&mut self, account: usize, partition: &PartitionId, source_id: &SourceId) {
        let moment = self.moment();
        self.born.insert((account, partition.clone(), source_id.clone()), moment);
    }

    /// A host deletes the document of an entity.
    pub fn deleted(&mut self, world: &World, entity: &Entity, token: FencingToken) {
        world.hold(RULE, !exists(world, entity), || format!("{entity:?} is deleted by a host"));
        let moment = self.moment();
        self.deleted.insert(entity.clone(), (moment, token));
    }

    /// A host shows the document again.
    pub fn shown(&mut self, entity: &Entity) {
        self.deleted.remove(entity);
    }

    pub(super) fn judge(
        &mut self,
        world: &World,
        written: &Written,
        holder: impl Fn(usize) -> Option<FencingToken>,
    ) {
        let StreamKey::Document(document) = &written.key else { return };
        let (Some(entity), Event::Document(DocumentEvent::Swept)) =
            (Entity::of(document), &written.event)
        else {
            return;
        };
        self.swept += 1;
        let Some((moment, token)) = self.deleted.remove(&entity) else {
            return world.violate(RULE, format!("{document} is swept, and no host has deleted it"));
        };
        let name = (entity.account, entity.partition.clone(), entity.source_id.clone());
        let is_another = self.born.get(&name).is_some_and(|born| *born > moment);
        world.hold(RULE, is_another || !exists(world, &entity), || format!("{document} is swept"));
        world.hold("no write under a lost lease", holder(entity.account) == Some(token), || {
            format!("{document} is swept under {token}, after it was lost")
        });
    }
}

/// It stands at the provider. Of the account that stands in for the own one nothing ever goes.
fn exists(world: &World, entity: &Entity) -> bool {
    let account = &world.accounts.all[entity.account];
    if entity.remote != account.remote {
        return true;
    }
    account.provider.truth(&entity.partition).iter().any(|item| item.source_id == entity.source_id)
}
