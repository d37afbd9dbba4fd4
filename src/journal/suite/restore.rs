//! The lineage of a store, which a restore from a backup begins anew.

use super::build::now;
use super::{Rule, rule};
use crate::base::{Result, Timestamp};
use crate::journal::port::Storage;

pub(super) const RULES: &[Rule] = &[
    rule!(a_store_begins_without_a_restore),
    rule!(a_restore_begins_a_greater_generation_and_lasts_until_its_end),
    rule!(the_end_of_an_older_restore_ends_no_newer_one),
];

/// The time that the storage begins a restore at.
async fn time_of(storage: &dyn Storage) -> Result<Timestamp> {
    Ok(if storage.is_shared() { storage.confirm_heads(&[]).await?.now } else { now() })
}

async fn a_store_begins_without_a_restore(storage: &dyn Storage) -> Result<()> {
    assert!(storage.generation() > 0);
    assert_eq!((storage.restored_at(), storage.is_restoring()), (None, false));
    Ok(())
}

async fn a_restore_begins_a_greater_generation_and_lasts_until_its_end(
    storage: &dyn Storage,
) -> Result<()> {
    let mut before = storage.generation();
    for _ in 0..2 {
        let earliest = time_of(storage).await?;
        storage.begin_restore(now()).await?;
        let latest = time_of(storage).await?;
        let (begun, restored_at) = (storage.generation(), storage.restored_at());
        assert!(begun > before && begun >= earliest.as_millis(), "{begun} behind {before}");
        assert!(restored_at >= Some(earliest) && restored_at <= Some(latest), "{restored_at:?}");
        assert!(storage.is_restoring());
        storage.end_restore(begun).await?;
        assert_eq!((storage.restored_at(), storage.is_restoring()), (restored_at, false));
        assert_eq!(storage.generation(), begun);
        before = begun;
    }
    Ok(())
}

async fn the_end_of_an_older_restore_ends_no_newer_one(storage: &dyn Storage) -> Result<()> {
    storage.begin_restore(now()).await?;
    let older = storage.generation();
    storage.begin_restore(now()).await?;
    storage.end_restore(older).await?;
    assert!(storage.is_restoring());
    storage.end_restore(storage.generation()).await?;
    assert!(!storage.is_restoring());
    Ok(())
}
