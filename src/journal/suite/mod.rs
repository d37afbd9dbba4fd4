//! The rules that every backend must keep, as tests that take any [`Storage`].
//!
//! A backend's own test is one line: `suite::run(async || open()).await`. A rule panics where it
//! is broken. It knows no backend.

mod appends;
mod build;
mod due;
mod history;
mod numbers;
mod records;
mod restore;
mod rows;
mod trims;

use std::sync::Arc;

use super::port::{BoxFuture, Storage};
use crate::base::Result;

/// One rule and the test of it, which gets an empty storage of its own.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The rule, in words.
    pub name: &'static str,
    /// The test. It panics when the rule is broken, and gives on what the storage answered where
    /// no error was due.
    pub test: fn(Arc<dyn Storage>) -> BoxFuture<'static, Result<()>>,
}

/// All rules.
pub fn rules() -> impl Iterator<Item = Rule> {
    let families = [
        appends::RULES,
        numbers::RULES,
        rows::RULES,
        records::RULES,
        due::RULES,
        history::RULES,
        trims::RULES,
        restore::RULES,
    ];
    families.into_iter().flatten().copied()
}

/// Tests every rule, each on an empty storage that `open` gives.
///
/// # Panics
/// When a rule is broken.
pub async fn run<S: Storage>(open: impl AsyncFn() -> S) {
    for rule in rules() {
        let storage: Arc<dyn Storage> = Arc::new(open().await);
        let result = (rule.test)(Arc::clone(&storage)).await;
        assert!(result.is_ok(), "{}: {result:?}", rule.name);
        let closed = storage.close().await;
        assert!(closed.is_ok(), "{}: close: {closed:?}", rule.name);
    }
}

/// Names a rule by its test.
macro_rules! rule {
    ($test:ident) => {
        $crate::journal::suite::Rule {
            name: stringify!($test),
            test: |storage| Box::pin(async move { $test(&*storage).await }),
        }
    };
}
use rule;

#[cfg(test)]
#[path = "suite_tests.rs"]
mod tests;
