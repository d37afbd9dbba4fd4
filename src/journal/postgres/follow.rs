//! Hearing of other hosts' commits, and telling them of ours.
//!
//! A notification says no more than that something was committed, so one that is lost costs time
//! alone: the newest position is asked for once a second at any rate.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::connect::Connector;
use super::query::bound;
use super::read::get;
use super::readers::Readers;
use super::statement::Statement;
use crate::base::Result;

/// What hosts on one database listen to.
const CHANNEL: &str = "connector_journal";
/// Pause between two looks at the newest position, and between two tries to listen.
const POLL_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two notifications: commits of that time are told as one.
const TELL_PAUSE: Duration = Duration::from_millis(5);

/// The tasks that follow other hosts. They end with it.
#[derive(Debug)]
pub(super) struct Follower {
    committed: watch::Sender<i64>,
    to_tell: Arc<Notify>,
    tasks: Vec<AbortHandle>,
}

impl Follower {
    pub(super) async fn start(
        handle: &Handle,
        connector: &Connector,
        readers: &Arc<Readers>,
    ) -> Result<Self> {
        let committed = watch::Sender::new(newest(readers).await?);
        let to_tell = Arc::new(Notify::new());
        let mut tasks = vec![
            handle.spawn(poll(Arc::clone(readers), committed.clone())),
            handle.spawn(tell(Arc::clone(readers), Arc::clone(&to_tell))),
        ];
        if !connector.is_pooled() {
            let options = connector.connect_options().clone();
            let listen = listen(options, Arc::clone(readers), committed.clone());
            tasks.push(handle.spawn(listen));
        }
        let tasks = tasks.iter().map(tokio::task::JoinHandle::abort_handle).collect();
        Ok(Self { committed, to_tell, tasks })
    }

    pub(super) fn committed(&self) -> watch::Receiver<i64> {
        self.committed.subscribe()
    }

    /// This store has committed up to a position.
    pub(super) fn announce(&self, position: i64) {
        if announce(&self.committed, position) {
            self.to_tell.notify_one();
        }
    }

    pub(super) fn stop(&self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop();
    }
}

fn announce(committed: &watch::Sender<i64>, position: i64) -> bool {
    committed.send_if_modified(|last| {
        let has_grown = position > *last;
        *last = position.max(*last);
        has_grown
    })
}

async fn newest(readers: &Readers) -> Result<i64> {
    let sql = "SELECT max(position) FROM connector_journal";
    let rows = readers.all(Statement::new(sql), "looking for new events").await?;
    Ok(rows.first().map_or(Ok(None), |row| get(row, 0))?.unwrap_or(0))
}

async fn poll(readers: Arc<Readers>, committed: watch::Sender<i64>) {
    let mut turns = interval(POLL_PAUSE);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        match newest(&readers).await {
            Ok(position) => drop(announce(&committed, position)),
            Err(error) => tracing::debug!(%error, "the newest position can't be read"),
        }
    }
}

async fn tell(readers: Arc<Readers>, to_tell: Arc<Notify>) {
    let mut turns = interval(TELL_PAUSE);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        to_tell.notified().await;
        turns.tick().await;
        let mut statement = Statement::new("SELECT 1 FROM pg_notify($1, '')");
        let told = match bound(statement.add(CHANNEL)) {
            Ok(()) => readers.all(statement, "telling other hosts of a commit").await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = told {
            tracing::debug!(%error, "other hosts hear of a commit later");
        }
    }
}

async fn listen(
    options: sqlx::postgres::PgConnectOptions,
    readers: Arc<Readers>,
    committed: watch::Sender<i64>,
) {
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    let mut turns = interval(POLL_PAUSE);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        let Ok(mut listener) = PgListener::connect_with(&pool).await else { continue };
        if listener.listen(CHANNEL).await.is_err() {
            continue;
        }
        while listener.recv().await.is_ok() {
            let Ok(position) = newest(&readers).await else { continue };
            // Also when it has not grown: an earlier position may have become visible.
            committed.send_modify(|last| *last = position.max(*last));
        }
    }
}
