//! What an operator sees: every metric by its name, a span for each command, and no secret anywhere.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use connector_store::records::{RecordSigner, SigningKey};
use connector_store::testing::{Fault, FaultyStorage, SimClock};
use connector_store::{
    Clock as _, ConnectorName, DocumentId, Error, Hlc, Holder, Jitter, Json, MemoryJournal,
    OwnerDid, PendingAuthRecord, Secret, StorageFault, Store, StoreBuilder, Timestamp, telemetry,
};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

const STATE: &str = "STATE-SECRET-b2c4";
const VERIFIER: &str = "VERIFIER-SECRET-77aa";
const REDIRECT: &str = "https://host.example/REDIRECT-SECRET-1f";
const RECOVERY: &str = "RECOVERY-SECRET-90";
const PAYLOAD: &str = "PAYLOAD-SECRET-3d";
/// How every token of this test begins.
const TOKEN: &str = "eyJ";

/// Everything that was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// What the scenario left: the values of each metric by name and labels, and the log.
struct Seen {
    metrics: BTreeMap<String, Vec<(String, DebugValue)>>,
    log: String,
}

struct Bomb(AtomicBool);

impl Jitter for Bomb {
    fn unit(&self) -> f64 {
        assert!(!self.0.swap(false, Ordering::SeqCst), "the handler panics as it was told to");
        0.5
    }
}

fn owner() -> OwnerDid {
    OwnerDid::new("did:web:o").unwrap()
}

fn folder() -> ConnectorName {
    ConnectorName::new("folder").unwrap()
}

fn json(text: &str) -> Json {
    Json::parse("json", text).unwrap()
}

async fn set_trim(store: &Store, name: &str) -> Result<(), Error> {
    let handle = store.document(&DocumentId::new(name).unwrap());
    handle.set_entity_trim(&owner(), &folder(), json("1")).await
}

async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
        std::thread::yield_now();
    }
}

/// Puts a signed record, well, again, and badly, and reads what it decides.
async fn observations(store: &Store) {
    let signer = RecordSigner::did_key(SigningKey::ed25519_from_seed([3; 32]));
    let (owner, id) = (OwnerDid::new(signer.issuer()).unwrap(), DocumentId::new("o").unwrap());
    let at = Hlc::parse(&format!("{:015}-00000000-n", SimClock::default().wall().as_millis()));
    let at = at.unwrap();
    let record = signer.sign(&owner, &id, &at, &at, Some(PAYLOAD.as_bytes())).unwrap();
    let document = store.document(&id);
    document.put_observation_copy(&record).await.unwrap();
    document.put_observation_copy(&record).await.unwrap();
    let mut foreign = record.clone();
    foreign.key.id = DocumentId::new("p").unwrap();
    let elsewhere = store.document(&foreign.key.id).put_observation_copy(&foreign).await;
    let other = RecordSigner::did_key(SigningKey::ed25519_from_seed([4; 32]));
    let refused = other.sign(&owner, &id, &at, &at, Some(PAYLOAD.as_bytes())).unwrap();
    let refused = document.put_observation_copy(&refused).await.unwrap_err();
    let decision = document.observation_decision(&owner).await.unwrap().unwrap();
    assert_eq!(decision.payload.as_deref(), Some(PAYLOAD.as_bytes()));
    tracing::info!(?record, ?elsewhere, ?refused, %refused, ?decision, "a careless host, too");
}

/// Creates and consumes an authorization, well and badly, and keeps third-party content.
async fn secrets(builder: StoreBuilder) {
    let store = builder.accept_foreign_owners().open().await.unwrap();
    observations(&store).await;
    let record = PendingAuthRecord {
        state: Secret::new(STATE),
        code_verifier: Secret::new(VERIFIER),
        provider: "caldav".to_owned(),
        owner: owner(),
        owner_wrappable_did: None,
        controller_wrappable_did: None,
        created_at: Timestamp::from_millis(1),
        redirect_url: REDIRECT.to_owned(),
        scopes: vec!["calendar".to_owned()],
        is_incremental: false,
        expires_at: Timestamp::from_millis(2),
    };
    store.create_pending_auth(record.clone()).await.unwrap();
    let twice = store.create_pending_auth(record.clone()).await.unwrap_err();
    let consumed = store.consume_pending_auth(&record.state).await.unwrap();
    assert_eq!(consumed, record);
    let again = store.consume_pending_auth(&record.state).await.unwrap_err();
    tracing::info!(?consumed, ?twice, %twice, ?again, %again, "what a careless host would log");
    let connector = store.connector(&owner(), &folder());
    let progress = connector.update_sync_progress(|_| connector_store::SyncProgress {
        checkpoint: None,
        recovery: Some(json(&format!("\"{RECOVERY}\""))),
        last_synced_at: connector_store::Rfc3339::from_timestamp(Timestamp::default()),
        entity_count: 1,
        error: None,
    });
    progress.await.unwrap();
    tracing::info!(?store, report = ?store.verify().await.unwrap(), "so would this be");
    store.close().await.unwrap();
}

async fn scenario() {
    let directory = tempfile::tempdir().unwrap();
    secrets(Store::builder().sqlite(directory.path().join("store.db"))).await;
    secrets(Store::builder().memory(&MemoryJournal::new())).await;

    let clock = SimClock::default();
    let journal = MemoryJournal::shared(Arc::new(|| Timestamp::from_millis(5)));
    let faults = Arc::new(FaultyStorage::new(Arc::new(journal.open().unwrap())));
    let bomb = Arc::new(Bomb(AtomicBool::new(false)));
    let builder = Store::builder().storage(Arc::clone(&faults) as _).clock(Arc::new(clock.clone()));
    let store = builder.jitter(Arc::clone(&bomb) as _).open().await.unwrap();
    let rival = Store::builder().memory(&journal).open().await.unwrap();
    set_trim(&store, "a").await.unwrap();
    let full = Error::storage(StorageFault::Full, "no room");
    faults.next_append(Fault::Fail(full));
    set_trim(&store, "a").await.unwrap_err();
    set_trim(&rival, "a").await.unwrap();
    set_trim(&store, "a").await.unwrap();
    bomb.0.store(true, Ordering::SeqCst);
    set_trim(&store, "a").await.unwrap_err();
    conflict(&store, &faults, &rival).await;
    let connector = store.connector(&owner(), &folder());
    let ttl = Duration::from_secs(1);
    let lease = connector.acquire_lease(&Holder::new("a").unwrap(), ttl).await.unwrap();
    connector.acquire_lease(&Holder::new("b").unwrap(), ttl).await.unwrap_err();
    lease.release().await.unwrap();
    connector.due_candidates(10).await.unwrap();
    store.health(Duration::from_secs(60)).await.unwrap();
    for store in [&store, &rival] {
        store.passivate_all();
        until(|| store.stats().active_keys == 0).await;
    }
    clock.someone_sleeps_for(Duration::from_secs(75)).await;
    clock.advance(Duration::from_secs(75));
    clock.someone_sleeps_for(Duration::from_secs(75)).await;
}

/// The rival writes between a decision and its append.
async fn conflict(store: &Store, faults: &Arc<FaultyStorage>, rival: &Store) {
    let gate = connector_store::testing::Gate::new();
    faults.next_append(Fault::StallBefore(gate.clone()));
    let writer = store.clone();
    let write = tokio::spawn(async move { set_trim(&writer, "a").await });
    gate.reached().await;
    set_trim(rival, "a").await.unwrap();
    gate.open();
    write.await.unwrap().unwrap();
}

fn seen() -> &'static Seen {
    static SEEN: OnceLock<Seen> = OnceLock::new();
    SEEN.get_or_init(|| {
        let recorder = DebuggingRecorder::new();
        let snapshotter: Snapshotter = recorder.snapshotter();
        recorder.install().unwrap();
        let log = Log::default();
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_span_events(FmtSpan::FULL)
            .with_ansi(false)
            .with_writer(log.clone())
            .init();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(120), scenario()).await.unwrap();
        });
        let mut metrics = BTreeMap::<String, Vec<(String, DebugValue)>>::new();
        for (key, _, _, value) in snapshotter.snapshot().into_vec() {
            let labels =
                key.key().labels().map(|label| format!("{}={}", label.key(), label.value()));
            let labels = labels.collect::<Vec<_>>().join(",");
            metrics.entry(key.key().name().to_owned()).or_default().push((labels, value));
        }
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        Seen { metrics, log }
    })
}

fn values(name: &str) -> &'static [(String, DebugValue)] {
    seen().metrics.get(name).unwrap_or_else(|| panic!("{name} was never written"))
}

fn counted(name: &str, label: &str) -> u64 {
    let of_label = values(name).iter().filter(|(labels, _)| labels.contains(label));
    of_label.map(|(_, value)| if let DebugValue::Counter(count) = value { *count } else { 0 }).sum()
}

fn samples(name: &str) -> Vec<f64> {
    let histograms = values(name).iter().map(|(_, value)| value);
    let samples = histograms.filter_map(|value| match value {
        DebugValue::Histogram(samples) => Some(samples.iter().map(|sample| sample.into_inner())),
        _ => None,
    });
    samples.flatten().collect()
}

fn level(name: &str, label: &str) -> f64 {
    let of_label = values(name).iter().find(|(labels, _)| labels.contains(label));
    match of_label {
        Some((_, DebugValue::Gauge(level))) => level.into_inner(),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn commands_are_counted_by_outcome() {
    assert_eq!(counted(telemetry::COMMANDS, "command=create_pending_auth,outcome=done"), 2);
    assert_eq!(counted(telemetry::COMMANDS, "command=create_pending_auth,outcome=refused"), 2);
    assert_eq!(counted(telemetry::COMMANDS, "command=set_entity_trim,outcome=retryable"), 1);
}

#[test]
fn refusals_are_counted_by_code() {
    let label = "command=consume_pending_auth,code=CONNECTOR_ALREADY_CONSUMED";
    assert_eq!(counted(telemetry::REFUSALS, label), 2);
    assert_eq!(counted(telemetry::REFUSALS, "code=CONNECTOR_LEASE_HELD"), 1);
}

#[test]
fn the_wait_in_the_mailbox_is_measured() {
    let samples = samples(telemetry::MAILBOX_WAIT);
    assert!(samples.len() >= 10 && samples.iter().all(|wait| *wait >= 0.0));
}

#[test]
fn batches_are_measured() {
    assert!(samples(telemetry::BATCH_SIZE).iter().all(|appends| *appends >= 1.0));
    assert!(samples(telemetry::COMMIT_TIME).len() == samples(telemetry::BATCH_SIZE).len());
}

#[test]
fn keys_in_memory_are_counted_in_and_out() {
    assert!(level(telemetry::ACTIVE_KEYS, "kind=document").abs() < f64::EPSILON);
    assert!(counted(telemetry::ACTIVATIONS, "kind=auth") >= 2);
    assert!(counted(telemetry::PASSIVATIONS, "kind=document") >= 1);
}

#[test]
fn reloads_conflicts_and_panics_are_counted() {
    assert!(counted(telemetry::RELOADS, "kind=document") >= 2);
    // The rival's, which wrote on what it knew, and the one that the rival causes.
    assert_eq!(counted(telemetry::CONFLICTS, ""), 2);
    assert_eq!(counted(telemetry::PANICS, "kind=document"), 1);
}

#[test]
fn leases_are_counted_by_outcome() {
    assert_eq!(counted(telemetry::LEASES, "command=acquire_lease,outcome=done"), 1);
    assert_eq!(counted(telemetry::LEASES, "command=acquire_lease,outcome=refused"), 1);
    assert_eq!(counted(telemetry::LEASES, "command=release_lease,outcome=done"), 1);
}

#[test]
fn due_candidates_and_commands_in_flight_are_shown() {
    assert!(level(telemetry::DUE_CANDIDATES, "").abs() < f64::EPSILON);
    assert!(level(telemetry::IN_FLIGHT, "").abs() < f64::EPSILON);
}

#[test]
fn verifications_are_counted_by_outcome_and_puts_that_need_none() {
    assert_eq!(counted(telemetry::VERIFICATIONS, "outcome=done"), 2);
    assert_eq!(counted(telemetry::VERIFICATIONS, "outcome=refused"), 2);
    assert_eq!(counted(telemetry::STANDING_PUTS, ""), 2);
    for part in ["verify{stream=document o", "verify{stream=document o outcome=\"refused\"}"] {
        assert!(seen().log.contains(part), "{part}");
    }
}

#[test]
fn unfinished_operations_are_shown_by_state() {
    for state in ["attempted", "reconcile_only"] {
        let label = format!("state={state}");
        assert!(level(telemetry::UNFINISHED_OPERATIONS, &label).abs() < f64::EPSILON);
    }
}

#[test]
fn every_command_has_a_span_with_its_outcome() {
    let log = &seen().log;
    for part in [
        "command{stream=document a",
        "stream=pending authorization",
        "command=\"set_entity_trim\"",
        "outcome=\"done\"",
        "queue_wait_us=",
        "decide_us=",
        "commit_us=",
    ] {
        assert!(log.contains(part), "{part}");
    }
}

#[test]
fn no_log_line_span_or_metric_holds_a_secret() {
    let metrics = format!("{:?}", seen().metrics);
    assert!(seen().log.contains("what a careless host would log"), "the log was captured");
    assert!(seen().log.contains("a careless host, too"));
    let bytes = format!("{:?}", PAYLOAD.as_bytes());
    let bytes = bytes.trim_matches(['[', ']']);
    for secret in [STATE, VERIFIER, "REDIRECT-SECRET", RECOVERY, PAYLOAD, TOKEN, bytes] {
        assert!(!seen().log.contains(secret), "{secret} was logged");
        assert!(!metrics.contains(secret), "{secret} is in a metric");
    }
}
