//! Operations and their watches: each step is one that the protocol has, so that a second write can't
//! come of the store. What the provider has counted is held against each end.

use std::collections::{BTreeMap, BTreeSet};

use connector_store::domain::connector::ConnectorEvent;
use connector_store::domain::document::{
    DocumentEvent, OperationClaimed, OperationCreated, OperationRecorded, SendMark, WatchArmed,
};
use connector_store::{
    CommandId, ConnectorName, DocumentId, Event, Hlc, OperationId, OperationPhase, OwnerDid,
    StreamKey, Timestamp,
};

use super::Written;
use crate::engine::world::World;

const ONCE: &str = "an operation writes once";
const FINAL: &str = "what has ended stays so";
const WATCHED: &str = "a committed write is watched until it is read back";

/// How far an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Fresh,
    Marked(SendMark),
    Unknown(SendMark, Option<Timestamp>),
    Committed,
    Dead,
}

impl Stage {
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Committed | Self::Dead)
    }

    /// What was sent under a mark may still arrive.
    pub const fn mark(self) -> Option<SendMark> {
        match self {
            Self::Marked(mark) | Self::Unknown(mark, _) => Some(mark),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Known {
    document: DocumentId,
    connection: (OwnerDid, ConnectorName),
    delay_millis: i64,
    stage: Stage,
    not_before: Option<Timestamp>,
    sequence: i64,
}

#[derive(Debug)]
struct Watched {
    connection: (OwnerDid, ConnectorName),
    written_hlc: Hlc,
    deadline: Timestamp,
    mismatches: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Operations {
    known: BTreeMap<OperationId, Known>,
    documents: BTreeMap<DocumentId, BTreeSet<OperationId>>,
    unfinished: BTreeMap<(OwnerDid, ConnectorName), usize>,
    forgetting: BTreeSet<(OwnerDid, ConnectorName)>,
    watches: BTreeMap<DocumentId, Watched>,
    /// Ends whose watch must be the next event of their command.
    owes_watch: Option<(CommandId, i64, DocumentId)>,
    /// Operations that the provider has refused since they were claimed.
    refused: BTreeSet<OperationId>,
}

impl Operations {
    /// How far an operation is, or was when its document was swept.
    pub fn stage(&self, operation: &OperationId) -> Option<Stage> {
        self.known.get(operation).map(|known| known.stage)
    }

    /// The provider has refused the request for certain.
    pub fn refused(&mut self, operation: &OperationId) {
        self.refused.insert(operation.clone());
    }

    pub(super) fn judge(&mut self, world: &World, written: &Written) {
        self.judge_owed(world, written);
        match (&written.key, &written.event) {
            (StreamKey::Connector(owner, connector), Event::Connector(event)) => {
                self.connector(world, (owner.clone(), connector.clone()), event);
            }
            (StreamKey::Document(document), Event::Document(event)) => {
                self.operation(world, written, document, event);
                self.watch(world, document, event);
            }
            _ => {}
        }
    }

    /// No crash comes between an end and its watch: they are one append.
    fn judge_owed(&mut self, world: &World, written: &Written) {
        let Some((command, position, document)) = self.owes_watch.take() else { return };
        let is_armed = written.command_id == command
            && written.position == position + 1
            && matches!(written.event, Event::Document(DocumentEvent::WatchArmed(_)));
        world.hold(WATCHED, is_armed, || format!("{document} committed at {position}"));
    }

    fn connector(
        &mut self,
        world: &World,
        connection: (OwnerDid, ConnectorName),
        event: &ConnectorEvent,
    ) {
        match event {
            ConnectorEvent::ConnectionForgetBegun(_) => {
                self.forgetting.insert(connection);
            }
            ConnectorEvent::ConnectionForgetAbandoned => {
                self.forgetting.remove(&connection);
            }
            ConnectorEvent::ConnectionForgotten(_) => {
                let unfinished = self.unfinished.get(&connection).copied().unwrap_or(0);
                world.hold(
                    "no connection is forgotten while it may write",
                    unfinished == 0,
                    || format!("{connection:?} has {unfinished} unfinished operations"),
                );
                self.forgetting.remove(&connection);
            }
            _ => {}
        }
    }

    fn operation(
        &mut self,
        world: &World,
        written: &Written,
        document: &DocumentId,
        event: &DocumentEvent,
    ) {
        match event {
            DocumentEvent::OperationCreated(created) => self.created(world, document, created),
            DocumentEvent::OperationClaimed(claimed) => self.claimed(world, claimed),
            DocumentEvent::SendStarted(started) => {
                let Some(known) = self.known_of(world, &started.operation_id) else { return };
                let is_first = known.stage == Stage::Fresh;
                let (before, mark) = (known.stage, started.mark);
                known.stage = Stage::Marked(mark);
                world.hold(ONCE, is_first && mark.started_at < mark.until, || {
                    format!("{} is marked with {mark:?} after {before:?}", started.operation_id)
                });
            }
            DocumentEvent::OperationDeferred(deferred) => {
                let id = &deferred.operation_id;
                let is_refused = self.refused.remove(id) || !world.accounts.edits.knows(id);
                let Some(known) = self.known_of(world, id) else { return };
                let may_have_sent = matches!(known.stage, Stage::Marked(_));
                known.not_before = Some(deferred.not_before);
                if may_have_sent {
                    known.stage = Stage::Fresh;
                }
                world.hold(ONCE, !may_have_sent || is_refused && deferred.clears_mark, || {
                    format!("{id} is given back while its request may arrive")
                });
            }
            DocumentEvent::OperationRecorded(recorded) => self.recorded(world, recorded),
            DocumentEvent::ReconcileReadBegun(begun) => {
                let Some(known) = self.known_of(world, &begun.operation_id) else { return };
                if let Stage::Unknown(mark, _) = known.stage {
                    known.stage = Stage::Unknown(mark, Some(begun.at));
                }
            }
            DocumentEvent::OperationFinalized(finalized) => {
                let id = &finalized.operation_id;
                self.finalized(world, id, &finalized.phase);
                if world.accounts.edits.knows(id) && self.stage(id) == Some(Stage::Committed) {
                    self.owes_watch =
                        Some((written.command_id, written.position, document.clone()));
                }
            }
            DocumentEvent::Swept => self.swept(world, document),
            _ => {}
        }
    }

    fn known_of(&mut self, world: &World, id: &OperationId) -> Option<&mut Known> {
        let known = self.known.get_mut(id);
        let stage = known.as_ref().map(|known| known.stage);
        world.hold(FINAL, stage.is_some_and(|stage| !stage.is_final()), || {
            format!("{id} goes on from {stage:?}")
        });
        known
    }

    fn created(&mut self, world: &World, document: &DocumentId, created: &OperationCreated) {
        let id = &created.operation_id;
        // A document's sweep takes the idempotency rows along: a claim that was long on its way may
        // come behind it.
        let stands = self.documents.values().any(|of| of.contains(id));
        world.hold("an operation's id is used once", !stands, || id.to_string());
        let on_document = self.documents.entry(document.clone()).or_default();
        let newest =
            on_document.iter().filter_map(|id| self.known.get(id)).map(|of| of.sequence).max();
        world.hold(
            "operations have an order",
            newest.is_none_or(|at| at < created.sequence),
            || format!("{id} is number {} after {newest:?}", created.sequence),
        );
        on_document.insert(id.clone());
        let connection = (created.owner.clone(), created.connector.clone());
        self.not_forgetting(world, id, &connection);
        *self.unfinished.entry(connection.clone()).or_default() += 1;
        let stage = created.sent.map_or(Stage::Fresh, |mark| Stage::Unknown(mark, None));
        let known = Known {
            document: document.clone(),
            connection,
            delay_millis: created.visibility_delay_ms,
            stage,
            not_before: None,
            sequence: created.sequence,
        };
        self.known.insert(id.clone(), known);
    }

    fn not_forgetting(&self, world: &World, id: &OperationId, of: &(OwnerDid, ConnectorName)) {
        world.hold(
            "a connection that is forgotten claims nothing",
            !self.forgetting.contains(of),
            || format!("{id} of {of:?}"),
        );
    }

    fn claimed(&mut self, world: &World, claimed: &OperationClaimed) {
        let id = &claimed.operation_id;
        let Some(known) = self.known_of(world, id) else { return };
        let (before, not_before) = (known.stage, known.not_before.take());
        if let Some(mark) = before.mark() {
            known.stage = Stage::Unknown(mark, None);
        }
        let connection = known.connection.clone();
        world.hold(ONCE, claimed.reconcile == (before != Stage::Fresh), || {
            format!("{id} is claimed with {claimed:?} after {before:?}")
        });
        world.hold(
            "what is given back rests",
            not_before.is_none_or(|at| at <= claimed.at),
            || format!("{id} is claimed at {:?}, before {not_before:?}", claimed.at),
        );
        self.not_forgetting(world, id, &connection);
        self.refused.remove(id);
    }

    fn recorded(&mut self, world: &World, recorded: &OperationRecorded) {
        let id = &recorded.operation_id;
        let Some(known) = self.known_of(world, id) else { return };
        let (before, delay) = (known.stage, known.delay_millis);
        let (after, holds) = match (&recorded.phase, before) {
            (OperationPhase::ReconcileOnly { sent, .. }, Stage::Fresh) => {
                (Stage::Unknown(*sent, None), true)
            }
            (OperationPhase::ReconcileOnly { sent, .. }, Stage::Marked(mark)) => {
                (Stage::Unknown(*sent, None), *sent == mark)
            }
            (OperationPhase::Attempted { sent: None }, Stage::Unknown(mark, read_at)) => {
                let proves = |at: Timestamp| at > mark.until.plus_millis(delay);
                (Stage::Fresh, read_at.is_some_and(proves))
            }
            _ => (before, false),
        };
        known.stage = after;
        world.hold(ONCE, holds, || format!("{id} becomes {:?} after {before:?}", recorded.phase));
    }

    fn finalized(&mut self, world: &World, id: &OperationId, phase: &OperationPhase) {
        let Some(known) = self.known_of(world, id) else { return };
        let is_committed = matches!(phase, OperationPhase::Committed { .. });
        known.stage = if is_committed { Stage::Committed } else { Stage::Dead };
        let connection = known.connection.clone();
        if let Some(unfinished) = self.unfinished.get_mut(&connection) {
            *unfinished -= 1;
        }
        if let Some(writes) = world.accounts.edits.writes(id) {
            world.hold(ONCE, writes == u32::from(is_committed), || {
                format!("{id} ends as {phase:?}, and was written {writes} times")
            });
        }
    }

    fn swept(&mut self, world: &World, document: &DocumentId) {
        self.watches.remove(document);
        world.accounts.edits.swept(document);
        for id in self.documents.remove(document).unwrap_or_default() {
            let Some(known) = self.known.get(&id) else { continue };
            world.hold(
                "no document is swept while it may be written",
                known.stage.is_final(),
                || format!("{} with {id}: {:?}", known.document, known.stage),
            );
        }
    }

    fn watch(&mut self, world: &World, document: &DocumentId, event: &DocumentEvent) {
        let standing = self.watches.get_mut(document);
        let is_watched = standing.is_some();
        let holds = match (event, standing) {
            (DocumentEvent::WatchArmed(armed), standing) => {
                let is_newer = standing.is_none_or(|of| of.written_hlc <= armed.written_hlc);
                self.armed(document, armed);
                is_newer
            }
            (DocumentEvent::WatchMismatched(mismatched), Some(watch)) => {
                watch.mismatches += 1;
                watch.mismatches == mismatched.mismatches
            }
            (DocumentEvent::WatchExpired(expired), Some(watch)) => expired.at >= watch.deadline,
            (DocumentEvent::WatchVerified | DocumentEvent::WatchDisarmed, _) => {
                self.watches.remove(document);
                is_watched
            }
            (DocumentEvent::WatchMismatched(_) | DocumentEvent::WatchExpired(_), None) => false,
            (DocumentEvent::DocumentConnectionForgotten(of), Some(watch))
                if watch.connection == (of.owner.clone(), of.connector.clone()) =>
            {
                self.watches.remove(document);
                true
            }
            _ => true,
        };
        world.hold(WATCHED, holds, || format!("{document}: {event:?}"));
    }

    fn armed(&mut self, document: &DocumentId, armed: &WatchArmed) {
        let watched = Watched {
            connection: (armed.identity.owner.clone(), armed.identity.connector.clone()),
            written_hlc: armed.written_hlc.clone(),
            deadline: armed.deadline,
            mismatches: 0,
        };
        self.watches.insert(document.clone(), watched);
    }
}
