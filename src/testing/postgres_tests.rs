//! The server of the tests itself: it starts, keeps what was committed, fails over, and is gone.

use super::super::TestPgBouncer;
use super::*;

fn count(server: &TestPostgres) -> String {
    server.sql("postgres", "SELECT count(*) FROM kept").unwrap()
}

#[test]
fn a_server_has_empty_databases_and_is_gone_with_its_holder() {
    let Some(server) = TestPostgres::start(&[]).unwrap() else { return };
    let (one, two) = (server.create_database().unwrap(), server.create_database().unwrap());
    server.sql(&one, "CREATE TABLE kept (id BIGINT)").unwrap();
    assert_eq!(server.sql(&one, "SELECT count(*) FROM kept").unwrap(), "0");
    assert!(server.sql(&two, "SELECT count(*) FROM kept").is_err());
    assert_eq!(server.log(&one).unwrap(), [""; 0]);
    let logged = server.log(&two).unwrap().concat();
    assert!(logged.contains("\"kept\" does not exist"), "{logged}");
    let (folder, port) = (server.folder.path().to_owned(), server.port);
    drop(server);
    assert!(!folder.exists());
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn what_was_committed_outlives_a_stop() {
    let Some(server) = TestPostgres::start(&[("max_connections", "20")]).unwrap() else { return };
    assert_eq!(server.sql("postgres", "SHOW max_connections").unwrap(), "20");
    server.sql("postgres", "CREATE TABLE kept (id BIGINT)").unwrap();
    for how in [Stop::Fast, Stop::Immediate] {
        server.sql("postgres", "INSERT INTO kept VALUES (1)").unwrap();
        server.restart(how).unwrap();
    }
    assert_eq!(count(&server), "2");
    server.stop(Stop::Immediate).unwrap();
    assert!(server.sql("postgres", "SELECT 1").is_err());
}

#[test]
fn a_synchronous_standby_has_every_commit_and_takes_over() {
    let Some(server) = TestPostgres::start(&[]).unwrap() else { return };
    server.sql("postgres", "CREATE TABLE kept (id BIGINT)").unwrap();
    let standby = server.standby(true).unwrap();
    server.sql("postgres", "INSERT INTO kept VALUES (1)").unwrap();
    assert!(standby.sql("postgres", "INSERT INTO kept VALUES (2)").is_err());
    drop(server);
    standby.promote().unwrap();
    standby.sql("postgres", "INSERT INTO kept VALUES (2)").unwrap();
    assert_eq!(count(&standby), "2");
}

#[test]
fn a_pooler_stands_before_the_server() {
    let Some(server) = TestPostgres::start(&[]).unwrap() else { return };
    let Some(pooler) = TestPgBouncer::start(&server, 2).unwrap() else { return };
    let database = server.create_database().unwrap();
    let ask = |statement: &str| {
        let mut psql = server.program("psql").unwrap();
        service::run(psql.args(["-X", "-A", "-t", "-c", statement]).arg(pooler.url(&database)))
    };
    assert_eq!(ask("SELECT current_database()").unwrap(), database);
    let url = pooler.url(&database);
    drop(pooler);
    let mut psql = server.program("psql").unwrap();
    assert!(service::run(psql.args(["-X", "-c", "SELECT 1"]).arg(url)).is_err());
}
