//! The same commands on two backends, and what each of them told.

use std::fmt::Debug;
use std::sync::Arc;

use connector_store::domain::Table;
use connector_store::journal::{
    PostgresOptions, PostgresStorage, RowQuery, SqliteOptions, SqliteStorage, Storage,
};
use connector_store::testing::{FaultyStorage, SeededIds, SeededJitter, SimClock};
use connector_store::{
    BeginReceipt, ConnectorRef, Digest, Hlc, ModelId, OperationId, OperationKind, OperationRequest,
    PartitionId, Provenance, ReceiptKey, ReceiptKind, Result, Store, SweepReceipt, Timestamp,
};

use crate::common::*;
use crate::world::World;

/// Later than any database's own time, so that what it stamps is older on both sides.
const LONG_AFTER: i64 = 4_102_444_800_000;

/// One store, and all that it has told.
pub struct Side {
    pub store: Store,
    storage: Arc<FaultyStorage>,
    pub time: SimClock,
    told: Vec<String>,
}

impl Side {
    async fn new(storage: Arc<dyn Storage>, time: SimClock) -> Self {
        let storage = FaultyStorage::new(storage).with_time(Arc::new(time.clone()));
        let storage = Arc::new(storage);
        let builder = Store::builder()
            .storage(Arc::clone(&storage) as _)
            .clock(Arc::new(time.clone()))
            .ids(Arc::new(SeededIds::new(1)))
            .jitter(Arc::new(SeededJitter::new(1)))
            .snapshot_every_events(4)
            .arbiters(2);
        Self { store: builder.open().await.unwrap(), storage, time, told: Vec::new() }
    }

    /// Keeps what was answered. A token names the store's generation, which is its own.
    pub fn tell(&mut self, what: impl Debug, answer: impl Debug) {
        let generation = self.storage.generation().to_string();
        let answer = format!("{answer:?}").replace(&generation, "GENERATION");
        self.told.push(format!("{what:?}: {answer}"));
    }

    /// Every row of every read table, by small pages.
    pub async fn tell_rows(&mut self) {
        for table in Table::ALL {
            let order = table.spec().key.to_vec();
            let mut after = None;
            loop {
                let (filters, order) = (Vec::new(), order.clone());
                let page = RowQuery { table, filters, order, after, limit: 3 };
                let rows = self.storage.rows(&page).await.unwrap();
                let Some(last) = rows.last() else { break };
                after = Some(page.order.iter().map(|at| last.values[*at].clone()).collect());
                for row in &rows {
                    self.tell(table.spec().name, &row.values);
                }
            }
        }
    }
}

pub async fn sides(world: &World, directory: &tempfile::TempDir) -> [Side; 2] {
    let time = || SimClock::new(Timestamp::from_millis(LONG_AFTER));
    let (here, there) = (time(), time());
    // Its generation is a number that is no time of the test.
    let opened_at = Timestamp::from_millis(1_234_567_890_123);
    let options = SqliteOptions::new(directory.path().join("store.db"), opened_at);
    let sqlite = Arc::new(SqliteStorage::open(options).await.unwrap());
    let postgres = PostgresStorage::open(PostgresOptions::new(world.url())).await.unwrap();
    [Side::new(sqlite, here).await, Side::new(Arc::new(postgres), there).await]
}

pub fn assert_same(sides: &[Side; 2]) {
    let [sqlite, postgres] = sides;
    for (at, (sqlite, postgres)) in sqlite.told.iter().zip(&postgres.told).enumerate() {
        assert_eq!(sqlite, postgres, "the answer with number {at}");
    }
    assert_eq!(sqlite.told.len(), postgres.told.len());
}

pub fn stamp() -> Hlc {
    Hlc::parse("001767225600000-00000000-host").unwrap()
}

pub async fn begin(handle: &ConnectorRef, partition: &str, lineage: &str) -> Result<SweepReceipt> {
    let receipt = BeginReceipt {
        partition: PartitionId::new(partition).unwrap(),
        provenance: Provenance::new(lineage).unwrap(),
        model_id: ModelId::new("note").unwrap(),
        scope: "all".to_owned(),
        source_fetch_hlc: stamp(),
        predicate: None,
        kind: ReceiptKind::Full,
        fingerprint: "print".to_owned(),
    };
    handle.begin_receipt(receipt).await
}

pub fn receipt_key(receipt: &SweepReceipt) -> ReceiptKey {
    ReceiptKey {
        partition: receipt.partition.clone(),
        provenance: receipt.provenance.clone(),
        sequence: receipt.sequence,
    }
}

pub fn request(id: &str, at: usize) -> OperationRequest {
    OperationRequest {
        operation_id: OperationId::new(id).unwrap(),
        owner: owner("o"),
        connector: folder(),
        op: [OperationKind::Create, OperationKind::Update, OperationKind::Delete][at % 3],
        version: stamp(),
        request_digest: Digest::of(id.as_bytes()),
        visibility_delay: SECOND,
    }
}
