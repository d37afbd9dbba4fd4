//! The lineage of a store, which a restore from a backup begins anew.

use super::build::now;
use super::{Rule, rule};
use crate::base::Result;
use crate::journal::port::Storage;

pub(super) const RULES: &[Rule] = &[
    rule!(a_store_begins_without_a_restore),
    rule!(a_restore_begins_a_greater_generation_and_lasts_until_its_end),
    rule!(the_end_of_an_older_restore_ends_no_newer_one),
];

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
        storage.begin_restore(now()).await?;
        let begun = storage.generation();
        assert!(begun > before && begun >= now().as_millis(), "{begun} behind {before}");
        assert_eq!((storage.restored_at(), storage.is_restoring()), (Some(now()), true));
        storage.end_restore(begun).await?;
        assert_eq!((storage.restored_at(), storage.is_restoring()), (Some(now()), false));
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
