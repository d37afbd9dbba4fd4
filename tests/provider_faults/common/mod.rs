//! Short names for the data of the tests, and the two clients that they share.

mod mirror;
mod naive;
mod writing;

pub use mirror::{Failure, Mirror};
pub use naive::Naive;

use std::sync::Arc;
use std::time::Duration;

use connector_store::testing::{Condition, Item, Provider, SimClock, Write};
use connector_store::{
    ConnectorName, Holder, Json, OperationId, OperationKind, OwnerDid, PartitionId, SourceId,
};

pub const SECOND: Duration = Duration::from_secs(1);
/// Entities of a page.
pub const PAGE: usize = 3;
/// The account that the tests' content is in.
pub const ACCOUNT: &str = "account-1";

pub fn owner() -> OwnerDid {
    OwnerDid::new("did:web:owner-1").unwrap()
}

pub fn calendar() -> ConnectorName {
    ConnectorName::new("calendar").unwrap()
}

pub fn host() -> Holder {
    Holder::new("host-1").unwrap()
}

pub fn home() -> PartitionId {
    PartitionId::new("home").unwrap()
}

pub fn source(name: impl std::fmt::Display) -> SourceId {
    SourceId::new(name.to_string()).unwrap()
}

pub fn operation(name: impl std::fmt::Display) -> OperationId {
    OperationId::new(name.to_string()).unwrap()
}

/// The content of an entity.
pub fn titled(title: impl std::fmt::Display) -> Json {
    Json::from_value("content", &serde_json::json!({ "title": title.to_string() })).unwrap()
}

/// The title in a content; none where nobody can take it.
pub fn title(content: &Json) -> Option<String> {
    Some(content.to_value().get("title")?.as_str()?.to_owned())
}

/// A provider with ten entities, `e0` to `e9`.
pub fn provider() -> (Provider, SimClock) {
    let clock = SimClock::default();
    let provider = Provider::new(Arc::new(clock.clone()), 1);
    for n in 0..10 {
        provider.put(&home(), &source(format!("e{n}")), &titled(format!("event {n}")));
    }
    (provider, clock)
}

/// A mirror of all that the provider has.
pub async fn synced(provider: &Provider, clock: &SimClock) -> Mirror {
    let mut mirror = Mirror::new(provider, clock).await;
    mirror.round().await.unwrap();
    assert_eq!(mirror.shown(), truth(provider));
    mirror
}

/// What a round was refused with by the store.
pub fn code(result: Result<(), Failure>) -> &'static str {
    match result {
        Ok(()) => "ok",
        Err(Failure::Store(error)) => error.code(),
        Err(failure) => panic!("{failure:?}"),
    }
}

/// A write without a condition, so that nothing but the client keeps it from being done twice.
pub fn plain_write(name: &str, op: OperationKind, content: Option<Json>) -> Write {
    Write {
        operation_id: operation(format!("op-{name}")),
        partition: home(),
        op,
        source_id: source(name),
        content,
        condition: Condition::None,
    }
}

/// Ids and titles of what stands at the provider.
pub fn truth(provider: &Provider) -> Vec<(String, Option<String>)> {
    let pair = |item: Item| (item.source_id.as_str().to_owned(), title(&item.content));
    provider.truth(&home()).into_iter().map(pair).collect()
}
