//! Every backend keeps the rules.

use std::sync::Arc;

use crate::base::Timestamp;
use crate::journal::memory::MemoryJournal;

#[tokio::test]
async fn a_journal_in_memory_keeps_the_rules() {
    super::run(async || MemoryJournal::new().open().unwrap()).await;
}

#[tokio::test]
async fn a_shared_journal_in_memory_keeps_the_rules() {
    let now = || Timestamp::from_millis(super::build::NOW);
    super::run(async || MemoryJournal::shared(Arc::new(now)).open().unwrap()).await;
}
