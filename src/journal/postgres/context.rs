//! The runtime that the connections live on, lent to whoever waits for them: a caller may be on
//! another one, or on none.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use crate::journal::BoxFuture;

/// A future that finds the runtime's timers and sockets at every step.
pub(super) struct Within<'a, T> {
    handle: Handle,
    future: BoxFuture<'a, T>,
}

impl<'a, T> Within<'a, T> {
    pub(super) fn new(handle: &Handle, future: impl Future<Output = T> + Send + 'a) -> Self {
        Self { handle: handle.clone(), future: Box::pin(future) }
    }
}

impl<T> Future for Within<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        let _entered = this.handle.enter();
        this.future.as_mut().poll(context)
    }
}
