//! Keys in memory and out of it: the bytes of an active key, and the time to load a cold one.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use connector_store::{ConnectorName, DocumentId, DocumentRef, Json, OwnerDid, Store};

use crate::Outcome;
use crate::raw::{LOAD_STREAM, Mirror};
use crate::table::{Line, median};

/// The name of the measurement of memory.
pub const MEMORY: &str = "active_keys_memory";
/// Keys in memory at once.
const ACTIVE_KEYS: usize = 100_000;
/// Keys in memory at once while everything else is warmed up.
const WARM_KEYS: usize = 2_000;
/// Lengths of history whose load is measured.
const HISTORIES: [(&str, usize); 3] = [
    ("load_cold_10_events", 10),
    ("load_cold_1000_events", 1_000),
    ("load_cold_100000_events", 100_000),
];
/// Loads of each.
const LOADS: usize = 60;
/// Callers that write or read many keys.
const CALLERS: usize = 256;
/// What Linux counts memory in, on the usual machines.
const PAGE_BYTES: u64 = 4_096;

fn owner() -> Outcome<(OwnerDid, ConnectorName)> {
    Ok((OwnerDid::new("did:web:example.org:owner")?, ConnectorName::new("folder")?))
}

async fn trim(document: &DocumentRef, n: usize) -> Outcome<()> {
    let (owner, connector) = owner()?;
    let fields = Json::parse("fields", &format!("{{\"body\":{{\"bytes\":{n},\"cap\":4096}}}}"))?;
    Ok(document.set_entity_trim(&owner, &connector, fields).await?)
}

fn document(store: &Store, n: usize) -> Outcome<DocumentRef> {
    Ok(store.document(&DocumentId::new(format!("document-{n:023}"))?))
}

/// Each of many documents once, by many callers at once: a trim is set, or read.
async fn each(store: &Store, from: usize, to: usize, write: bool) -> Outcome<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let store = store.clone();
        tasks.spawn(async move {
            for n in (from + caller..to).step_by(CALLERS) {
                let document = document(&store, n)?;
                if write {
                    trim(&document, n).await?;
                } else {
                    document.entity_trim().await?.ok_or("a trim that was set was not found")?;
                }
            }
            Outcome::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

async fn passivate(store: &Store) -> Outcome<()> {
    store.passivate_all();
    while store.stats().active_keys > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

fn resident_bytes() -> Outcome<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).ok_or("statm has no second field")?;
    Ok(pages.parse::<u64>()? * PAGE_BYTES)
}

/// Bytes of an active key with one trim: what 100,000 of them add to a process whose caches were
/// filled by the same keys, a few of them at a time.
pub async fn memory(directory: &Path) -> Outcome<Line> {
    let directory = tempfile::tempdir_in(directory)?;
    let store = Store::builder().sqlite(directory.path().join("store.db")).open().await?;
    for write in [true, false] {
        for from in (0..ACTIVE_KEYS).step_by(WARM_KEYS) {
            each(&store, from, from + WARM_KEYS, write).await?;
            passivate(&store).await?;
        }
    }
    let before = resident_bytes()?;
    let begun = Instant::now();
    each(&store, 0, ACTIVE_KEYS, false).await?;
    let took = begun.elapsed();
    let active = store.stats().active_keys;
    let bytes = resident_bytes()?.saturating_sub(before) as f64 / active.max(1) as f64;
    store.close().await?;
    if active < ACTIVE_KEYS {
        return Err(format!("only {active} keys stayed in memory").into());
    }
    Ok(Line {
        name: MEMORY,
        backend: "sqlite",
        callers: CALLERS,
        per_second: ACTIVE_KEYS as f64 / took.as_secs_f64(),
        raw_per_second: 0.0,
        ratio: 0.0,
        mean_batch: 0.0,
        row_at_a_time_per_second: None,
        bytes_per_key: Some(bytes),
        processor_us: None,
    })
}

/// The time to load a cold key, however long its history is.
pub async fn cold_loads(directory: &Path) -> Outcome<Vec<Line>> {
    let directory = tempfile::tempdir_in(directory)?;
    let (path, copy) = (directory.path().join("store.db"), directory.path().join("raw.db"));
    Store::builder().sqlite(&copy).open().await?.close().await?;
    let store = Store::builder().sqlite(&path).open().await?;
    let mut documents = Vec::new();
    for (_, events) in HISTORIES {
        let document = document(&store, events)?;
        lengthen(&document, events).await?;
        documents.push(document);
    }
    let mut mirror = Mirror::open(&path, &copy).await?;
    let mut times = vec![Vec::new(); HISTORIES.len()];
    let mut raw_times = times.clone();
    for _ in 0..LOADS {
        for (at, document) in documents.iter().enumerate() {
            passivate(&store).await?;
            let begun = Instant::now();
            document.entity_trim().await?.ok_or("a trim that was set was not found")?;
            times[at].push(begun.elapsed().as_secs_f64());
            let name: Arc<str> = format!("document:{}", document.id()).into();
            let (_, took) = mirror.read(LOAD_STREAM, &[name], Duration::from_nanos(1)).await?;
            raw_times[at].push(took.as_secs_f64());
        }
    }
    store.close().await?;
    mirror.close().await?;
    let lines = HISTORIES.iter().zip(times.into_iter().zip(raw_times));
    Ok(lines
        .map(|((name, _), (times, raw_times))| {
            let (time, raw) = (median(times), median(raw_times));
            Line {
                name,
                backend: "sqlite",
                callers: 1,
                per_second: 1.0 / time,
                raw_per_second: 1.0 / raw,
                ratio: raw / time,
                mean_batch: 0.0,
                row_at_a_time_per_second: None,
                bytes_per_key: None,
                processor_us: None,
            }
        })
        .collect())
}

/// Gives a document this many events.
async fn lengthen(document: &DocumentRef, events: usize) -> Outcome<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..CALLERS.min(events) {
        let document = document.clone();
        tasks.spawn(async move {
            for n in (caller..events).step_by(CALLERS) {
                trim(&document, n).await?;
            }
            Outcome::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}
