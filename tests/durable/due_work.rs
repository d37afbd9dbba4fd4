//! Nothing waits silently: what is due is given when it is due, once for each time it has.

use std::time::Duration;

use connector_store::{
    DeferReason, DueStream, DueWork, SweepOutcome, Timestamp, WatchIdentity, Work,
};

use super::world::{
    Account, SECOND, World, account, document, expectation, on_every_storage, operation_id,
    partition, source,
};

fn work_of(account: &Account, name: &str, on: &str) -> Work {
    Work::Operation {
        operation_id: operation_id(name),
        document_id: document(on),
        owner: account.owner.clone(),
        connector: account.connector.clone(),
    }
}

async fn ready(stream: &mut DueStream) -> Vec<DueWork> {
    let mut found = Vec::new();
    while let Some(work) = stream.next_ready().await.unwrap() {
        found.push(work);
    }
    found
}

/// The names of what is given, in order.
async fn names(stream: &mut DueStream) -> Vec<&'static str> {
    let name = |due: DueWork| match due.work {
        Work::Operation { .. } => "operation",
        Work::SyncLease { .. } => "lease",
        Work::Candidate { .. } => "candidate",
        Work::Watch { .. } => "watch",
        Work::DocumentSweep { .. } => "document sweep",
        Work::OwedSweep { .. } => "owed sweep",
        _ => "another",
    };
    ready(stream).await.into_iter().map(name).collect()
}

/// One of each kind: what is due at once, then at 10, 20, 30 and 40 seconds.
async fn one_of_each(world: &World, account: &Account) {
    let connector = world.store.connector(&account.owner, &account.connector);
    connector.cursor_lost(&partition()).await.unwrap();
    world.candidates(account, &["gone"]).await;
    connector.cursor_lost(&partition()).await.unwrap();
    world.store.document(&document("swept")).begin_document_sweep().await.unwrap();
    world.claim(account, "claimed", "one").await;
    world.lease(account, 20 * SECOND).await;
    let (owner, name) = (account.owner.clone(), account.connector.clone());
    let identity = WatchIdentity { owner, connector: name, source_id: source("entity") };
    let watched = world.store.document(&document("watched"));
    watched.arm_watch(&identity, &expectation(30 * SECOND)).await.unwrap();
    let deferred = world.claim(account, "deferred", "two").await;
    deferred.defer(DeferReason::Offline, 40 * SECOND, false).await.unwrap();
}

#[tokio::test]
async fn every_kind_of_work_is_given_at_its_time() {
    on_every_storage(async |world| {
        let account = account("o", "folder");
        let start = world.now();
        one_of_each(&world, &account).await;
        assert_eq!(world.store.next_due().await.unwrap(), Some(start));
        let mut stream = world.store.due_work();
        let at_once = ["candidate", "document sweep", "owed sweep"];
        assert_eq!(names(&mut stream).await, at_once);
        for (pause, expected) in
            [(9, None), (1, Some("operation")), (10, Some("lease")), (10, Some("watch"))]
        {
            world.clock.advance(SECOND * pause);
            assert_eq!(names(&mut stream).await, expected.into_iter().collect::<Vec<_>>());
        }
        world.clock.advance(10 * SECOND);
        let [due] = &ready(&mut stream).await[..] else { panic!("the deferred operation") };
        assert_eq!(due.work, work_of(&account, "deferred", "two"));
        assert_eq!(due.due_at, start.plus(40 * SECOND));
        world.clock.advance(1_000 * SECOND);
        assert_eq!(names(&mut stream).await, [""; 0], "each is given once for each time it has");
    })
    .await;
}

#[tokio::test]
async fn what_waits_waits_over_a_restart() {
    on_every_storage(async |world| {
        let account = account("o", "folder");
        one_of_each(&world, &account).await;
        let world = world.reopen().await;
        let mut stream = world.store.due_work();
        assert_eq!(names(&mut stream).await, ["candidate", "document sweep", "owed sweep"]);
        world.clock.advance(100 * SECOND);
        let world = world.reopen().await;
        let all = names(&mut world.store.due_work()).await;
        let later = ["operation", "lease", "watch", "operation"];
        assert_eq!(
            all,
            ["candidate", "document sweep", "owed sweep"]
                .into_iter()
                .chain(later)
                .collect::<Vec<_>>()
        );
    })
    .await;
}

/// The stream sleeps until exactly the next time, not longer and in no loop.
#[tokio::test]
async fn the_stream_wakes_at_the_next_time() {
    on_every_storage(async |world| {
        let account = account("o", "folder");
        world.lease(&account, 20 * SECOND).await;
        let mut stream = world.store.due_work();
        let waiting = tokio::spawn(async move { stream.next().await.map(|due| (due, stream)) });
        world.clock.someone_sleeps_for(20 * SECOND).await;
        assert!(!waiting.is_finished());
        world.clock.advance(20 * SECOND);
        let (due, _) = waiting.await.unwrap().unwrap();
        let Account { owner, connector } = account;
        assert_eq!(due.work, Work::SyncLease { owner, connector });
    })
    .await;
}

#[tokio::test]
async fn the_stream_wakes_at_a_commit() {
    on_every_storage(async |world| {
        let account = account("o", "folder");
        let mut stream = world.store.due_work();
        assert_eq!(stream.next_ready().await.unwrap(), None);
        let waiting = tokio::spawn(async move { stream.next().await.map(|due| (due, stream)) });
        world.lease(&account, 20 * SECOND).await;
        world.store.document(&document("swept")).begin_document_sweep().await.unwrap();
        let (due, mut stream) = waiting.await.unwrap().unwrap();
        assert_eq!(due.work, Work::DocumentSweep { document_id: document("swept") });
        // A time that comes closer counts too.
        let waiting = tokio::spawn(async move { stream.next().await });
        world.clock.someone_sleeps_for(20 * SECOND).await;
        world.claim(&account, "op", "d").await;
        world.clock.someone_sleeps_for(10 * SECOND).await;
        world.clock.advance(10 * SECOND);
        assert_eq!(waiting.await.unwrap().unwrap().work, work_of(&account, "op", "d"));
    })
    .await;
}

#[tokio::test]
async fn a_changed_time_gives_the_work_again() {
    on_every_storage(async |world| {
        let account = account("o", "folder");
        let lease = world.lease(&account, 10 * SECOND).await;
        let mut stream = world.store.due_work();
        world.clock.advance(10 * SECOND);
        assert_eq!(names(&mut stream).await, ["lease"]);
        lease.renew(10 * SECOND).await.unwrap();
        assert_eq!(names(&mut stream).await, [""; 0]);
        world.clock.advance(9 * SECOND);
        assert_eq!(names(&mut stream).await, [""; 0]);
        world.clock.advance(SECOND);
        assert_eq!(names(&mut stream).await, ["lease"]);
        lease.release().await.unwrap();
        world.clock.advance(100 * SECOND);
        assert_eq!(names(&mut stream).await, [""; 0]);
        assert_eq!(world.store.next_due().await.unwrap(), None);
    })
    .await;
}

/// Something may become due at a time that the stream has passed long ago.
#[tokio::test]
async fn a_candidate_waits_for_the_operations_of_its_document() {
    on_every_storage(async |world| {
        let account = account("o", "folder");
        let claimed = world.claim(&account, "op", "busy").await;
        world.candidates(&account, &["busy", "free"]).await;
        let connector = world.store.connector(&account.owner, &account.connector);
        let due = async || -> Vec<String> {
            let due = connector.due_candidates(10).await.unwrap();
            due.into_iter().map(|candidate| candidate.document_id.to_string()).collect()
        };
        let mut stream = world.store.due_work();
        assert_eq!(
            (names(&mut stream).await, due().await),
            (vec!["candidate"], vec!["free".into()])
        );
        world.clock.advance(5 * SECOND);
        claimed.defer(DeferReason::RateLimited, SECOND, false).await.unwrap();
        assert_eq!((names(&mut stream).await, due().await), (vec![], vec!["free".into()]));
        world.clock.advance(SECOND);
        assert_eq!(names(&mut stream).await, ["operation"]);
        let claimed = world.claim(&account, "op", "busy").await;
        claimed.finalize_dead("refused").await.unwrap();
        assert_eq!(names(&mut stream).await, ["candidate"]);
        assert_eq!(due().await, ["busy", "free"]);
    })
    .await;
}

#[tokio::test]
async fn a_backlog_of_many_reads_is_given_whole_and_once() {
    on_every_storage(async |world| {
        let account = account("o", "folder");
        let names: Vec<String> = (0..1_203).map(|at| format!("d{at:04}")).collect();
        let mut all: Vec<&str> = names.iter().map(String::as_str).collect();
        let connector = world.store.connector(&account.owner, &account.connector);
        world.candidates(&account, &all).await;
        let mut stream = world.store.due_work();
        let mut given = Vec::new();
        while let Some(due) = stream.next_ready().await.unwrap() {
            let Work::Candidate { candidate, .. } = due.work else { panic!("{due:?}") };
            // One that is handled on the way does not disturb the others.
            if given.len() == 600 {
                connector.record_sweep_outcome(&candidate, SweepOutcome::Unknown).await.unwrap();
            }
            given.push(candidate.document_id.to_string());
        }
        all.sort_unstable();
        assert_eq!(given, all);
        assert_eq!(stream.next_ready().await.unwrap(), None);
        world.clock.advance(Duration::from_secs(3_600));
        assert_eq!(ready(&mut stream).await.len(), 1, "the one that has another time");
    })
    .await;
}

#[tokio::test]
async fn a_dropped_wait_loses_nothing_and_a_closed_store_ends_it() {
    on_every_storage(async |world| {
        let mut stream = world.store.due_work();
        for _ in 0..3 {
            let next = stream.next();
            tokio::pin!(next);
            let polled = futures_poll(next.as_mut()).await;
            assert!(polled.is_none());
        }
        world.store.document(&document("swept")).begin_document_sweep().await.unwrap();
        assert_eq!(names(&mut stream).await, ["document sweep"]);
        let waiting = tokio::spawn(async move { stream.next().await });
        world.store.close().await.unwrap();
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.code(), "CONNECTOR_CLOSED");
    })
    .await;
}

/// The output, if one poll gives it.
async fn futures_poll<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        let polled = std::pin::Pin::new(&mut future).poll(context);
        std::task::Poll::Ready(match polled {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test]
async fn nothing_waits_in_a_new_store() {
    on_every_storage(async |world| {
        assert_eq!(world.store.next_due().await.unwrap(), None::<Timestamp>);
        assert_eq!(world.store.due_work().next_ready().await.unwrap(), None);
    })
    .await;
}
