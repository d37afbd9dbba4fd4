//! The first start, by several hosts at once, on databases that are new, newer, half made or not ours.

use connector_store::{Error, Store};
use sqlx::Connection as _;

use crate::common::*;
use crate::world::{World, run};

const ADVISORY_LOCKS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";

async fn open(world: &World) -> Result<Store, Error> {
    world.builder().postgres(world.url()).open().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_start_at_once_on_a_new_database_all_open_it() {
    const ROUNDS: usize = 3;
    for round in 0..ROUNDS {
        let Some(world) = World::new() else { return };
        let hosts: Vec<_> = (0..5)
            .map(|_| {
                let builder = world.builder().postgres(world.url());
                tokio::spawn(builder.open())
            })
            .collect();
        let mut stores = Vec::new();
        for host in hosts {
            let store = bounded(host).await.unwrap();
            stores.push(store.unwrap_or_else(|error| panic!("round {round}: {error:?}")));
        }
        for store in &stores {
            count_up(&connector(store, "o")).await.unwrap();
        }
        assert_eq!(count(&connector(&stores[0], "o")).await, 5);
        assert_sound(&stores[1]).await;
        assert_eq!(world.number("SELECT count(*) FROM connector_meta WHERE key = 'generation'"), 1);
        for store in stores {
            store.close().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_failed_keeps_no_lock_and_leaves_nothing() {
    let Some(world) = World::new() else { return };
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    // In the way of the schema, under a name that the store needs: as a table, which is seen before
    // anything is done, and as a type, which is met in the middle of it.
    for (way, refused) in [("TABLE connector_snapshot", true), ("TYPE connector_snapshot", false)] {
        let shape = if refused { "(mine BIGINT)" } else { "AS ENUM ('mine')" };
        world.server.sql(&world.database, &format!("CREATE {way} {shape}")).unwrap();
        for _ in 0..2 {
            let error = bounded(open(&world)).await.unwrap_err();
            let seen = matches!(error, Error::AdoptionRefused { .. });
            let met = matches!(error, Error::Storage { .. } | Error::InvalidInput { .. });
            assert!(if refused { seen } else { met }, "{error:?}");
            assert_eq!(world.number(ADVISORY_LOCKS), 0);
            assert_eq!(world.number(tables), i64::from(refused));
        }
        world.server.sql(&world.database, &format!("DROP {way}")).unwrap();
    }
    let store = bounded(open(&world)).await.unwrap();
    count_up(&connector(&store, "o")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_dies_while_it_makes_the_schema_is_followed_by_another() {
    let Some(world) = World::new() else { return };
    // Another session is half way, so that the host stands in the middle of its own way.
    let mut session = world.session().await;
    run(&mut session, "BEGIN; CREATE TABLE connector_meta (key TEXT PRIMARY KEY)").await;
    let first = tokio::spawn(world.builder().postgres(world.url()).open());
    world.until_locked_out(1).await;
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                WHERE datname = current_database() AND wait_event_type = 'Lock'";
    assert_eq!(world.number(kill), 1);
    run(&mut session, "ROLLBACK").await;
    session.close().await.unwrap();
    // It is told, or it came back by itself; nobody after it finds a lock.
    drop(bounded(first).await.unwrap());
    assert_eq!(world.number(ADVISORY_LOCKS), 0);
    let store = bounded(open(&world)).await.unwrap();
    count_up(&connector(&store, "o")).await.unwrap();
    assert_sound(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_a_newer_program_is_refused_and_left_as_it_is() {
    let Some(world) = World::new() else { return };
    let store = open(&world).await.unwrap();
    count_up(&connector(&store, "o")).await.unwrap();
    store.close().await.unwrap();
    let newer = "UPDATE connector_meta SET value = 999 WHERE key = 'schema_version'";
    world.server.sql(&world.database, newer).unwrap();
    let before = world.dump();
    let error = bounded(open(&world)).await.unwrap_err();
    assert!(
        matches!(error, Error::NewerDatabase { found: 999, supported } if supported < 999),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(text.contains("999"), "{text}");
    assert_eq!(world.dump(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_is_found_again_after_all_its_hosts_have_closed() {
    let Some(world) = World::new() else { return };
    let store = open(&world).await.unwrap();
    let lease = connector(&store, "o").acquire_lease(&holder("a"), COMMAND_TIMEOUT).await.unwrap();
    set_trim(&lease.session().document(&document("a")), 1).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let sessions = "SELECT count(*) FROM pg_stat_activity \
                    WHERE datname = current_database() AND pid <> pg_backend_pid()";
    bounded(async {
        while world.number(sessions) > 0 {
            settle().await;
        }
    })
    .await;
    let store = open(&world).await.unwrap();
    assert_eq!(trim(&store.document(&document("a"))).await, Some(1));
    let again = connector(&store, "o").acquire_lease(&holder("b"), SECOND).await;
    assert_eq!(code(again), "CONNECTOR_LEASE_HELD");
    let again = connector(&store, "o").acquire_lease(&holder("a"), SECOND).await.unwrap();
    assert!(again.token() > lease.token());
    assert_sound(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_server_is_a_typed_error_within_the_time_of_a_connection() {
    let Some(world) = World::new() else { return };
    let cases = [
        ("not a url", "CONNECTOR_INVALID_INPUT"),
        ("postgres://postgres@127.0.0.1:1/none", "CONNECTOR_STORAGE"),
        (&world.server.url("no_such_database"), "CONNECTOR_STORAGE"),
    ];
    for (url, expected) in cases {
        let opened = bounded(world.builder().postgres(url).open()).await;
        assert_eq!(code(opened), expected, "{url}");
    }
}
