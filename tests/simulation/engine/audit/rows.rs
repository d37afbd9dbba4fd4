//! The checkpoint of a sync is never ahead of the rows, and no write of a sync comes under a lost lease.
//!
//! A host says which content a page has before it writes it. The checkpoint names the page; when it
//! is written, the content stands, and the page before was the last one. So all pages before stand too.

use std::collections::BTreeMap;

use connector_store::domain::connector::ConnectorEvent;
use connector_store::domain::document::DocumentEvent;
use connector_store::{DocumentId, Event, FencingToken, StreamKey};

use super::Written;
use super::erasure::Mark;
use crate::engine::graph::Entity;
use crate::engine::work::sync::place::{Place, Places};
use crate::engine::world::World;

const RULE: &str = "a checkpoint is never ahead of the rows";
const FENCED: &str = "no write under a lost lease";

/// What a host is about to write.
#[derive(Debug)]
struct Page {
    account: usize,
    token: FencingToken,
    content: BTreeMap<DocumentId, Mark>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Rows {
    attempts: u64,
    pages: BTreeMap<u64, Page>,
    /// Which attempt bears a mark.
    marks: BTreeMap<Mark, u64>,
    /// What the row of each document bears.
    rows: BTreeMap<DocumentId, Mark>,
    /// Who holds the lease of each account.
    holders: BTreeMap<usize, FencingToken>,
    places: BTreeMap<usize, Places>,
    /// Checkpoints of the append that is being read: its rows may come behind them.
    new: Vec<(usize, Places)>,
    pub checkpoints: u64,
}

impl Rows {
    /// A host is about to write this content of a page. Gives the attempt that its place names.
    pub fn attempt(
        &mut self,
        account: usize,
        token: FencingToken,
        content: BTreeMap<DocumentId, Mark>,
    ) -> u64 {
        self.attempts += 1;
        self.marks.extend(content.values().map(|mark| (*mark, self.attempts)));
        self.pages.insert(self.attempts, Page { account, token, content });
        self.attempts
    }

    /// The lease that stands by what is written.
    pub fn holder(&self, account: usize) -> Option<FencingToken> {
        self.holders.get(&account).copied()
    }

    /// This content was written for this document.
    pub fn is_of(&self, content: &[u8], document: &DocumentId) -> bool {
        let mark = Mark::all_in(content).next();
        let page = mark.and_then(|mark| self.pages.get(self.marks.get(&mark)?));
        page.is_some_and(|page| page.content.get(document) == mark.as_ref())
    }

    pub(super) fn judge(&mut self, world: &World, written: &Written) {
        match (&written.key, &written.event) {
            (StreamKey::Document(document), Event::Document(event))
                if Entity::of(document).is_some() =>
            {
                self.document(world, document, event);
            }
            (StreamKey::Connector(owner, name), Event::Connector(event))
                if *name == world.accounts.connector =>
            {
                if let Some(account) = world.accounts.number(owner) {
                    self.connector(account, event);
                }
            }
            _ => {}
        }
    }

    fn document(&mut self, world: &World, document: &DocumentId, event: &DocumentEvent) {
        match event {
            DocumentEvent::EntityTrimSet(set) => {
                let mark = Mark::all_in(set.trimmed_fields.as_str().as_bytes()).next();
                let attempt = mark.and_then(|mark| self.marks.get(&mark));
                let Some((mark, attempt)) = mark.zip(attempt.copied()) else {
                    return world.violate(RULE, format!("{document} has a row of nobody's"));
                };
                self.fenced(world, attempt, || format!("the row of {document}"));
                self.rows.insert(document.clone(), mark);
            }
            DocumentEvent::EntityTrimCleared
            | DocumentEvent::Swept
            | DocumentEvent::DocumentConnectionForgotten(_) => {
                self.rows.remove(document);
            }
            _ => {}
        }
    }

    fn connector(&mut self, account: usize, event: &ConnectorEvent) {
        match event {
            ConnectorEvent::LeaseAcquired(lease) => {
                self.holders.insert(account, lease.token);
            }
            ConnectorEvent::LeaseReleased | ConnectorEvent::ConnectionForgetBegun(_) => {
                self.holders.remove(&account);
            }
            ConnectorEvent::SyncStateSet(record) | ConnectorEvent::SyncProgressUpdated(record) => {
                let places = record.checkpoint.as_ref();
                self.new.push((account, Places::parse(places)));
            }
            ConnectorEvent::SyncStateDeleted | ConnectorEvent::ConnectionForgotten(_) => {
                self.places.remove(&account);
            }
            _ => {}
        }
    }

    fn fenced(&self, world: &World, attempt: u64, what: impl FnOnce() -> String) {
        let Some(page) = self.pages.get(&attempt) else {
            return world.violate(FENCED, format!("{} is of nobody's attempt", what()));
        };
        world.hold(FENCED, self.holder(page.account) == Some(page.token), || {
            format!("{} is written under {}, which is lost", what(), page.token)
        });
    }

    /// An append has been read as a whole.
    pub(super) fn settle(&mut self, world: &World) {
        for (account, places) in std::mem::take(&mut self.new) {
            for (partition, place) in &places.0 {
                let before = self.places.get(&account).and_then(|known| known.0.get(partition));
                if before != Some(place) {
                    self.check(world, before, place);
                    self.checkpoints += 1;
                }
            }
            self.places.insert(account, places);
        }
    }

    fn check(&self, world: &World, before: Option<&Place>, place: &Place) {
        self.fenced(world, place.attempt, || format!("{place:?}"));
        let follows = before
            .is_some_and(|before| before.pass == place.pass && before.page + 1 == place.page)
            || place.page == 1 && before.is_none_or(|before| before.pass != place.pass);
        world.hold(RULE, follows, || format!("{place:?} behind {before:?}"));
        let Some(page) = self.pages.get(&place.attempt) else { return };
        let missing = page.content.iter().find(|(id, mark)| self.rows.get(*id) != Some(*mark));
        world.hold(RULE, missing.is_none(), || format!("{place:?} without {missing:?}"));
    }
}
