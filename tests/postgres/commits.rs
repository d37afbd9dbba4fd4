//! A commit whose connection is lost: done once, never answered as failed, never twice. Servers that
//! restart, networks that stand still, connections that are not to be had.

use std::time::Duration;

use connector_store::journal::PostgresOptions;
use connector_store::{Error, ErrorClass};
use tokio::time::Instant;
use uuid::Uuid;

use connector_store::testing::Stop;

use crate::common::*;
use crate::proxy::Cut;
use crate::world::{Host, World};

/// The time of a call where a test waits for its end.
const SHORT: Duration = Duration::from_secs(2);
/// What a call may take beyond its time on a machine that has much else to do.
const SLACK: Duration = Duration::from_secs(5);

/// Calls until it is done, as a caller does that is told that it may.
async fn insist<T, F: Future<Output = Result<T, Error>>>(call: impl Fn() -> F) -> T {
    bounded(async {
        loop {
            match call().await {
                Ok(answer) => return answer,
                Err(error) => assert_ne!(error.class(), ErrorClass::Refused, "{error:?}"),
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// The host works, and all that is stored fits together.
async fn assert_well(host: &Host) {
    let handle = host.store.document(&document("well"));
    insist(|| set_trim(&handle, 1)).await;
    let read = insist(|| handle.entity_trim()).await.unwrap();
    assert_eq!(read.trimmed_fields, json(1));
    let report = insist(|| host.store.verify()).await;
    assert!(report.is_sound(), "{:?}", report.damages);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_cut_off_is_done_once_and_answered_as_done() {
    let Some(world) = World::new() else { return };
    let (proxy, host) = world.proxied(COMMAND_TIMEOUT).await;
    let cuts = [Cut::Before, Cut::During, Cut::After];
    for (cut, id) in cuts.iter().flat_map(|cut| [(cut, None), (cut, Some(Uuid::now_v7()))]) {
        let case = format!("{cut:?}, own id: {}", id.is_some());
        let before = world.events();
        let handle = connector(&host.store, "o");
        let handle = id.map_or(handle.clone(), |id| handle.with_command_id(id));
        proxy.at_commit(*cut);
        let lease = bounded(handle.acquire_lease(&holder("a"), SECOND)).await.unwrap();
        assert!(proxy.is_done(), "{case}");
        assert_eq!(world.events(), before + 1, "{case}");
        if id.is_some() {
            let again = handle.acquire_lease(&holder("a"), SECOND).await.unwrap();
            assert_eq!((again.token(), world.events()), (lease.token(), before + 1), "{case}");
        }
        lease.renew(SECOND).await.unwrap();
    }
    // What a closure makes is decided once, too.
    for (cut, counted) in cuts.into_iter().zip(1..) {
        proxy.at_commit(cut);
        bounded(count_up(&connector(&host.store, "o"))).await.unwrap();
        assert_eq!(count(&connector(&host.store, "o")).await, counted, "{cut:?}");
    }
    assert_well(&host).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cut_off_commit_took_is_given_to_its_caller() {
    let Some(world) = World::new() else { return };
    let (proxy, host) = world.proxied(COMMAND_TIMEOUT).await;
    for cut in [Cut::Before, Cut::During, Cut::After] {
        let state = format!("{cut:?}");
        let record = pending_auth(&state, 5);
        host.store.create_pending_auth(record.clone()).await.unwrap();
        proxy.at_commit(cut);
        let state = connector_store::Secret::new(state);
        let taken = bounded(host.store.consume_pending_auth(&state)).await.unwrap();
        assert_eq!(taken, record, "{cut:?}");
        let again = host.store.consume_pending_auth(&state).await;
        assert_eq!(code(again), "CONNECTOR_ALREADY_CONSUMED");
    }
    assert_well(&host).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_cut_at_any_byte_tears_no_command() {
    let Some(world) = World::new() else { return };
    let (proxy, host) = world.proxied(COMMAND_TIMEOUT).await;
    let handle = host.store.document(&document("a"));
    set_trim(&handle, 0).await.unwrap();
    let before = proxy.bytes();
    set_trim(&handle, 0).await.unwrap();
    let whole = proxy.bytes() - before;
    let stored = world.events();
    const CUTS: usize = 24;
    for at in 0..CUTS {
        proxy.cut_after_bytes(whole * at / CUTS);
        let value = i64::try_from(at).unwrap();
        while let Err(error) = bounded(set_trim(&handle, value)).await {
            assert!(error.is_retryable(), "{at} of {whole}: {error:?}");
            assert_eq!(world.events(), stored + value, "nothing happened: {at} of {whole}");
        }
        // What the write did not need of the bytes, reads use up.
        loop {
            let read = insist(|| handle.entity_trim()).await.unwrap();
            assert_eq!(read.trimmed_fields, json(value), "{at} of {whole}");
            if proxy.is_done() {
                break;
            }
        }
        assert_eq!(world.events(), stored + value + 1, "{at} of {whole}");
    }
    assert_well(&host).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_cannot_be_looked_up_in_time_is_unknown_and_repeated_by_its_id() {
    let Some(world) = World::new() else { return };
    let (proxy, host) = world.proxied(SHORT).await;
    let trimmed = host.store.document(&document("a"));
    for (cut, is_written) in [(Cut::Before, 0), (Cut::After, 1)] {
        insist(|| set_trim(&trimmed, 1)).await;
        let (id, before) = (Uuid::now_v7(), world.events());
        let handle = connector(&host.store, "o").with_command_id(id);
        proxy.at_commit_and_close(cut);
        let begun = Instant::now();
        let error = bounded(handle.acquire_lease(&holder("a"), SECOND)).await.unwrap_err();
        assert!(begun.elapsed() < SHORT + SLACK, "{cut:?}: {:?}", begun.elapsed());
        let is_unknown = matches!(error, Error::OutcomeUnknown { command_id } if command_id == id);
        assert!(is_unknown, "{cut:?}: {error:?}");
        assert_eq!(world.events() - before, is_written, "{cut:?}");
        proxy.reopen();
        let same = holder("a");
        insist(|| handle.acquire_lease(&same, SECOND)).await;
        assert_eq!(world.events(), before + 1, "{cut:?}");
    }
    assert_well(&host).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_outlives_its_time_while_the_network_stands_still() {
    let Some(world) = World::new() else { return };
    let (proxy, host) = world.proxied(SHORT).await;
    let handle = host.store.document(&document("a"));
    set_trim(&handle, 1).await.unwrap();
    proxy.stall(true);
    let begun = Instant::now();
    let calls = [
        code(bounded(set_trim(&handle, 2)).await),
        code(bounded(handle.entity_trim()).await),
        code(bounded(host.store.begun_sweeps(None, 1)).await),
        code(bounded(handle.has_document_connector_work()).await),
    ];
    assert!(begun.elapsed() < 4 * SHORT + SLACK, "{:?}", begun.elapsed());
    let ends = ["CONNECTOR_OUTCOME_UNKNOWN", "CONNECTOR_TIMED_OUT", "CONNECTOR_STORAGE"];
    assert!(calls.iter().all(|end| ends.contains(end)), "{calls:?}");
    proxy.stall(false);
    assert_well(&host).await;
    // The write may have come through, but no other than it.
    let read = insist(|| handle.entity_trim()).await.unwrap();
    assert!([json(1), json(2)].contains(&read.trimmed_fields));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_server_is_out_of_reach_errors_are_retryable_and_the_host_goes_on_by_itself() {
    let Some(world) = World::new() else { return };
    let (proxy, host) = world.proxied(SHORT).await;
    let handle = host.store.document(&document("a"));
    set_trim(&handle, 1).await.unwrap();
    proxy.close();
    for _ in 0..2 {
        let error = bounded(set_trim(&handle, 2)).await.unwrap_err();
        assert!(error.is_retryable(), "nothing was sent: {error:?}");
        let error = bounded(handle.entity_trim()).await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
    }
    proxy.reopen();
    let read = insist(|| handle.entity_trim()).await.unwrap();
    assert_eq!(read.trimmed_fields, json(1));
    assert_well(&host).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_loses_and_doubles_nothing_that_was_acknowledged() {
    const KEYS: usize = 6;
    const EACH: i64 = 20;
    let Some(world) = World::new() else { return };
    let hosts = world.hosts().await;
    let writers = (0..KEYS).map(|key| {
        let handle = hosts[key % 2].store.document(&document(key));
        tokio::spawn(async move {
            for value in 0..EACH {
                let with_id = handle.with_command_id(Uuid::now_v7());
                insist(|| set_trim(&with_id, value)).await;
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let quarter = i64::try_from(KEYS).unwrap() * EACH / 4;
    for (how, written) in [(Stop::Fast, quarter), (Stop::Immediate, 2 * quarter)] {
        world.until_events(written).await;
        world.server.restart(how).unwrap();
    }
    for writer in writers {
        bounded(writer).await.unwrap();
    }
    assert_eq!(world.events(), i64::try_from(KEYS).unwrap() * EACH, "each command once");
    for key in 0..KEYS {
        let handle = hosts[0].store.document(&document(key));
        let read = insist(|| handle.entity_trim()).await.unwrap();
        assert_eq!(read.trimmed_fields, json(EACH - 1));
    }
    for host in &hosts {
        assert_well(host).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_commands_need_no_more_connections_than_a_host_has() {
    let few = [("max_connections", "10"), ("superuser_reserved_connections", "0")];
    let Some(world) = World::with(&few) else { return };
    let proxy = crate::proxy::Proxy::start(world.server.port()).await;
    let options = || {
        let options = PostgresOptions::new(proxy.url(&world.database)).readers(2);
        options.connect_timeout(SHORT / 2)
    };
    let host = world.open(options(), |builder| builder.command_timeout(SHORT)).await.unwrap();
    let mut others = hog(&world).await;
    let commands = (0..500).map(|index| {
        let store = host.store.clone();
        tokio::spawn(async move {
            let handle = store.document(&document(index % 50));
            match index % 3 {
                0 => set_trim(&handle, index).await,
                1 => handle.entity_trim().await.map(drop),
                _ => store.begun_sweeps(None, 10).await.map(drop),
            }
        })
    });
    for command in commands.collect::<Vec<_>>() {
        // Each may come late where all come at once, but it comes, or is told to come again.
        let answer = bounded(command).await.unwrap();
        assert!(answer.as_ref().err().is_none_or(Error::is_retryable), "{answer:?}");
    }
    let refused = world.open(options(), |builder| builder).await.err().unwrap();
    assert!(refused.is_retryable(), "{refused:?}");
    // Its own connections are lost, and others take their places.
    proxy.close();
    loop {
        others.append(&mut hog(&world).await);
        if connections(&mut others[0]).await == others.len() {
            break;
        }
    }
    proxy.reopen();
    let handle = host.store.document(&document("a"));
    let begun = Instant::now();
    let error = bounded(set_trim(&handle, 1)).await.unwrap_err();
    assert!(error.is_retryable() && begun.elapsed() < SHORT + SLACK, "{error:?}");
    drop(others);
    assert_well(&host).await;
    let mine = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                AND pid <> pg_backend_pid()";
    assert!(world.number(mine) <= 4, "two readers, a writer, a listener");
}

/// Takes connections until there are none.
async fn hog(world: &World) -> Vec<sqlx::PgConnection> {
    use sqlx::Connection as _;
    let mut taken = Vec::new();
    while let Ok(connection) = sqlx::PgConnection::connect(&world.url()).await {
        taken.push(connection);
    }
    taken
}

/// How many connections the server has.
async fn connections(session: &mut sqlx::PgConnection) -> usize {
    let clients = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
    let count: i64 = sqlx::query_scalar(clients).fetch_one(session).await.unwrap();
    usize::try_from(count).unwrap()
}
