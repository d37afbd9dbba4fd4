//! What the hosts show to their users: a database beside the store, which all of them write. It is
//! fenced by the leases' tokens, as every store that a paused host could write late has to be.

use std::collections::BTreeMap;

use connector_store::{DocumentId, FencingToken, PartitionId, SourceId};

/// An entity of an account, and so the document that mirrors it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entity {
    /// Whose: the number of the account.
    pub account: usize,
    pub partition: PartitionId,
    /// The account at the provider, which another one may stand in for.
    pub remote: String,
    pub source_id: SourceId,
}

impl Entity {
    pub fn document(&self) -> DocumentId {
        let Self { account, partition, remote, source_id } = self;
        DocumentId::new(format!("e~{account}~{partition}~{remote}~{source_id}")).unwrap()
    }

    /// A name that the account's documents come right behind.
    pub fn before(account: usize) -> DocumentId {
        DocumentId::new(format!("e~{account}~")).unwrap()
    }

    /// The entity that a document mirrors, if it mirrors one.
    pub fn of(document: &DocumentId) -> Option<Self> {
        let mut names = document.as_str().strip_prefix("e~")?.splitn(4, '~');
        Some(Self {
            account: names.next()?.parse().ok()?,
            partition: PartitionId::new(names.next()?).ok()?,
            remote: names.next()?.to_owned(),
            source_id: SourceId::new(names.next()?).ok()?,
        })
    }
}

/// A document as it is shown.
#[derive(Clone, Debug)]
pub struct Shown {
    pub version: String,
    /// Its rows are known to be in the store.
    pub is_written: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Graph {
    /// By the number of the account.
    shown: BTreeMap<usize, BTreeMap<Entity, Shown>>,
    newest: BTreeMap<usize, FencingToken>,
}

impl Graph {
    /// A holder of the account's lease begins. False where a newer one has.
    pub fn enter(&mut self, account: usize, token: FencingToken) -> bool {
        let newest = self.newest.entry(account).or_insert(token);
        *newest = (*newest).max(token);
        *newest == token
    }

    /// Shows a version. False under an old token.
    #[must_use]
    pub fn put(&mut self, entity: &Entity, shown: Shown, token: FencingToken) -> bool {
        let is_let_in = self.enter(entity.account, token);
        if is_let_in {
            self.shown.entry(entity.account).or_default().insert(entity.clone(), shown);
        }
        is_let_in
    }

    /// Shows it no more. False under an old token.
    #[must_use]
    pub fn delete(&mut self, entity: &Entity, token: FencingToken) -> bool {
        let is_let_in = self.enter(entity.account, token);
        if let Some(shown) = self.shown.get_mut(&entity.account).filter(|_| is_let_in) {
            shown.remove(entity);
        }
        is_let_in
    }

    pub fn get(&self, entity: &Entity) -> Option<&Shown> {
        self.shown.get(&entity.account)?.get(entity)
    }

    /// What is shown of an account.
    pub fn of_account(&self, account: usize) -> impl Iterator<Item = (&Entity, &Shown)> {
        self.shown.get(&account).into_iter().flatten()
    }

    /// What mirrors this partition of this account at the provider.
    pub fn of<'a>(
        &'a self,
        account: usize,
        partition: &'a PartitionId,
        remote: &'a str,
    ) -> impl Iterator<Item = (&'a Entity, &'a Shown)> {
        self.of_account(account)
            .filter(move |(entity, _)| entity.partition == *partition && entity.remote == remote)
    }
}
