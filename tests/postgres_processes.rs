//! Several processes on one PostgreSQL database: of all that consume one authorization one gets it, and
//! a process that is stopped past its lease writes nothing under it.
#![cfg(all(unix, feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use connector_store::testing::TestPostgres;
use connector_store::{
    ConnectorName, DocumentId, Error, Holder, Json, OwnerDid, PendingAuthRecord, Result, Secret,
    Store, Timestamp,
};

const CHILD: &str = "STORE_TEST_DATABASE";
/// Consumers of each process.
const CONSUMERS: usize = 10;
/// Authorizations that are consumed one after the other.
const ROUNDS: usize = 10;
const TTL: Duration = Duration::from_millis(300);

fn owner() -> OwnerDid {
    OwnerDid::new("did:web:ada.example").unwrap()
}

fn folder() -> ConnectorName {
    ConnectorName::new("folder").unwrap()
}

fn state(round: usize) -> Secret {
    Secret::new(format!("state-{round}"))
}

/// A host that does what it is told, line by line, and says what came of it.
#[tokio::test]
async fn child_that_works() {
    let Some(url) = std::env::var_os(CHILD) else { return };
    let store = Store::builder().postgres(url.into_string().unwrap()).open().await.unwrap();
    let mut lease = None;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let told = match line.split_once(' ').unwrap() {
            ("consume", round) => consume(&store, round.parse().unwrap()).await,
            ("acquire", holder) => {
                let account = store.connector(&owner(), &folder());
                let taken = account.acquire_lease(&Holder::new(holder).unwrap(), TTL).await;
                let told = code(&taken);
                lease = taken.ok();
                told.to_owned()
            }
            ("write", number) => {
                let document = lease.as_ref().unwrap().session().document(&document());
                let fields = Json::parse("trimmed_fields", number).unwrap();
                code(&document.set_entity_trim(&owner(), &folder(), fields).await).to_owned()
            }
            other => panic!("{other:?}"),
        };
        println!("\nOUTCOME {told}");
    }
}

fn document() -> DocumentId {
    DocumentId::new("d").unwrap()
}

fn code<T>(result: &Result<T>) -> &'static str {
    result.as_ref().map_or_else(Error::code, |_| "ok")
}

/// How many of many consumers got it; the others must have come too late.
async fn consume(store: &Store, round: usize) -> String {
    let consumers = (0..CONSUMERS).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.consume_pending_auth(&state(round)).await })
    });
    let mut won = 0;
    for consumer in consumers.collect::<Vec<_>>() {
        match consumer.await.unwrap() {
            Ok(_) => won += 1,
            Err(Error::AlreadyConsumed) => {}
            Err(error) => return error.code().to_owned(),
        }
    }
    won.to_string()
}

/// A running child.
struct Process {
    child: Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

impl Process {
    fn spawn(url: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_works", "--nocapture"])
            .env(CHILD, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        let hears = child.stdin.take().unwrap();
        Self { child, says, hears }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.hears, "{line}").unwrap();
    }

    fn outcome(&mut self) -> String {
        let mut lines = (&mut self.says).lines().map(|line| line.unwrap());
        let said = lines.find_map(|line| line.strip_prefix("OUTCOME ").map(str::to_owned));
        said.unwrap()
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already needs no end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pending_auth(round: usize) -> PendingAuthRecord {
    PendingAuthRecord {
        state: state(round),
        code_verifier: Secret::new("verifier"),
        provider: "caldav".to_owned(),
        owner: owner(),
        owner_wrappable_did: None,
        controller_wrappable_did: None,
        created_at: Timestamp::from_millis(1),
        redirect_url: "https://host.example/".to_owned(),
        scopes: vec!["calendar".to_owned()],
        is_incremental: false,
        expires_at: Timestamp::from_millis(5_000),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_consumers_of_two_processes_one_gets_the_authorization() {
    let Some(server) = TestPostgres::start(&[]).unwrap() else { return };
    let url = server.url(&server.create_database().unwrap());
    let store = Store::builder().postgres(&url).open().await.unwrap();
    let mut processes = [Process::spawn(&url), Process::spawn(&url)];
    for round in 0..ROUNDS {
        store.create_pending_auth(pending_auth(round)).await.unwrap();
        processes.iter_mut().for_each(|process| process.tell(&format!("consume {round}")));
        let mut won: Vec<_> = processes.iter_mut().map(Process::outcome).collect();
        won.sort();
        assert_eq!(won, ["0", "1"], "round {round}");
    }
    assert!(store.verify().await.unwrap().is_sound());
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_stopped_past_its_lease_writes_nothing_under_it() {
    let Some(server) = TestPostgres::start(&[]).unwrap() else { return };
    let url = server.url(&server.create_database().unwrap());
    let store = Store::builder().postgres(&url).open().await.unwrap();
    let mut stopped = Process::spawn(&url);
    stopped.tell("acquire a");
    assert_eq!(stopped.outcome(), "ok");
    stopped.tell("write 1");
    assert_eq!(stopped.outcome(), "ok");
    stopped.signal("-STOP");
    // The other one takes the lease as soon as it can: the database's clock decides when.
    let account = store.connector(&owner(), &folder());
    let taken = loop {
        match account.acquire_lease(&Holder::new("b").unwrap(), TTL * 100).await {
            Ok(lease) => break lease,
            Err(error) => assert_eq!(error.code(), "CONNECTOR_LEASE_HELD"),
        }
    };
    let fields = Json::parse("trimmed_fields", "2").unwrap();
    let session = taken.session().document(&document());
    session.set_entity_trim(&owner(), &folder(), fields.clone()).await.unwrap();
    stopped.tell("write 3");
    stopped.signal("-CONT");
    assert_eq!(stopped.outcome(), "CONNECTOR_LEASE_LOST");
    let trim = store.document(&document()).entity_trim().await.unwrap().unwrap();
    assert_eq!(trim.trimmed_fields, fields);
    store.close().await.unwrap();
}
