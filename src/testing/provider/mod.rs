//! A provider with the faults of real ones: a calendar, tracker or file service in memory, for the tests
//! of a connector.
//!
//! Connectors are tested against providers that behave, and fail at those that do not. This one does
//! what a [`ProviderFault`] says, at the next call where it can, or by chance from a seed. Given the
//! same seed, clock and calls it does the same. It is synchronous, and knows nothing of the store.
//!
//! Other people's edits are [`put`](Provider::put), [`remove`](Provider::remove) and
//! [`rename`](Provider::rename); a connector calls [`account`](Provider::account), [`now`](Provider::now),
//! [`list`](Provider::list), [`changes`](Provider::changes), [`get`](Provider::get) and
//! [`write`](Provider::write). In the end a test compares what the connector has with
//! [`truth`](Provider::truth), and counts each write by [`effective_writes`](Provider::effective_writes).
//!
//! ```
//! use std::sync::Arc;
//! use connector_store::testing::{
//!     Condition, Provider, ProviderError, ProviderFault, SimClock, Write,
//! };
//! use connector_store::{Json, OperationId, OperationKind, PartitionId, SourceId};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let provider = Provider::new(Arc::new(SimClock::default()), 1);
//! let inbox = PartitionId::new("inbox")?;
//! let write = Write {
//!     operation_id: OperationId::new("edit-1")?,
//!     partition: inbox.clone(),
//!     op: OperationKind::Create,
//!     source_id: SourceId::new("a")?,
//!     content: Some(Json::parse("content", r#"{"title":"hello"}"#)?),
//!     condition: Condition::None,
//! };
//! // The write is done and nobody is told. A connector that sends it again has written twice.
//! provider.plan(ProviderFault::WriteTimedOut);
//! assert_eq!(provider.write(&write), Err(ProviderError::TimedOut));
//! assert_eq!(provider.truth(&inbox).len(), 1);
//! provider.write(&write)?;
//! assert_eq!(provider.effective_writes(&write.operation_id), 2);
//! # Ok(())
//! # }
//! ```

mod content;
mod cursor;
mod fault;
#[cfg(test)]
mod provider_tests;
mod wire;

pub use fault::{POISON, ProviderFault};
pub use wire::{
    Change, Changes, Condition, Cursor, Item, Listing, Next, ProviderError, Version, Write,
};

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use content::{Entity, Partition};
use cursor::{Place, Purpose};
use fault::Script;

use crate::base::{Json, OperationId, PartitionId, SourceId, Timestamp};
use crate::domain::document::OperationKind;
use crate::runtime::Clock;

/// The account that content is put into, and the one that a swapped credential leads to.
const ACCOUNTS: [&str; 2] = ["account-1", "account-2"];
const OWN: usize = 0;
const STRANGERS: usize = 1;
/// What is in each partition of the other account.
const STRANGER: &str = "stranger";
const STRANGERS_CONTENT: &str = r#"{"title":"stranger"}"#;

type Answer<T> = Result<T, ProviderError>;

struct Inner {
    accounts: [BTreeMap<PartitionId, Partition>; ACCOUNTS.len()],
    swapped_until: Duration,
    storm_until: Duration,
    versions: u64,
    effective_writes: BTreeMap<OperationId, u32>,
    /// What writes with an idempotency key were answered.
    answers: BTreeMap<OperationId, Option<Version>>,
    script: Script,
}

/// A fake provider. Clones are one provider.
#[derive(Clone)]
pub struct Provider {
    inner: Arc<Mutex<Inner>>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider").field("script", &self.lock().script).finish_non_exhaustive()
    }
}

impl Provider {
    /// An empty provider without faults. What lasts or comes late goes by the monotonic time of `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, seed: u64) -> Self {
        let inner = Inner {
            accounts: Default::default(),
            swapped_until: Duration::ZERO,
            storm_until: Duration::ZERO,
            versions: 0,
            effective_writes: BTreeMap::new(),
            answers: BTreeMap::new(),
            script: Script::new(seed),
        };
        Self { inner: Arc::new(Mutex::new(inner)), clock }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has this fault strike at the next call where it can. Several of one kind strike one after the other.
    pub fn plan(&self, fault: ProviderFault) {
        self.lock().script.plan(fault);
    }

    /// From now on each of these faults strikes so often in a thousand calls where it can, by the seed. It
    /// takes the place of the chances before; none ends them.
    pub fn chances(&self, per_mille: &[(ProviderFault, u32)]) {
        self.lock().script.set_chances(per_mille);
    }

    /// How often a fault of this kind has struck.
    #[must_use]
    pub fn struck(&self, fault: ProviderFault) -> u64 {
        self.lock().script.struck(fault)
    }

    /// Somebody else writes an entity.
    pub fn put(&self, partition: &PartitionId, source_id: &SourceId, content: &Json) -> Version {
        let mut inner = self.lock();
        let version = inner.version();
        let entity = Entity { version: version.clone(), content: content.clone(), former: None };
        inner.partition(OWN, partition).set(source_id, Some(entity), None);
        version
    }

    /// Somebody else deletes an entity. False where there was none.
    pub fn remove(&self, partition: &PartitionId, source_id: &SourceId) -> bool {
        let mut inner = self.lock();
        let partition = inner.partition(OWN, partition);
        let is_there = partition.real(source_id).is_some();
        if is_there {
            partition.set(source_id, None, None);
        }
        is_there
    }

    /// Somebody else renames an entity, which keeps its version and content, and tells its former
    /// name. False where there was none, or where one of the new name stands.
    pub fn rename(&self, partition: &PartitionId, from: &SourceId, to: &SourceId) -> bool {
        let mut inner = self.lock();
        let can_strike = {
            let partition = inner.partition(OWN, partition);
            partition.real(from).is_some() && partition.real(to).is_none()
        };
        let is_linked = !(can_strike && inner.script.strikes(ProviderFault::RenameAsDeleteCreate));
        inner.partition(OWN, partition).rename(from, to, is_linked)
    }

    /// The entities that really stand in the partition, whatever is shown of them, by their ids.
    #[must_use]
    pub fn truth(&self, partition: &PartitionId) -> Vec<Item> {
        self.lock().partition(OWN, partition).all()
    }

    /// How often the write of this operation was done.
    #[must_use]
    pub fn effective_writes(&self, operation: &OperationId) -> u32 {
        self.lock().effective_writes.get(operation).copied().unwrap_or(0)
    }

    /// The account that the credential leads to.
    #[must_use]
    pub fn account(&self) -> &'static str {
        let now = self.clock.monotonic();
        let mut inner = self.lock();
        let account = inner.account_or_swap(now);
        ACCOUNTS[account]
    }

    /// The time by the provider's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let wall = self.clock.wall();
        match self.lock().script.strike(ProviderFault::ClockWrong { by_millis: 0 }) {
            Some(ProviderFault::ClockWrong { by_millis }) => wall.plus_millis(by_millis),
            _ => wall,
        }
    }

    /// A page of the entities: the first one, or the one behind a cursor.
    ///
    /// # Errors
    /// [`ProviderError::CursorExpired`], [`ProviderError::RateLimited`]; [`ProviderError::Rejected`] for a
    /// text that is no cursor of a listing, and for pages of nothing.
    pub fn list(
        &self,
        partition: &PartitionId,
        cursor: Option<&Cursor>,
        page_size: usize,
    ) -> Answer<Listing> {
        let now = self.clock.monotonic();
        let mut inner = self.lock();
        inner.admit(now)?;
        let account = inner.account_or_swap(now);
        let (content, script, versions) = inner.parts(account, partition, now);
        let first = Place {
            purpose: Purpose::List,
            account,
            generation: content.generation,
            change: content.changes(),
            extra: 0,
            after: None,
        };
        if page_size == 0 {
            return Err(ProviderError::Rejected);
        }
        let place = match cursor {
            None => first,
            Some(cursor) => accept(cursor, Purpose::List, account, content, script)?,
        };
        Ok(page(content, script, versions, place, cursor.is_none(), page_size))
    }

    /// What has happened since a sync cursor.
    ///
    /// # Errors
    /// [`ProviderError::CursorExpired`], [`ProviderError::RateLimited`]; [`ProviderError::Rejected`] for a text that
    /// is no sync cursor.
    pub fn changes(&self, partition: &PartitionId, cursor: &Cursor) -> Answer<Changes> {
        let now = self.clock.monotonic();
        let mut inner = self.lock();
        inner.admit(now)?;
        let account = inner.account_or_swap(now);
        let (content, script, _) = inner.parts(account, partition, now);
        let place = accept(cursor, Purpose::Sync, account, content, script)?;
        let mut changes = content.since(place.change);
        let shown = changes.iter_mut().filter_map(|change| match change {
            Change::Is(item) => Some(item),
            Change::Gone(_) => None,
        });
        poison(content, script, shown.collect());
        Ok(Changes { changes, sync: sync(&place, content.changes()) })
    }

    /// One entity.
    ///
    /// # Errors
    /// [`ProviderError::Gone`], [`ProviderError::RateLimited`].
    pub fn get(&self, partition: &PartitionId, source_id: &SourceId) -> Answer<Item> {
        let now = self.clock.monotonic();
        let mut inner = self.lock();
        inner.admit(now)?;
        let account = inner.account(now);
        let (content, ..) = inner.parts(account, partition, now);
        content.shown(source_id).ok_or(ProviderError::Gone)
    }

    /// Writes, and gives the version that stands then; none for a delete. A condition is held to what
    /// stands, shown or not.
    ///
    /// # Errors
    /// Certain: [`ProviderError::RateLimited`], [`ProviderError::ConditionFailed`], [`ProviderError::Rejected`] for a
    /// create or update without content, [`ProviderError::Gone`] for an update or delete of what is not there,
    /// unless that is the fault. Not certain: [`ProviderError::TimedOut`], [`ProviderError::Unavailable`].
    pub fn write(&self, write: &Write) -> Answer<Option<Version>> {
        let now = self.clock.monotonic();
        let mut inner = self.lock();
        inner.admit(now)?;
        let has_key = write.condition == Condition::IdempotencyKey;
        if let Some(answer) = inner.answers.get(&write.operation_id).filter(|_| has_key) {
            return Ok(answer.clone());
        }
        let account = inner.account(now);
        check(write, inner.parts(account, &write.partition, now).0)?;
        if inner.script.strikes(ProviderFault::WriteLost) {
            return Err(ProviderError::TimedOut);
        }
        let version = inner.apply(account, write, now);
        *inner.effective_writes.entry(write.operation_id.clone()).or_default() += 1;
        if has_key {
            inner.answers.insert(write.operation_id.clone(), version.clone());
        }
        if inner.script.strikes(ProviderFault::WriteTimedOut) {
            return Err(ProviderError::TimedOut);
        }
        if inner.script.strikes(ProviderFault::UnavailableButDone) {
            return Err(ProviderError::Unavailable);
        }
        let is_delete = write.op == OperationKind::Delete;
        if is_delete && inner.script.strikes(ProviderFault::GoneAlready) {
            return Err(ProviderError::Gone);
        }
        Ok(version)
    }
}

impl Inner {
    fn version(&mut self) -> Version {
        self.versions += 1;
        Version::from(format!("v{}", self.versions))
    }

    fn partition(&mut self, account: usize, partition: &PartitionId) -> &mut Partition {
        if !self.accounts[account].contains_key(partition) {
            let mut new = Partition::default();
            let content = Json::parse("content", STRANGERS_CONTENT);
            let stranger = (SourceId::new(STRANGER), content);
            if let (STRANGERS, (Ok(id), Ok(content))) = (account, stranger) {
                let entity = Entity { version: self.version(), content, former: None };
                new.set(&id, Some(entity), None);
            }
            self.accounts[account].insert(partition.clone(), new);
        }
        self.accounts[account].entry(partition.clone()).or_default()
    }

    /// The partition as it is now, and what is beside it.
    fn parts(
        &mut self,
        account: usize,
        partition: &PartitionId,
        now: Duration,
    ) -> (&mut Partition, &mut Script, &mut u64) {
        self.partition(account, partition);
        let content = self.accounts[account].entry(partition.clone()).or_default();
        content.settle(now);
        (content, &mut self.script, &mut self.versions)
    }

    /// Lets a call in, unless there is a storm.
    fn admit(&mut self, now: Duration) -> Answer<()> {
        if self.storm_until <= now {
            let storm = ProviderFault::RateLimitStorm { lasts: Duration::ZERO };
            if let Some(ProviderFault::RateLimitStorm { lasts }) = self.script.strike(storm) {
                self.storm_until = now.saturating_add(lasts);
            }
        }
        match self.storm_until.saturating_sub(now) {
            Duration::ZERO => Ok(()),
            retry_after => Err(ProviderError::RateLimited { retry_after }),
        }
    }

    fn account(&self, now: Duration) -> usize {
        if now < self.swapped_until { STRANGERS } else { OWN }
    }

    fn account_or_swap(&mut self, now: Duration) -> usize {
        if self.account(now) == OWN {
            let swap = ProviderFault::AccountSwapped { lasts: Duration::ZERO };
            if let Some(ProviderFault::AccountSwapped { lasts }) = self.script.strike(swap) {
                self.swapped_until = now.saturating_add(lasts);
            }
        }
        self.account(now)
    }

    fn apply(&mut self, account: usize, write: &Write, now: Duration) -> Option<Version> {
        let content = write.content.clone().filter(|_| write.op != OperationKind::Delete);
        let is_normalised =
            content.is_some() && self.script.strikes(ProviderFault::WriteNormalised);
        let entity = content.map(|content| {
            let content = if is_normalised { normalised(&content) } else { content };
            Entity { version: self.version(), content, former: None }
        });
        let version = entity.as_ref().map(|entity| entity.version.clone());
        let late = ProviderFault::WriteVisibleLater { after: Duration::ZERO };
        let late_until = match self.script.strike(late) {
            Some(ProviderFault::WriteVisibleLater { after }) => Some(now.saturating_add(after)),
            _ => None,
        };
        self.partition(account, &write.partition).set(&write.source_id, entity, late_until);
        version
    }
}

/// Whether the write may be done.
fn check(write: &Write, content: &Partition) -> Answer<()> {
    let standing = content.real(&write.source_id);
    if write.content.is_none() && write.op != OperationKind::Delete {
        return Err(ProviderError::Rejected);
    }
    if standing.is_none() && write.op != OperationKind::Create {
        return Err(ProviderError::Gone);
    }
    let holds = match &write.condition {
        Condition::None | Condition::IdempotencyKey => true,
        Condition::IfNoneMatch => standing.is_none(),
        Condition::IfMatch(version) => standing.is_some_and(|entity| entity.version == *version),
    };
    if holds { Ok(()) } else { Err(ProviderError::ConditionFailed) }
}

/// The place of a cursor that is still good.
fn accept(
    cursor: &Cursor,
    purpose: Purpose,
    account: usize,
    content: &mut Partition,
    script: &mut Script,
) -> Answer<Place> {
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

fn sync(place: &Place, change: u64) -> Cursor {
    Place { purpose: Purpose::Sync, change, extra: 0, after: None, ..place.clone() }.cursor()
}

/// The page at a place of a listing, with the faults of pages.
fn page(
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
fn poison(content: &mut Partition, script: &mut Script, mut shown: Vec<&mut Item>) {
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

/// The provider's own spelling of a content. Normalised once more it stays the same.
fn normalised(content: &Json) -> Json {
    let value = match content.to_value() {
        serde_json::Value::Object(mut members) => {
            members.insert("normalised".to_owned(), true.into());
            serde_json::Value::Object(members)
        }
        value => serde_json::json!({ "normalised": true, "value": value }),
    };
    Json::from_value("content", &value).unwrap_or_else(|_| content.clone())
}
