//! Signed records: puts of new copies beside bare strict verification of the same tokens on as many
//! threads, puts of copies that stand, and decisions of documents in memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use connector_store::records::{
    HlcClock, PublicKey, RecordSigner, SignedRecord, SigningKey, parse, verify,
};
use connector_store::{DocumentId, DocumentRef, OwnerDid, Store};

use crate::Outcome;
use crate::table::{Line, median};

/// A first put of each copy.
pub const PUT_NEW: &str = "put_observation_new";
/// A put of a copy that stands.
pub const PUT_KNOWN: &str = "put_observation_known";
/// A decision of a document in memory.
pub const DECISION: &str = "observation_decision";

/// Documents that are observed in turn.
const DOCUMENTS: usize = 2_000;
/// Rounds of a cell, the first of which warms up.
const ROUNDS: usize = 7;
/// New copies of a round and caller, within these bounds.
const COPIES_PER_CALLER: usize = 150;
const COPIES: std::ops::RangeInclusive<usize> = 400..=12_000;

struct Bench {
    store: Store,
    signer: RecordSigner,
    key: PublicKey,
    owner: OwnerDid,
    documents: Vec<DocumentRef>,
    clock: HlcClock,
}

impl Bench {
    async fn open(path: &Path) -> Outcome<Self> {
        let store = Store::builder().sqlite(path).accept_foreign_owners().open().await?;
        let signing_key = SigningKey::ed25519_from_seed([7; 32]);
        let key = signing_key.public_key();
        let signer = RecordSigner::did_key(signing_key);
        let owner = OwnerDid::new(signer.issuer())?;
        let documents = (0..DOCUMENTS)
            .map(|n| Ok(store.document(&DocumentId::new(format!("document-{n:023}"))?)))
            .collect::<Outcome<_>>()?;
        let clock = store.hlc_clock("bench", Duration::from_secs(60)).await?;
        Ok(Self { store, signer, key, owner, documents, clock })
    }

    /// New copies: each is of the next document, and above what stands there.
    fn sign(&mut self, count: usize) -> Outcome<Arc<Vec<SignedRecord>>> {
        let payload = br#"{"title":"Team meeting","starts":"2026-01-01T09:00:00Z","room":"4.12"}"#;
        let records = (0..count).map(|n| {
            let stamp = self.clock.now(1_767_225_600_000)?;
            let document = self.documents[n % DOCUMENTS].id();
            let payload = Some(payload.as_slice());
            Ok(self.signer.sign(&self.owner, document, &stamp, &stamp, payload)?)
        });
        Ok(Arc::new(records.collect::<Outcome<_>>()?))
    }

    /// Puts the records, each once, by so many callers. Gives the time.
    async fn put(&self, callers: usize, records: &Arc<Vec<SignedRecord>>) -> Outcome<Duration> {
        let records = Arc::clone(records);
        let documents = self.documents.clone();
        let put = move |n: usize| {
            let (record, document) = (records[n].clone(), documents[n % DOCUMENTS].clone());
            async move { Ok(document.put_observation_copy(&record).await?) }
        };
        self.each(callers, self.count_of(callers), put).await
    }

    fn count_of(&self, callers: usize) -> usize {
        (callers * COPIES_PER_CALLER).clamp(*COPIES.start(), *COPIES.end())
    }

    /// Does `work` for 0 to `count`, by so many callers.
    async fn each<F: Future<Output = Outcome<()>> + Send + 'static>(
        &self,
        callers: usize,
        count: usize,
        work: impl Fn(usize) -> F + Clone + Send + Sync + 'static,
    ) -> Outcome<Duration> {
        let next = Arc::new(AtomicUsize::new(0));
        let begun = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..callers {
            let (next, work) = (Arc::clone(&next), work.clone());
            tasks.spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return Outcome::Ok(());
                    }
                    work(n).await?;
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(begun.elapsed())
    }
}

/// Verifies every token of the records strictly, on as many threads as there are cores. The
/// messages and signatures are taken apart before.
fn verify_bare(key: &PublicKey, records: &[SignedRecord]) -> Outcome<Duration> {
    let parsed: Vec<_> = records
        .iter()
        .map(|record| parse(record, &connector_store::records::RecordLimits::default()))
        .collect::<Result<_, _>>()
        .map_err(|fault| fault.to_string())?;
    let threads = std::thread::available_parallelism()?.get();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let parts: Vec<_> = parsed
            .chunks(parsed.len().div_ceil(threads))
            .map(|part| scope.spawn(move || part.iter().all(|one| verify(one, key).is_ok())))
            .collect();
        let all = parts.into_iter().all(|part| part.join().unwrap_or(false));
        if all { Ok(begun.elapsed()) } else { Err("a token does not verify".into()) }
    })
}

/// All three, with each number of callers.
pub async fn run(directory: &Path, callers: &[usize]) -> Outcome<Vec<Line>> {
    let directory = tempfile::tempdir_in(directory)?;
    let mut bench = Bench::open(&directory.path().join("store.db")).await?;
    let mut lines = Vec::new();
    for &callers in callers {
        lines.extend(cells(&mut bench, callers).await?);
    }
    bench.store.close().await?;
    Ok(lines)
}

async fn cells(bench: &mut Bench, callers: usize) -> Outcome<Vec<Line>> {
    let count = bench.count_of(callers);
    let (mut new, mut bare, mut known, mut read) = (vec![], vec![], vec![], vec![]);
    let (mut appends, mut batches) = (0, 0);
    for round in 0..ROUNDS {
        let records = bench.sign(count)?;
        let before = bench.store.stats();
        let first = bench.put(callers, &records).await?;
        let after = bench.store.stats();
        let verified = verify_bare(&bench.key, &records)?;
        let repeated = bench.put(callers, &records).await?;
        let (documents, owner) = (bench.documents.clone(), bench.owner.clone());
        let observed = count.min(DOCUMENTS);
        let decide = move |n: usize| {
            let (document, owner) = (documents[n % observed].clone(), owner.clone());
            async move {
                let decision = document.observation_decision(&owner).await?;
                decision.map(drop).ok_or_else(|| "a decision is missing".into())
            }
        };
        let decisions = observed * 4;
        let decided = bench.each(callers, decisions, decide).await?;
        if round == 0 {
            continue;
        }
        let rate = |of: usize, took: Duration| of as f64 / took.as_secs_f64();
        new.push(rate(count, first));
        bare.push(rate(count, verified));
        known.push(rate(count, repeated));
        read.push(rate(decisions, decided));
        appends += after.appends - before.appends;
        batches += after.batches - before.batches;
    }
    let mean_batch = appends as f64 / batches.max(1) as f64;
    let pairs = |one: &[f64], other: &[f64]| {
        median(one.iter().zip(other).map(|(one, other)| one / other).collect())
    };
    let line = |name, rates: &[f64], raw: &[f64], mean_batch| Line {
        name,
        backend: "sqlite",
        callers,
        per_second: median(rates.to_vec()),
        raw_per_second: median(raw.to_vec()),
        ratio: pairs(rates, raw),
        mean_batch,
        row_at_a_time_per_second: None,
        bytes_per_key: None,
    };
    Ok(vec![
        line(PUT_NEW, &new, &bare, mean_batch),
        line(PUT_KNOWN, &known, &new, 0.0),
        line(DECISION, &read, &[], 0.0),
    ])
}
