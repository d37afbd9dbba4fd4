//! Enumerations: begun, gone on with, completed and committed.

use std::collections::BTreeMap;
use std::time::Duration;

use connector_store::testing::{Next, ProviderError};
use connector_store::{
    BeginReceipt, DocumentId, Error, HlcClock, MassDeleteGuard, ModelId, PartitionId, Provenance,
    ReceiptKey, ReceiptKind, SourceId, SweepReceipt,
};

use super::place::Place;
use super::{Step, Stop, Visit};
use crate::engine::audit::receipts::{Commit, Listed};

/// Entities of a page.
const PAGE: usize = 6;
/// A receipt may be a page ahead of its checkpoint, not this many.
const FAR_AHEAD: u32 = 3;

impl Visit<'_> {
    /// Lists a partition: from where an earlier holder was, if that can be.
    pub(super) async fn list(&mut self, partition: &PartitionId, remote: &str) -> Step {
        let provenance = Provenance::new(remote)?;
        let standing = self.connector.receipt(partition, &provenance);
        let standing = self.call(&format!("read a receipt: {partition}"), standing).await?;
        if let Some(receipt) = &standing
            && receipt.complete
            && receipt.committed_at.is_none()
            && !self.is_thorough
        {
            return self.commit(&receipt.key()).await;
        }
        let (key, mut place) = match self.goes_on(partition, remote, standing) {
            Some(there) => there,
            None => self.begin(partition, remote).await?,
        };
        loop {
            self.reach().await;
            let provider = &self.account().provider;
            let listing = match provider.list(partition, place.next().as_ref(), PAGE) {
                Err(ProviderError::CursorExpired) => {
                    self.cursor_lost(partition).await?;
                    return Err(ProviderError::CursorExpired.into());
                }
                listing => listing?,
            };
            // Whose it is can only be asked afterwards; the receipt holds it against the begin.
            let fingerprint = provider.account();
            let ids: Vec<SourceId> =
                listing.items.iter().map(|item| item.source_id.clone()).collect();
            let listed = Listed { remote: fingerprint.to_owned(), source_ids: ids.clone() };
            let page = place.page;
            self.world().audit.borrow_mut().receipts.listed(self.at, &key, page, listed);
            if self.drawn(30) {
                self.overtakes(&key, page + FAR_AHEAD, ids.clone(), fingerprint).await;
            }
            let extend = self.connector.extend_receipt(&key, page, ids, fingerprint);
            self.call(&format!("extend a receipt: {partition} page {page}"), extend).await?;
            match listing.next {
                Next::Page(next) => {
                    place = place.turn(&next);
                    self.write(partition, &listing.items, place.clone()).await?;
                }
                Next::Last { total, sync } => {
                    place = place.end(&sync);
                    self.write(partition, &listing.items, place.clone()).await?;
                    let complete =
                        self.connector.complete_receipt(&key, place.page, total, fingerprint);
                    self.call(&format!("complete a receipt: {partition}"), complete).await?;
                    let is_left = self.drawn(150) && !self.is_thorough;
                    return if is_left { Ok(()) } else { self.commit(&key).await };
                }
            }
        }
    }

    /// A page that came before its time is refused: those before it may never come.
    async fn overtakes(&self, key: &ReceiptKey, page: u32, ids: Vec<SourceId>, fingerprint: &str) {
        let extend = self.connector.extend_receipt(key, page, ids, fingerprint);
        let result =
            self.call(&format!("extend a receipt: page {page} before its time"), extend).await;
        let world = self.world();
        world.hold("no page is left out", result.is_err(), || format!("{page} of {key:?}"));
    }

    /// The open receipt at the place of the checkpoint.
    fn goes_on(
        &self,
        partition: &PartitionId,
        remote: &str,
        standing: Option<SweepReceipt>,
    ) -> Option<(ReceiptKey, Place)> {
        let receipt = standing.filter(|receipt| !receipt.complete && !self.is_thorough)?;
        let place = self.places.get(partition).filter(|place| {
            place.remote == remote
                && place.receipt == Some(receipt.sequence)
                && place.next().is_some()
        })?;
        Some((receipt.key(), place.clone()))
    }

    async fn begin(&self, partition: &PartitionId, remote: &str) -> Step<(ReceiptKey, Place)> {
        let wall = self.account().provider.now().as_millis();
        let fetched = HlcClock::new("sim", Duration::from_secs(60))?.now(wall)?;
        let begin = self.connector.begin_receipt(BeginReceipt {
            partition: partition.clone(),
            provenance: Provenance::new(remote)?,
            model_id: ModelId::new("note")?,
            scope: "all".to_owned(),
            source_fetch_hlc: fetched,
            predicate: None,
            kind: ReceiptKind::Full,
            fingerprint: remote.to_owned(),
        });
        let receipt = self.call(&format!("begin a receipt: {partition}"), begin).await?;
        let mut place = Place::begin(self.pass(), remote.to_owned());
        place.receipt = Some(receipt.sequence);
        Ok((receipt.key(), place))
    }

    /// Commits with what is known. What would delete too much a person has to allow.
    async fn commit(&self, key: &ReceiptKey) -> Step {
        let allow_mass_delete = self.is_thorough || self.drawn(100);
        let guard = MassDeleteGuard { min_count: 4, allow_mass_delete, ..Default::default() };
        let known: BTreeMap<DocumentId, SourceId> = {
            let graph = self.world().graph.borrow();
            let known = graph.of(self.at, &key.partition, key.provenance.as_str());
            known.map(|(entity, _)| (entity.document(), entity.source_id.clone())).collect()
        };
        let commit = Commit { known: known.clone(), guard };
        self.world().audit.borrow_mut().receipts.commits(self.at, key, commit);
        let known: Vec<_> = known.into_iter().collect();
        let what =
            format!("commit a receipt: {} {}, {} known", key.partition, key.sequence, known.len());
        if self.drawn(100) {
            let plan = self.connector.plan_receipt(key, known.clone(), guard);
            let _ = self.call(&format!("plan a receipt: {}", key.partition), plan).await;
        }
        let commit = self.connector.commit_receipt(key, known, guard);
        match self.call(&what, commit).await {
            // It stays as it is: the next visit may find more, or somebody who allows it.
            Err(Stop::Store(Error::SweepTooLarge { .. })) => Ok(()),
            result => result.map(drop),
        }
    }
}
