//! The actor runtime: directories of key actors, the repository that writes for them all, units of
//! work, time and limits.
//!
//! The only folder that names actix. Nothing of it is public: `store` speaks to it.

mod call;
mod carry_out;
mod clock;
mod decided;
mod directory;
mod env;
mod inbox;
mod key_actor;
mod life;
mod limiter;
mod repository;
mod request;
mod sampler;
#[cfg(feature = "testing")]
mod simulated;
mod system;
pub mod telemetry;
mod ticket;
mod under_way;
mod unit;
mod verifier;

pub use clock::{Clock, IdSource, Jitter};

pub(crate) use call::CallOptions;
pub(crate) use env::{Bounds, Env, Threads};
pub(crate) use life::Standing;
pub(crate) use request::Intent;
#[cfg(feature = "testing")]
pub(crate) use simulated::ThreadSystem;
pub(crate) use system::{Runtime, Sources, StorageOpener};
pub(crate) use unit::{AnyKey, HeldKey, Unit, begin};
pub(crate) use verifier::{RecordRules, Verified};

use std::sync::Arc;
use std::sync::atomic::Ordering;

use call::IdsUnderWay;
use clock::within;
use directory::Directory;
use repository::{Work, unavailable};

use crate::base::{Error, Result, StreamKey};
use crate::domain::Aggregate;
use crate::domain::auth::PendingAuth;
use crate::domain::connector::Connector;
use crate::domain::document::Document;

/// The directories of all kinds of keys.
pub(crate) struct Directories {
    pub(crate) env: Arc<Env>,
    documents: Arc<Directory<Document>>,
    connectors: Arc<Directory<Connector>>,
    auths: Arc<Directory<PendingAuth>>,
    ids_under_way: IdsUnderWay,
}

impl Directories {
    fn new(env: Arc<Env>, arbiters: &[actix_rt::ArbiterHandle]) -> Self {
        Self {
            documents: Directory::new(Arc::clone(&env), arbiters.to_vec()),
            connectors: Directory::new(Arc::clone(&env), arbiters.to_vec()),
            auths: Directory::new(Arc::clone(&env), arbiters.to_vec()),
            ids_under_way: IdsUnderWay::default(),
            env,
        }
    }

    /// Keys in memory.
    pub(crate) fn active_keys(&self) -> usize {
        self.documents.active() + self.connectors.active() + self.auths.active()
    }

    /// What is told from now on of a document stands while this holds.
    pub(crate) fn standing(&self, document: &StreamKey) -> Result<Option<Standing>> {
        self.documents.standing(document)
    }

    fn sweep(&self) {
        self.documents.sweep();
        self.connectors.sweep();
        self.auths.sweep();
        telemetry::level(telemetry::IN_FLIGHT, self.env.limiter.in_flight());
    }

    /// Passivates every key that is in memory now.
    pub(crate) fn passivate_all(&self) {
        self.documents.stop_all();
        self.connectors.stop_all();
        self.auths.stop_all();
    }

    /// Counts every key out: the store has ended.
    fn forget_all(&self) {
        self.documents.forget_all();
        self.connectors.forget_all();
        self.auths.forget_all();
    }

    /// Passivates the actors of authorizations whose streams were dropped.
    pub(crate) fn passivate_auth(&self, key: &StreamKey) {
        self.auths.stop_key(key);
    }
}

impl Env {
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closing.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Lets the storage remove what deleted events have left behind.
    pub(crate) fn clean_storage(&self) {
        self.repository.hand_over(Work::Idle);
    }

    /// Ends once the store is closing.
    pub(crate) async fn closing(&self) {
        // The sender lives as long as the store, so the wait ends only with the word.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// What the storage answers, within a command's time.
    pub(crate) async fn answer_in_time<T>(
        &self,
        question: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        within(&self.time, self.bounds.command_timeout, question).await.ok_or(Error::TimedOut)?
    }
}

/// An aggregate that has a directory.
pub(crate) trait Routed: Aggregate {
    fn directory(directories: &Directories) -> &Directory<Self>;
    fn held(key: &mut AnyKey) -> Option<&mut HeldKey<Self>>;
}

impl Routed for Document {
    fn directory(directories: &Directories) -> &Directory<Self> {
        &directories.documents
    }

    fn held(key: &mut AnyKey) -> Option<&mut HeldKey<Self>> {
        match key {
            AnyKey::Document(held) => Some(held),
            _ => None,
        }
    }
}

impl Routed for Connector {
    fn directory(directories: &Directories) -> &Directory<Self> {
        &directories.connectors
    }

    fn held(key: &mut AnyKey) -> Option<&mut HeldKey<Self>> {
        match key {
            AnyKey::Connector(held) => Some(held),
            _ => None,
        }
    }
}

impl Routed for PendingAuth {
    fn directory(directories: &Directories) -> &Directory<Self> {
        &directories.auths
    }

    fn held(key: &mut AnyKey) -> Option<&mut HeldKey<Self>> {
        match key {
            AnyKey::Auth(held) => Some(held),
            _ => None,
        }
    }
}
