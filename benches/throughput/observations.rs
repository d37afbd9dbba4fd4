//! Signed records: puts of new copies, on many documents and on one, beside bare strict verification
//! of the same tokens on as many threads as there are cores, puts of copies that stand, decisions of
//! documents in memory, and what the callers of the latter two cost by themselves.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use connector_store::records::{
    HlcClock, PublicKey, RecordLimits, RecordSigner, SignedRecord, SigningKey, parse, verify,
};
use connector_store::{DocumentId, DocumentRef, OwnerDid, Store};

use crate::Outcome;
use crate::table::{Line, median};

/// A first put of each copy, on many documents.
const PUT_NEW: &str = "put_observation_new";
/// A first put of each copy, all on one document. One that comes behind a higher one changes nothing.
const PUT_HOT: &str = "put_observation_hot";
/// A put of a copy that stands.
const PUT_KNOWN: &str = "put_observation_known";
/// A decision of a document in memory.
const DECISION: &str = "observation_decision";
/// The callers of the last two without the store.
const CALLERS: &str = "observation_callers";
/// All of them.
pub const NAMES: [&str; 5] = [PUT_NEW, PUT_HOT, PUT_KNOWN, DECISION, CALLERS];

/// Documents that are observed in turn.
const DOCUMENTS: usize = 2_000;
/// Rounds of a cell, the first of which warms up.
const ROUNDS: usize = 7;
/// New copies of a round and caller, within these bounds. Those of all rounds of a cell are fewer
/// than a store remembers.
const COPIES_PER_CALLER: usize = 120;
const COPIES: std::ops::RangeInclusive<usize> = 300..=4_000;
/// What is answered from memory is asked so often in a round, by one caller and by several.
const QUICK_CALLS: [usize; 2] = [20_000, 200_000];

/// What a caller does.
#[derive(Clone, Copy)]
enum Call {
    /// Puts the next record.
    Put,
    /// Asks for a document's decision.
    Decide,
    /// Nothing: what is left is the caller.
    Nothing,
}

/// What the callers of a round have in common. It is never changed, so that they hold each other up
/// in nothing but the store.
struct Round {
    documents: Vec<DocumentRef>,
    records: Vec<SignedRecord>,
    owner: OwnerDid,
    next: AtomicUsize,
}

impl Round {
    async fn call(&self, call: Call, n: usize) -> Outcome<()> {
        let at = n % self.records.len();
        let document = &self.documents[at % self.documents.len()];
        match call {
            Call::Put => Ok(document.put_observation_copy(&self.records[at]).await?),
            Call::Decide => match document.observation_decision(&self.owner).await? {
                Some(_) => Ok(()),
                None => Err("a decision is missing".into()),
            },
            Call::Nothing => {
                std::hint::black_box((document, &self.records[at]));
                Ok(())
            }
        }
    }

    /// Calls `count` times, by so many callers.
    async fn run(self: &Arc<Self>, call: Call, callers: usize, count: usize) -> Outcome<Cost> {
        self.next.store(0, Ordering::Relaxed);
        let begun = Begun::now();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..callers {
            let round = Arc::clone(self);
            tasks.spawn(async move {
                loop {
                    let n = round.next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return Outcome::Ok(());
                    }
                    round.call(call, n).await?;
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(begun.cost_of(count))
    }
}

/// What calls cost.
#[derive(Clone, Copy)]
struct Cost {
    per_second: f64,
    /// Processor time of one, on all threads, in microseconds. None where it can't be told.
    processor_us: Option<f64>,
}

struct Begun {
    at: Instant,
    processor_ticks: Option<f64>,
}

impl Begun {
    fn now() -> Self {
        Self { at: Instant::now(), processor_ticks: processor_ticks() }
    }

    fn cost_of(&self, count: usize) -> Cost {
        let ticks = processor_ticks().zip(self.processor_ticks).map(|(now, then)| now - then);
        Cost {
            per_second: count as f64 / self.at.elapsed().as_secs_f64(),
            processor_us: ticks.map(|ticks| ticks * TICK_US / count as f64),
        }
    }
}

/// A tick of the processor times that Linux tells processes, in microseconds.
const TICK_US: f64 = 10_000.0;

/// The processor time of this process, threads that have ended included. Linux tells it in the 14th
/// and 15th field; the second one, a name, may hold spaces and ends with the last bracket.
fn processor_ticks() -> Option<f64> {
    let told = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields = told.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
    Some(fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum())
}

struct Bench {
    store: Store,
    signer: RecordSigner,
    key: PublicKey,
    owner: OwnerDid,
    documents: Vec<DocumentRef>,
    clock: HlcClock,
}

impl Bench {
    async fn open(path: &Path, documents: usize) -> Outcome<Self> {
        let store = Store::builder().sqlite(path).accept_foreign_owners().open().await?;
        let signing_key = SigningKey::ed25519_from_seed([7; 32]);
        let key = signing_key.public_key();
        let signer = RecordSigner::did_key(signing_key);
        let owner = OwnerDid::new(signer.issuer())?;
        let documents = (0..documents)
            .map(|n| Ok(store.document(&DocumentId::new(format!("document-{n:023}"))?)))
            .collect::<Outcome<_>>()?;
        let clock = store.hlc_clock("bench", Duration::from_secs(60)).await?;
        Ok(Self { store, signer, key, owner, documents, clock })
    }

    /// A round of new copies: each is of the next document, and above what stands there.
    fn round(&mut self, count: usize) -> Outcome<Arc<Round>> {
        let payload = br#"{"title":"Team meeting","starts":"2026-01-01T09:00:00Z","room":"4.12"}"#;
        let records = (0..count).map(|n| {
            let stamp = self.clock.now(1_767_225_600_000)?;
            let document = self.documents[n % self.documents.len()].id();
            let payload = Some(payload.as_slice());
            Ok(self.signer.sign(&self.owner, document, &stamp, &stamp, payload)?)
        });
        Ok(Arc::new(Round {
            records: records.collect::<Outcome<_>>()?,
            documents: self.documents.clone(),
            owner: self.owner.clone(),
            next: AtomicUsize::new(0),
        }))
    }
}

/// Verifies every token of the records strictly, on as many threads as there are cores. The
/// messages and signatures are taken apart before.
fn verify_bare(key: &PublicKey, records: &[SignedRecord]) -> Outcome<Cost> {
    let parsed: Vec<_> = records
        .iter()
        .map(|record| parse(record, &RecordLimits::default()))
        .collect::<Result<_, _>>()
        .map_err(|fault| fault.to_string())?;
    let threads = std::thread::available_parallelism()?.get();
    let begun = Begun::now();
    std::thread::scope(|scope| {
        let parts: Vec<_> = parsed
            .chunks(parsed.len().div_ceil(threads))
            .map(|part| scope.spawn(move || part.iter().all(|one| verify(one, key).is_ok())))
            .collect();
        let all = parts.into_iter().all(|part| part.join().unwrap_or(false));
        if all { Ok(begun.cost_of(records.len())) } else { Err("a token does not verify".into()) }
    })
}

/// What the rounds of a cell came to.
#[derive(Default)]
struct Rates {
    new: Vec<Cost>,
    bare: Vec<Cost>,
    known: Vec<Cost>,
    decisions: Vec<Cost>,
    nothing: Vec<Cost>,
    appends: u64,
    batches: u64,
}

/// The cases whose name is wanted, with each number of callers, each in a store of its own.
pub async fn run(
    directory: &Path,
    callers: &[usize],
    wants: impl Fn(&str) -> bool,
) -> Outcome<Vec<Line>> {
    let mut lines = Vec::new();
    for &callers in callers {
        if [PUT_NEW, PUT_KNOWN, DECISION, CALLERS].into_iter().any(&wants) {
            let quick = [wants(PUT_KNOWN), wants(DECISION), wants(CALLERS)];
            let rates = cell(directory, DOCUMENTS, callers, quick).await?;
            lines.push(rates.puts(PUT_NEW, callers));
            let quick = [
                (PUT_KNOWN, &rates.known, &rates.new),
                (DECISION, &rates.decisions, &rates.nothing),
                (CALLERS, &rates.nothing, &Vec::new()),
            ];
            let asked = quick.into_iter().filter(|(_, costs, _)| !costs.is_empty());
            lines.extend(asked.map(|(name, costs, raw)| line(name, callers, costs, raw, 0.0)));
        }
        if wants(PUT_HOT) {
            let rates = cell(directory, 1, callers, [false; 3]).await?;
            lines.push(rates.puts(PUT_HOT, callers));
        }
    }
    Ok(lines)
}

async fn cell(
    directory: &Path,
    documents: usize,
    callers: usize,
    quick: [bool; 3],
) -> Outcome<Rates> {
    let directory = tempfile::tempdir_in(directory)?;
    let mut bench = Bench::open(&directory.path().join("store.db"), documents).await?;
    let count = (callers * COPIES_PER_CALLER).clamp(*COPIES.start(), *COPIES.end());
    let quick_calls = QUICK_CALLS[usize::from(callers > 1)];
    let mut rates = Rates::default();
    for n in 0..ROUNDS {
        let round = bench.round(count)?;
        let before = bench.store.stats();
        let new = round.run(Call::Put, callers, count).await?;
        let after = bench.store.stats();
        let bare = verify_bare(&bench.key, &round.records)?;
        let mut measured = [None; 3];
        let calls = [Call::Put, Call::Decide, Call::Nothing];
        for (at, call) in calls.into_iter().enumerate().filter(|(at, _)| quick[*at]) {
            measured[at] = Some(round.run(call, callers, quick_calls).await?);
        }
        if n == 0 {
            continue;
        }
        rates.new.push(new);
        rates.bare.push(bare);
        let places = [&mut rates.known, &mut rates.decisions, &mut rates.nothing];
        places.into_iter().zip(measured).for_each(|(place, cost)| place.extend(cost));
        rates.appends += after.appends - before.appends;
        rates.batches += after.batches - before.batches;
    }
    bench.store.close().await?;
    Ok(rates)
}

impl Rates {
    fn puts(&self, name: &'static str, callers: usize) -> Line {
        let mean_batch = self.appends as f64 / self.batches.max(1) as f64;
        line(name, callers, &self.new, &self.bare, mean_batch)
    }
}

fn line(name: &'static str, callers: usize, costs: &[Cost], raw: &[Cost], mean_batch: f64) -> Line {
    let rates = |costs: &[Cost]| costs.iter().map(|cost| cost.per_second).collect::<Vec<f64>>();
    // Ticks are coarse, so those of all rounds are put together.
    let processor_us = |costs: &[Cost]| {
        let told = costs.iter().map(|cost| cost.processor_us).sum::<Option<f64>>();
        told.map(|sum| sum / costs.len().max(1) as f64)
    };
    let pairs = costs.iter().zip(raw);
    Line {
        name,
        backend: "sqlite",
        callers,
        per_second: median(rates(costs)),
        raw_per_second: median(rates(raw)),
        ratio: median(pairs.map(|(one, other)| one.per_second / other.per_second).collect()),
        mean_batch,
        row_at_a_time_per_second: None,
        bytes_per_key: None,
        processor_us: processor_us(costs).zip(processor_us(raw)).map(<[f64; 2]>::from),
    }
}
