//! What is in a partition: the entities, what is shown of them yet, and the order of their changes.
//! It knows no fault and no clock.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use super::wire::{Change, Item, Version};
use crate::base::{Json, SourceId};

/// What stands under a name.
#[derive(Clone, Debug)]
pub(super) struct Entity {
    pub(super) version: Version,
    pub(super) content: Json,
    pub(super) former: Option<SourceId>,
}

impl Entity {
    fn item(&self, source_id: &SourceId) -> Item {
        Item {
            source_id: source_id.clone(),
            version: self.version.clone(),
            content: self.content.clone(),
            former: self.former.clone(),
        }
    }
}

#[derive(Debug, Default)]
struct Slot {
    /// None for a tombstone.
    entity: Option<Entity>,
    /// The number of the last change that is shown.
    changed: u64,
    /// What reads show while a write is not visible.
    shown: Option<Option<Entity>>,
}

impl Slot {
    fn shown(&self) -> Option<&Entity> {
        self.shown.as_ref().unwrap_or(&self.entity).as_ref()
    }
}

#[derive(Debug, Default)]
pub(super) struct Partition {
    slots: BTreeMap<SourceId, Slot>,
    /// The last change of each slot.
    log: BTreeMap<u64, SourceId>,
    changes: u64,
    late: Vec<(Duration, SourceId)>,
    /// Cursors of earlier generations have expired.
    pub(super) generation: u64,
}

impl Partition {
    /// The number of the last change.
    pub(super) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Shows what was late and is not any more.
    pub(super) fn settle(&mut self, now: Duration) {
        if self.late.iter().all(|(until, _)| *until > now) {
            return;
        }
        let (due, late) = self.late.drain(..).partition(|(until, _)| *until <= now);
        self.late = late;
        let due: Vec<(Duration, SourceId)> = due;
        for (_, source_id) in due {
            if let Some(slot) = self.slots.get_mut(&source_id) {
                slot.shown = None;
                self.log_change(&source_id);
            }
        }
    }

    /// What stands, shown or not.
    pub(super) fn real(&self, source_id: &SourceId) -> Option<&Entity> {
        self.slots.get(source_id)?.entity.as_ref()
    }

    pub(super) fn shown(&self, source_id: &SourceId) -> Option<Item> {
        Some(self.slots.get(source_id)?.shown()?.item(source_id))
    }

    /// Writes, or deletes. Where it is late, reads show the state before until then.
    pub(super) fn set(
        &mut self,
        source_id: &SourceId,
        entity: Option<Entity>,
        late_until: Option<Duration>,
    ) {
        let slot = self.slots.entry(source_id.clone()).or_default();
        let before = std::mem::replace(&mut slot.entity, entity);
        if let Some(until) = late_until {
            slot.shown.get_or_insert(before);
            // An earlier late write of it is shown with this one.
            self.late.retain(|(_, late)| late != source_id);
            self.late.push((until, source_id.clone()));
        }
        if slot.shown.is_none() {
            self.log_change(source_id);
        }
    }

    /// Moves an entity. Linked, there is no tombstone, and the entity tells its former name.
    pub(super) fn rename(&mut self, from: &SourceId, to: &SourceId, is_linked: bool) -> bool {
        if self.real(to).is_some() {
            return false;
        }
        let Some(entity) = self.slots.get_mut(from).and_then(|slot| slot.entity.take()) else {
            return false;
        };
        self.late.retain(|(_, late)| late != from);
        if is_linked {
            if let Some(slot) = self.slots.remove(from) {
                self.log.remove(&slot.changed);
            }
        } else {
            if let Some(slot) = self.slots.get_mut(from) {
                slot.shown = None;
            }
            self.log_change(from);
        }
        let former = is_linked.then(|| from.clone());
        self.set(to, Some(Entity { former, ..entity }), None);
        true
    }

    /// Changes the content of what is shown, and says nothing of it.
    pub(super) fn spoil(&mut self, source_id: &SourceId, content: &Json) {
        let Some(slot) = self.slots.get_mut(source_id) else { return };
        if let Some(entity) = slot.shown.as_mut().unwrap_or(&mut slot.entity) {
            entity.content = content.clone();
        }
    }

    /// At most `size` entities behind `after`, and whether more follow.
    pub(super) fn page(&self, after: Option<&SourceId>, size: usize) -> (Vec<Item>, bool) {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let slots = self.slots.range::<SourceId, _>((start, Bound::Unbounded));
        let mut shown = slots.filter_map(|(id, slot)| Some((id, slot.shown()?)));
        let items = shown.by_ref().take(size).map(|(id, entity)| entity.item(id)).collect();
        (items, shown.next().is_some())
    }

    /// How many entities are shown.
    pub(super) fn count(&self) -> usize {
        self.slots.values().filter(|slot| slot.shown().is_some()).count()
    }

    /// All that stands, shown or not.
    pub(super) fn all(&self) -> Vec<Item> {
        let standing = self.slots.iter().filter_map(|(id, slot)| Some((id, slot.entity.as_ref()?)));
        standing.map(|(id, entity)| entity.item(id)).collect()
    }

    /// What changed behind this number.
    pub(super) fn since(&self, change: u64) -> Vec<Change> {
        let log = self.log.range((Bound::Excluded(change), Bound::Unbounded));
        log.map(|(_, id)| self.shown(id).map_or_else(|| Change::Gone(id.clone()), Change::Is))
            .collect()
    }

    fn log_change(&mut self, source_id: &SourceId) {
        let Some(slot) = self.slots.get_mut(source_id) else { return };
        self.log.remove(&slot.changed);
        self.changes += 1;
        slot.changed = self.changes;
        self.log.insert(self.changes, source_id.clone());
    }
}
