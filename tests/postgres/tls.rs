//! Encrypted connections: whom a store trusts, and how it says that it does not.

use std::path::Path;

use connector_store::{Error, ErrorClass, Store};

use crate::common::*;
use crate::world::World;

const PASSWORD: &str = "a-secret-word";

/// The URL of the world's database, on the host of this name and with these options.
fn url(world: &World, host: &str, options: &str) -> String {
    let (port, database) = (world.server.port(), &world.database);
    format!("postgres://postgres:{PASSWORD}@{host}:{port}/{database}?{options}")
}

fn trusting(mode: &str, authority: &Path) -> String {
    format!("sslmode={mode}&sslrootcert={}", authority.display())
}

async fn open(world: &World, host: &str, options: &str) -> Result<Store, Error> {
    bounded(world.builder().postgres(url(world, host, options)).open()).await
}

/// It is refused for good, for a reason that has these words and no password.
async fn assert_refused(world: &World, host: &str, options: &str, words: &str) {
    let error = open(world, host, options).await.expect_err(options);
    assert_eq!(error.class(), ErrorClass::Refused, "{options}: {error:?}");
    let Error::InvalidInput { field, reason } = &error else { panic!("{options}: {error:?}") };
    assert_eq!(*field, "url", "{options}: {error:?}");
    assert!(reason.contains(words), "{options}: {error:?}");
    assert!(!format!("{error} {error:?}").contains(PASSWORD), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_is_refused_where_it_must_be_encrypted() {
    let Some(world) = World::new() else { return };
    for mode in ["require", "verify-ca", "verify-full"] {
        assert_refused(&world, "localhost", &format!("sslmode={mode}"), "TLS").await;
    }
    open(&world, "localhost", "sslmode=prefer").await.unwrap().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_certificate_of_the_right_authority_and_name_is_trusted() {
    let Some(world) = World::new() else { return };
    let Some(other) = world.server.enable_tls().unwrap() else { return };
    let Some(authority) = world.server.enable_tls().unwrap() else { return };

    let store = open(&world, "localhost", &trusting("verify-full", &authority)).await.unwrap();
    count_up(&connector(&store, "o")).await.unwrap();
    let plain = "SELECT count(*) FROM pg_stat_ssl AS s JOIN pg_stat_activity AS a USING (pid) \
                 WHERE a.datname = current_database() AND a.pid != pg_backend_pid() AND NOT s.ssl";
    assert_eq!(world.number(plain), 0);
    let all = "SELECT count(*) FROM pg_stat_activity \
               WHERE datname = current_database() AND pid != pg_backend_pid()";
    assert!(world.number(all) >= 2);
    store.close().await.unwrap();

    for mode in ["verify-ca", "verify-full"] {
        let words = "UnknownIssuer";
        assert_refused(&world, "localhost", &format!("sslmode={mode}"), words).await;
        // Of the same kind, but not the one that has signed.
        assert_refused(&world, "localhost", &trusting(mode, &other), words).await;
        let nowhere = trusting(mode, Path::new("/nowhere.pem"));
        assert_refused(&world, "localhost", &nowhere, "sslrootcert").await;
    }
    let full = trusting("verify-full", &authority);
    assert_refused(&world, "127.0.0.1", &full, "not valid for name").await;
    // These do not ask for the name, or for nothing.
    for options in [trusting("verify-ca", &authority), "sslmode=require".to_owned()] {
        open(&world, "127.0.0.1", &options).await.unwrap().close().await.unwrap();
    }
}
