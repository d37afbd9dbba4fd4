//! The cases: what a caller does again and again, how many do it at once, and which rows it writes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use connector_store::domain::auth::{auth_key, record_to_row};
use connector_store::domain::{Row, RowChange, RowKey, Table, Value};
use connector_store::{
    Claim, ConnectorName, ConnectorRef, Digest, DocumentId, DocumentRef, Hlc, Holder, Json,
    OperationId, OperationKind, OperationRequest, OwnerDid, PendingAuthRecord, Rfc3339, Secret,
    SourceId, Store, StoreBuilder, SyncProgress, SyncState, Timestamp,
};

use crate::Outcome;
use crate::mirror::Mirror;
use crate::raw::{self, Event, LOAD_STREAM, READ_TRIM, ReadRows};
use crate::table::{Line, median};

/// Keys of a case with distinct keys. Callers take them in turn, so a batch rarely meets one twice.
const DISTINCT_KEYS: usize = 10_000;
/// Rounds of a cell. In each the store works, then the bare connection.
const ROUNDS: u32 = 9;
/// Documents that are made for each second of sweeping.
const SWEPT_PER_SECOND: usize = 16_000;
/// Callers that prepare a case.
const SETUP_CALLERS: usize = 512;
/// How long an operation is claimed.
const LEASE_TIME: Duration = Duration::from_secs(60);
/// The numbers of a document's events that change the rows of a claim.
const OPERATION_CREATED: i64 = 6;
const OPERATION_FINALIZED: i64 = 12;
/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Case {
    TrimDistinct,
    TrimHot,
    ProgressDistinct,
    ProgressHot,
    Auth,
    ReadActive,
    ReadCold,
    Sweep,
    Operation,
}

impl Case {
    pub const ALL: [Self; 9] = [
        Self::TrimDistinct,
        Self::TrimHot,
        Self::ProgressDistinct,
        Self::ProgressHot,
        Self::Auth,
        Self::ReadActive,
        Self::ReadCold,
        Self::Sweep,
        Self::Operation,
    ];

    /// Those that are measured on PostgreSQL, too.
    #[cfg(all(unix, feature = "postgres"))]
    pub const ON_POSTGRES: [Self; 6] = [
        Self::TrimDistinct,
        Self::TrimHot,
        Self::ProgressDistinct,
        Self::ProgressHot,
        Self::ReadActive,
        Self::Operation,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::TrimDistinct => "set_entity_trim_distinct",
            Self::TrimHot => "set_entity_trim_hot",
            Self::ProgressDistinct => "update_sync_progress_distinct",
            Self::ProgressHot => "update_sync_progress_hot",
            Self::Auth => "create_consume_pending_auth",
            Self::ReadActive => "read_active",
            Self::ReadCold => "read_cold",
            Self::Sweep => "sweep_document_rows",
            Self::Operation => "claim_send_finalize",
        }
    }

    fn keys(self) -> usize {
        if matches!(self, Self::TrimHot | Self::ProgressHot) { 1 } else { DISTINCT_KEYS }
    }

    fn is_read(self) -> bool {
        matches!(self, Self::ReadActive | Self::ReadCold)
    }

    fn builder(self) -> StoreBuilder {
        let builder = Store::builder();
        // So few keys stay in memory that the next one is always cold.
        if self == Self::ReadCold { builder.max_active_keys(1) } else { builder }
    }

    /// The read tables that its commands write and that keep what was written.
    fn tables(self) -> &'static [Table] {
        match self {
            Self::ProgressDistinct | Self::ProgressHot => &[Table::SyncState],
            Self::Auth => &[Table::PendingAuth],
            Self::Operation => &[Table::Operation, Table::OperationId],
            _ => &[Table::EntityTrim],
        }
    }
}

/// A store with what the callers of a case share.
pub struct Bench {
    case: Case,
    store: Store,
    documents: Vec<DocumentRef>,
    connectors: Vec<ConnectorRef>,
    owner: OwnerDid,
    connector: ConnectorName,
    holder: Holder,
    next: AtomicUsize,
}

impl Bench {
    /// A store in the file at `path`.
    pub async fn open(case: Case, path: &Path) -> Outcome<Arc<Self>> {
        Self::of(case, case.builder().sqlite(path)).await
    }

    /// A store where the builder says.
    async fn of(case: Case, builder: StoreBuilder) -> Outcome<Arc<Self>> {
        let store = builder.open().await?;
        let connector = ConnectorName::new("folder")?;
        let mut bench = Self {
            case,
            documents: Vec::new(),
            connectors: Vec::new(),
            owner: OwnerDid::new("did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp")?,
            connector,
            holder: Holder::new("host-1")?,
            next: AtomicUsize::new(0),
            store,
        };
        bench.documents = (0..case.keys()).map(|n| bench.document(n)).collect::<Outcome<_>>()?;
        for n in 0..case.keys() {
            let owner = OwnerDid::new(format!("did:web:example.org:owner:{n}"))?;
            bench.connectors.push(bench.store.connector(&owner, &bench.connector));
        }
        Ok(Arc::new(bench))
    }

    fn document(&self, n: usize) -> Outcome<DocumentRef> {
        let id = Digest::of(&n.to_be_bytes()).to_hex();
        Ok(self.store.document(&DocumentId::new(&id[..32])?))
    }

    async fn trim(&self, document: &DocumentRef, n: usize) -> Outcome<()> {
        let fields =
            Json::parse("fields", &format!("{{\"body\":{{\"bytes\":{n},\"cap\":4096}}}}"))?;
        Ok(document.set_entity_trim(&self.owner, &self.connector, fields).await?)
    }

    /// One turn of a caller. Gives how many commands it was; 0 when there is nothing left to do.
    async fn turn(&self) -> Outcome<usize> {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        match self.case {
            Case::TrimDistinct | Case::TrimHot => {
                self.trim(&self.documents[n % self.documents.len()], n).await?;
            }
            Case::ProgressDistinct | Case::ProgressHot => {
                let connector = &self.connectors[n % self.connectors.len()];
                connector.update_sync_progress(progress).await?;
            }
            Case::Auth => {
                let record = self.record(n);
                let state = record.state.clone();
                self.store.create_pending_auth(record).await?;
                self.store.consume_pending_auth(&state).await?;
                return Ok(2);
            }
            Case::ReadActive | Case::ReadCold => {
                let found = self.documents[n % self.documents.len()].entity_trim().await?;
                found.ok_or("a trim that was set was not found")?;
            }
            Case::Sweep => match self.documents.get(n) {
                Some(document) => document.sweep_document_rows().await?,
                None => return Ok(0),
            },
            Case::Operation => {
                self.write(&self.document(n)?).await?;
                return Ok(3);
            }
        }
        Ok(1)
    }

    /// One write to a provider, as a host does it: claimed, marked, finalized.
    async fn write(&self, document: &DocumentRef) -> Outcome<()> {
        let request = OperationRequest {
            operation_id: OperationId::new(operation_of(document.id().as_str()))?,
            owner: self.owner.clone(),
            connector: self.connector.clone(),
            op: OperationKind::Update,
            version: Hlc::parse("001700000000000-00000000-bench").ok_or("not a stamp")?,
            request_digest: Digest::of(b"request"),
            visibility_delay: Duration::ZERO,
        };
        let claim = document.claim_operation(&request, &self.holder, LEASE_TIME).await?;
        let Claim::Attempt(claimed) = claim else { return Err("it was claimed before".into()) };
        claimed.mark_send_started().await?;
        let source = SourceId::new("calendar/event.ics")?;
        claimed.finalize_committed(&source, Some("etag-1"), None).await?;
        Ok(())
    }

    fn record(&self, n: usize) -> PendingAuthRecord {
        PendingAuthRecord {
            state: Secret::new(format!("state-{n:032}")),
            code_verifier: Secret::new("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
            provider: "caldav".to_owned(),
            owner: self.owner.clone(),
            owner_wrappable_did: None,
            controller_wrappable_did: None,
            created_at: Timestamp::from_millis(1_700_000_000_000),
            redirect_url: "https://example.org/callback".to_owned(),
            scopes: vec!["calendar.read".to_owned()],
            is_incremental: false,
            expires_at: Timestamp::from_millis(1_700_000_600_000),
        }
    }

    /// What an event of this case changed in the read tables.
    fn rows_of(&self, event: &Event, rows: &ReadRows) -> Vec<RowChange> {
        let put_or_delete =
            |key: RowKey| rows.get(&key).cloned().map_or(RowChange::Delete(key), RowChange::Put);
        if let Some((owner, name)) =
            event.name.strip_prefix("connector:").and_then(|name| name.split_once('\x1f'))
        {
            let key = RowKey::new(Table::SyncState, vec![Value::text(name), Value::text(owner)]);
            return vec![put_or_delete(key)];
        }
        let Some(document) = event.name.strip_prefix("document:") else { return Vec::new() };
        if self.case != Case::Operation {
            let key = RowKey::new(Table::EntityTrim, vec![Value::text(document)]);
            return vec![put_or_delete(key)];
        }
        let id = operation_of(document);
        let of_id = |table| RowKey::new(table, vec![Value::text(id.as_str())]);
        let lease =
            RowKey::new(Table::Lease, vec![Value::text(format!("operation:{document}\u{1f}{id}"))]);
        let mut changes = vec![put_or_delete(of_id(Table::Operation))];
        if event.event_type == OPERATION_CREATED {
            changes.push(put_or_delete(of_id(Table::OperationId)));
            let mut values = lease.values.clone();
            let token = Value::text("1700000000000-1");
            values.extend([
                Value::Text(self.holder.shared()),
                token,
                Value::Int(1_700_000_060_000),
            ]);
            changes.push(RowChange::Put(Row::new(Table::Lease, values)));
        } else if event.event_type == OPERATION_FINALIZED {
            changes.push(RowChange::Delete(lease));
        }
        changes
    }

    /// The changes of the authorizations from `from` on, by their streams.
    fn auth_rows(&self, from: usize) -> impl Fn(&Event, &ReadRows) -> Vec<RowChange> {
        let rows: std::collections::HashMap<Arc<str>, Row> =
            (from..self.next.load(Ordering::Relaxed))
                .map(|n| {
                    let record = self.record(n);
                    (auth_key(&record.state).stream_name(), record_to_row(&record))
                })
                .collect();
        move |event, _| {
            let Some(row) = rows.get(&event.name) else { return Vec::new() };
            // Created is an authorization's first type.
            let is_created = event.event_type == 1;
            let change =
                if is_created { RowChange::Put(row.clone()) } else { RowChange::Delete(row.key()) };
            vec![change]
        }
    }
}

fn operation_of(document: &str) -> String {
    format!("operation-{document}")
}

fn progress(state: Option<&SyncState>) -> SyncProgress {
    let count = state.map_or(0, |state| state.entity_count + 1);
    SyncProgress {
        checkpoint: Json::parse("checkpoint", &format!("{{\"cursor\":\"{count:020}\"}}")).ok(),
        recovery: None,
        last_synced_at: Rfc3339::from_timestamp(Timestamp::from_millis(1_700_000_000_000)),
        entity_count: count,
        error: None,
    }
}

/// What callers did in one slice.
#[derive(Clone, Copy)]
struct Slice {
    commands: usize,
    took: Duration,
    appends: u64,
    batches: u64,
}

/// Lets `callers` tasks work for `time`.
async fn work(bench: &Arc<Bench>, callers: usize, time: Duration) -> Outcome<Slice> {
    let before = bench.store.stats();
    let stop = Arc::new(AtomicBool::new(false));
    let begun = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (bench, stop) = (Arc::clone(bench), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut commands = 0;
                while !stop.load(Ordering::Relaxed) {
                    match bench.turn().await? {
                        0 => break,
                        more => commands += more,
                    }
                }
                Outcome::Ok(commands)
            })
        })
        .collect();
    let timer = tokio::spawn(async move {
        tokio::time::sleep(time).await;
        stop.store(true, Ordering::Relaxed);
    });
    let mut commands = 0;
    for task in tasks {
        commands += task.await??;
    }
    timer.abort();
    let (took, after) = (begun.elapsed(), bench.store.stats());
    Ok(Slice {
        commands,
        took,
        appends: after.appends - before.appends,
        batches: after.batches - before.batches,
    })
}

/// Sets a trim on each document, by many callers.
pub async fn set_trims(bench: &Arc<Bench>, documents: &[DocumentRef]) -> Outcome<()> {
    let mut tasks = tokio::task::JoinSet::new();
    let each = documents.len().div_ceil(SETUP_CALLERS).max(1);
    for part in documents.chunks(each) {
        let (bench, part) = (Arc::clone(bench), part.to_vec());
        tasks.spawn(async move {
            for (n, document) in part.iter().enumerate() {
                bench.trim(document, n).await?;
            }
            Outcome::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// Runs a case with each number of callers.
pub async fn run(
    case: Case,
    directory: &Path,
    callers: &[usize],
    seconds: Duration,
) -> Outcome<Vec<Line>> {
    let directory = tempfile::tempdir_in(directory)?;
    let (path, copy) = (directory.path().join("store.db"), directory.path().join("raw.db"));
    // The store's own migrations make the file that the bare connection writes to.
    Store::builder().sqlite(&copy).open().await?.close().await?;
    let bench = Bench::open(case, &path).await?;
    let mirror = Mirror::Sqlite(raw::Mirror::open(&path, &copy).await?);
    cells(bench, mirror, callers, seconds).await
}

/// Runs a case with each number of callers on a PostgreSQL server.
#[cfg(all(unix, feature = "postgres"))]
pub async fn run_on_postgres(
    case: Case,
    server: &connector_store::testing::TestPostgres,
    callers: &[usize],
    seconds: Duration,
) -> Outcome<Vec<Line>> {
    let mut urls = Vec::new();
    for _ in 0..3 {
        let url = server.url(&server.create_database()?);
        // The store's own migrations make the tables that the bare connections write to.
        Store::builder().postgres(url.as_str()).open().await?.close().await?;
        urls.push(url);
    }
    let bench = Bench::of(case, case.builder().postgres(urls[0].as_str())).await?;
    let mirror =
        Mirror::Postgres(crate::postgres::Mirror::open(&urls[0], &urls[1], &urls[2]).await?);
    cells(bench, mirror, callers, seconds).await
}

/// What a host process of its own does: trims for a while of documents that no other host has, all of
/// which are in memory. Gives how many in a second.
#[cfg(all(unix, feature = "postgres"))]
pub async fn trims_of_a_host(
    url: &str,
    number: usize,
    callers: usize,
    time: Duration,
    wait: impl Future<Output = ()>,
) -> Outcome<f64> {
    let case = Case::TrimDistinct;
    let mut bench = Bench::of(case, case.builder().postgres(url)).await?;
    let first = number * case.keys();
    let own = (first..first + case.keys()).map(|n| bench.document(n)).collect::<Outcome<_>>()?;
    Arc::get_mut(&mut bench).ok_or("a caller is there already")?.documents = own;
    warm_up(&bench).await?;
    wait.await;
    let slice = work(&bench, callers, time).await?;
    bench.store.close().await?;
    Ok(slice.commands as f64 / slice.took.as_secs_f64())
}

async fn cells(
    mut bench: Arc<Bench>,
    mut mirror: Mirror,
    callers: &[usize],
    seconds: Duration,
) -> Outcome<Vec<Line>> {
    warm_up(&bench).await?;
    follow(&bench, &mut mirror, 0, 256).await?;
    let mut lines = Vec::new();
    for &callers in callers {
        lines.push(cell(&mut bench, &mut mirror, callers, seconds / ROUNDS).await?);
    }
    bench.store.close().await?;
    mirror.check(bench.case.tables()).await?;
    mirror.close().await?;
    Ok(lines)
}

async fn warm_up(bench: &Arc<Bench>) -> Outcome<()> {
    if bench.case.is_read() {
        return set_trims(bench, &bench.documents).await;
    }
    if bench.case == Case::Sweep {
        bench.next.store(bench.documents.len(), Ordering::Relaxed);
        return set_trims(bench, &bench.documents[..1_000]).await;
    }
    while bench.next.load(Ordering::Relaxed) < bench.case.keys() {
        work(bench, SETUP_CALLERS, Duration::from_millis(100)).await?;
    }
    Ok(())
}

async fn follow(
    bench: &Bench,
    mirror: &mut Mirror,
    from: usize,
    batch: usize,
) -> Outcome<(usize, Duration)> {
    let tables = bench.case.tables();
    if bench.case == Case::Auth {
        return mirror.follow(tables, batch, &bench.auth_rows(from)).await;
    }
    mirror.follow(tables, batch, &|event, rows| bench.rows_of(event, rows)).await
}

/// One number of callers: store and bare connection in turn.
async fn cell(
    bench: &mut Arc<Bench>,
    mirror: &mut Mirror,
    callers: usize,
    time: Duration,
) -> Outcome<Line> {
    let case = bench.case;
    let (mut rates, mut raw_rates, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut row_rates, mut appends, mut batches) = (Vec::new(), 0, 0);
    // The first round warms both sides up.
    for round in 0..=ROUNDS {
        let from = prepare(bench, mirror, time).await?;
        let slice = work(bench, callers, time).await?;
        let batch = slice.appends.checked_div(slice.batches).unwrap_or(0);
        let rounded = (slice.appends + batch / 2).checked_div(slice.batches).unwrap_or(0);
        let (count, took) = match case {
            Case::ReadActive => mirror.read(READ_TRIM, &names(bench), time).await?,
            Case::ReadCold => mirror.read(LOAD_STREAM, &names(bench), time).await?,
            _ => follow(bench, mirror, from, usize::try_from(rounded)?).await?,
        };
        let by_row = mirror.follow_by_row(callers, time).await?;
        if round == 0 {
            continue;
        }
        row_rates.extend(by_row);
        let rate = slice.commands as f64 / slice.took.as_secs_f64();
        let raw = count as f64 / took.as_secs_f64();
        rates.push(rate);
        raw_rates.push(raw);
        ratios.push(rate / raw);
        appends += slice.appends;
        batches += slice.batches;
    }
    Ok(Line {
        name: case.name(),
        backend: mirror.backend(),
        callers,
        row_at_a_time_per_second: (!row_rates.is_empty()).then(|| median(row_rates)),
        per_second: median(rates),
        raw_per_second: median(raw_rates),
        ratio: median(ratios),
        mean_batch: if batches == 0 { 0.0 } else { appends as f64 / batches as f64 },
        bytes_per_key: None,
        processor_us: None,
    })
}

/// Makes what a slice uses up. Gives the first turn of the slice.
async fn prepare(bench: &mut Arc<Bench>, mirror: &mut Mirror, time: Duration) -> Outcome<usize> {
    let from = bench.next.load(Ordering::Relaxed);
    if bench.case != Case::Sweep {
        return Ok(from);
    }
    let count = SWEPT_PER_SECOND * usize::try_from(time.as_millis())? / 1_000;
    let (old, first) = (bench.documents.len(), bench.documents.len());
    let new = (first..first + count).map(|n| bench.document(n)).collect::<Outcome<Vec<_>>>()?;
    set_trims(bench, &new).await?;
    follow(bench, mirror, from, 256).await?;
    let shared = Arc::get_mut(bench).ok_or("a caller outlived its slice")?;
    shared.documents.extend(new);
    shared.next.store(old, Ordering::Relaxed);
    Ok(old)
}

fn names(bench: &Bench) -> Vec<Arc<str>> {
    bench.documents.iter().map(|document| format!("document:{}", document.id()).into()).collect()
}
