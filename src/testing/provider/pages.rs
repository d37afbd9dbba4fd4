//! Pages of a listing and what is wrong with them, and cursors that are taken or not. It changes no
//! entity but one that it poisons.

use super::content::Partition;
use super::cursor::{Place, Purpose};
use super::fault::{POISON, ProviderFault, Script};
use super::wire::{Cursor, Item, Listing, Next, ProviderError, Version};
use crate::base::Json;

/// The place of a cursor that is still good.
pub(super) fn accept(
    cursor: &Cursor,
    purpose: Purpose,
    account: usize,
    content: &mut Partition,
    script: &mut Script,
) -> Result<Place, ProviderError> {
    let place = Place::of(cursor).filter(|place| place.purpose == purpose);
    let place = place.ok_or(ProviderError::Rejected)?;
    if place.account != account || place.generation != content.generation {
        return Err(ProviderError::CursorExpired);
    }
    if script.strikes(ProviderFault::CursorExpired) {
        content.generation += 1;
        return Err(ProviderError::CursorExpired);
    }
    Ok(place)
}

pub(super) fn sync(place: &Place, change: u64) -> Cursor {
    Place { purpose: Purpose::Sync, change, extra: 0, after: None, ..place.clone() }.cursor()
}

/// The page at a place of a listing, with the faults of pages.
pub(super) fn page(
    content: &mut Partition,
    script: &mut Script,
    versions: &mut u64,
    here: Place,
    is_first: bool,
    size: usize,
) -> Listing {
    let (mut items, mut more) = content.page(here.after.as_ref(), size);
    if is_first && !items.is_empty() && script.strikes(ProviderFault::EmptyPage) {
        let next = Next::Last { total: None, sync: sync(&here, here.change) };
        return Listing { items: Vec::new(), next };
    }
    let mut place = here.clone();
    if !is_first && !items.is_empty() && script.strikes(ProviderFault::PageSkipped) {
        place.after = items.pop().map(|item| item.source_id);
        (items, more) = content.page(place.after.as_ref(), size);
    }
    if let Some(last) = items.last() {
        place.after = Some(last.source_id.clone());
        poison(content, script, items.iter_mut().collect());
        if script.strikes(ProviderFault::TwoWithOneId) {
            double(&mut items, script, versions);
            place.extra += 1;
        }
    }
    let sync = sync(&place, place.change);
    let next = if !more {
        let count = u64::try_from(content.count()).unwrap_or(u64::MAX);
        Next::Last { total: Some(count.saturating_add(place.extra)), sync }
    } else if script.strikes(ProviderFault::TruncatedListing) {
        Next::Last { total: None, sync }
    } else if script.strikes(ProviderFault::PageRepeated) {
        Next::Page(here.cursor())
    } else {
        Next::Page(place.cursor())
    };
    Listing { items, next }
}

/// Spoils one of the entities that are about to be shown.
pub(super) fn poison(content: &mut Partition, script: &mut Script, mut shown: Vec<&mut Item>) {
    if shown.is_empty() || !script.strikes(ProviderFault::ItemPoisoned) {
        return;
    }
    let at = script.pick(shown.len());
    if let (Some(item), Ok(poison)) = (shown.get_mut(at), Json::parse("content", POISON)) {
        content.spoil(&item.source_id, &poison);
        item.content = poison;
    }
}

/// Puts another entity with the id of one of these beside it, with the content of its neighbour.
fn double(items: &mut Vec<Item>, script: &Script, versions: &mut u64) {
    let at = script.pick(items.len());
    let neighbour = (at + 1) % items.len();
    *versions += 1;
    let other = Item {
        version: Version::from(format!("v{versions}")),
        content: items[neighbour].content.clone(),
        ..items[at].clone()
    };
    items.insert(at + 1, other);
}
