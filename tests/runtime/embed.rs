//! A store embeds in any program: either flavour of tokio, or none at all.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use connector_store::{
    ConnectorRef, DocumentRef, EventStream, Lease, MemoryJournal, Session, Store, UnitOfWork,
};

use crate::common::*;

const fn is_a_handle<T: Clone + Send + Sync + 'static>() {}
const fn is_sendable<T: Send + 'static>() {}

const _: () = {
    is_a_handle::<Store>();
    is_a_handle::<DocumentRef>();
    is_a_handle::<ConnectorRef>();
    is_a_handle::<Lease>();
    is_a_handle::<Session>();
    is_sendable::<UnitOfWork>();
    is_sendable::<EventStream>();
};

fn is_send<F: Future + Send>(future: F) -> F {
    future
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// An executor of the standard library alone.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

async fn work(store: Store) {
    let a = store.document(&document("a"));
    is_send(set_trim(&a, 1)).await.unwrap();
    assert_eq!(trim(&a).await, Some(1));
    let unit = is_send(store.unit_of_work([document_key("a")])).await.unwrap();
    set_trim(&unit.document(&document("a")), 2).await.unwrap();
    is_send(unit.commit()).await.unwrap();
    let lease = connector(&store, "o").acquire_lease(&holder("h"), SECOND).await.unwrap();
    is_send(a.sweep_document_rows()).await.unwrap();
    lease.release().await.unwrap();
    store.close().await.unwrap();
}

async fn memory() {
    work(Store::builder().memory(&MemoryJournal::new()).open().await.unwrap()).await;
}

async fn sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    work(Store::builder().sqlite(&path).open().await.unwrap()).await;
    // The file is free again, and holds what was answered.
    let store = Store::builder().sqlite(&path).open().await.unwrap();
    assert_eq!(trim(&store.document(&document("a"))).await, None);
    assert_sound(&store).await;
    store.close().await.unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn in_a_current_thread_runtime() {
    bounded(memory()).await;
    bounded(sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_multi_thread_runtime() {
    bounded(memory()).await;
    bounded(sqlite()).await;
}

#[test]
fn outside_of_any_runtime() {
    block_on(memory());
    block_on(sqlite());
}

#[test]
fn a_store_outlives_the_runtime_that_opened_it() {
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let journal = MemoryJournal::new();
    let store =
        runtime().block_on(async { Store::builder().memory(&journal).open().await.unwrap() });
    // A runtime without timers: the store brings its own.
    runtime().block_on(work(store));
}
