//! A scenario: what has happened to one key while time passed, a command, and what it comes to.
//!
//! The rules alone, as a host meets them: no store, no runtime, no storage. It adds keys and time to
//! what `given.rs` carries out.

#![allow(clippy::expect_used, reason = "an id that is none is a fault of the test")]

use std::fmt::Debug;
use std::time::Duration;

use uuid::Uuid;

use super::given::{Given, Then, at, given};
use crate::base::{ConnectorName, DocumentId, OwnerDid, Secret, StreamKey, Timestamp};
use crate::domain::auth::{PendingAuth, auth_key};
use crate::domain::connector::Connector;
use crate::domain::document::Document;
use crate::domain::{Aggregate, Context, Row};

/// A key, what has happened to it, and the time.
///
/// Time begins at the epoch and passes by [`Self::after`] alone, so leases end at round numbers. Ids
/// are numbered, chance is always its middle.
///
/// # Panics
/// Where something is asserted that does not hold, or what was given is refused: the message tells
/// the state, the events and the rows of the key.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use connector_store::domain::connector::{ConnectorCommand, ConnectorReply};
/// use connector_store::domain::{FencingToken, Lease, Table, Value};
/// use connector_store::testing::Scenario;
/// use connector_store::{Holder, Timestamp};
///
/// let acquire = |holder| ConnectorCommand::AcquireLease {
///     holder: Holder::new(holder).unwrap(),
///     ttl_ms: 30_000,
/// };
/// let held = Scenario::connector("did:web:ann", "caldav").given(acquire("host-1"));
///
/// held.clone()
///     .after(Duration::from_millis(29_999))
///     .when(acquire("host-2"))
///     .refused("CONNECTOR_LEASE_HELD")
///     .row(Table::Lease, &[("holder", Value::text("host-1"))]);
///
/// held.after(Duration::from_millis(30_000))
///     .when(acquire("host-2"))
///     .replies(ConnectorReply::Lease(Lease {
///         holder: Holder::new("host-2").unwrap(),
///         token: FencingToken { generation: 1, version: 2 },
///         expires_at: Timestamp::from_millis(60_000),
///     }))
///     .row(Table::Lease, &[("holder", Value::text("host-2"))]);
/// ```
#[derive(Clone)]
pub struct Scenario<A: Aggregate> {
    given: Given<A>,
    context: Context,
}

impl Scenario<Document> {
    /// A document that nothing happened to.
    #[must_use]
    pub fn document(id: &str) -> Self {
        Self::of(StreamKey::Document(DocumentId::new(id).expect("a document id")))
    }
}

impl Scenario<Connector> {
    /// An owner's connector that nothing happened to.
    #[must_use]
    pub fn connector(owner: &str, name: &str) -> Self {
        let owner = OwnerDid::new(owner).expect("an owner's DID");
        Self::of(StreamKey::Connector(owner, ConnectorName::new(name).expect("a connector's name")))
    }
}

impl Scenario<PendingAuth> {
    /// The pending authorization of a secret `state`, to which nothing happened.
    #[must_use]
    pub fn authorization(state: &Secret) -> Self {
        Self::of(auth_key(state))
    }
}

impl<A: Aggregate> Scenario<A> {
    fn of(key: StreamKey) -> Self {
        Self { given: given(key, &[]), context: at(0) }
    }

    /// Time passes.
    #[must_use]
    pub fn after(mut self, duration: Duration) -> Self {
        self.context.now = self.context.now.plus(duration);
        self
    }

    /// Changes what commands are decided on besides the state, from now on: the time, the store's
    /// generation and when it was restored, the lease of a session, the epoch of keys. The id and the
    /// next version are the scenario's.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Context)) -> Self {
        change(&mut self.context);
        self
    }

    /// The time of now.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.context.now
    }

    /// The state that it has come to.
    #[must_use]
    pub const fn state(&self) -> &A {
        &self.given.state
    }
}

impl<A: Aggregate + Debug> Scenario<A>
where
    A::Event: PartialEq,
{
    /// A command was carried out.
    #[track_caller]
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "a scenario reads as a sentence")]
    pub fn given(mut self, command: A::Command) -> Self {
        let context = self.context();
        self.given.done(&command, context);
        self
    }

    /// Events have happened, whatever the rules say of them. Where a row holds content that no event
    /// may hold, its command must be [given](Self::given) instead.
    #[track_caller]
    #[must_use]
    pub fn happened(mut self, events: &[A::Event]) -> Self {
        self.given.happens(events);
        self
    }

    /// A row of another key stands: one that a command of this key must not find, such as the row of a
    /// connection that is [being forgotten](crate::domain::forgetting_key).
    #[must_use]
    pub fn beside(mut self, row: Row) -> Self {
        self.given.put_beside(row);
        self
    }

    /// A command comes. What it does is not carried out here: [`Then::and_then`] goes on with it.
    #[track_caller]
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "a scenario reads as a sentence")]
    pub fn when(&self, command: A::Command) -> Then<'_, A> {
        self.given.when(&command, self.context())
    }

    fn context(&self) -> Context {
        let number = u128::from(self.given.version.unsigned_abs()) + 1;
        Context { id: Uuid::from_u128(number), ..self.context.clone() }
    }
}

impl<A: Aggregate + Debug> Then<'_, A>
where
    A::Event: PartialEq,
{
    /// The scenario with what the command came to; a refusal has changed nothing.
    #[track_caller]
    #[must_use]
    pub fn and_then(self) -> Scenario<A> {
        Scenario { given: self.after(), context: self.context }
    }
}
