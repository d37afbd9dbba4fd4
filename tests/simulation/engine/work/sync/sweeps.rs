//! What is missing: asked about, deleted in the graph, and swept.

use connector_store::testing::ProviderError;
use connector_store::{CandidateKey, CandidateState, SweepOutcome};

use super::{Step, Stop, Visit};
use crate::engine::graph::{Entity, Shown};

/// Candidates that are asked for at once.
const CANDIDATES: u32 = 12;
/// More than an account has documents.
const SWEEPS: u32 = 200;

impl Visit<'_> {
    /// Asks the provider about an entity of this account.
    fn look(&self, entity: &Entity) -> SweepOutcome {
        let provider = &self.account().provider;
        if provider.account() != entity.remote {
            return SweepOutcome::Unknown;
        }
        match provider.get(&entity.partition, &entity.source_id) {
            Ok(_) => SweepOutcome::Present,
            Err(ProviderError::Gone) => SweepOutcome::Absent,
            Err(_) => SweepOutcome::Unknown,
        }
    }

    /// Asks about the candidates that are due, and deletes those that are gone.
    pub(super) async fn candidates(&self) -> Step {
        let due = self.connector.due_candidates(CANDIDATES);
        for candidate in self.call("list due candidates", due).await? {
            let Some(entity) = Entity::of(&candidate.document_id) else { continue };
            // Nobody of another account can be asked about it.
            if candidate.provenance.as_str() != self.account().provider.account() {
                continue;
            }
            self.reach().await;
            let asked = self.moment();
            let (key, outcome) = (candidate.key(), self.look(&entity));
            let record = self.connector.record_sweep_outcome(&key, outcome);
            let what = format!("record a sweep outcome: {}, {outcome:?}", candidate.document_id);
            let state = self.call(&what, record).await?;
            // One that was confirmed earlier stays so, and what was gone then may have come back.
            if state == Some(CandidateState::Confirmed) && outcome == SweepOutcome::Absent {
                self.delete(&entity, &key, asked).await?;
            }
        }
        Ok(())
    }

    async fn delete(&self, entity: &Entity, key: &CandidateKey, asked: u64) -> Step {
        let document = entity.document();
        if self.drawn(150) && !self.is_thorough {
            let failed = self.connector.record_sweep_apply_failure(key, "the graph is busy");
            return self
                .call(&format!("record an apply failure: {document}"), failed)
                .await
                .map(drop);
        }
        let begin = self.session.document(&document);
        self.call(&format!("begin a sweep: {document}"), begin.begin_document_sweep()).await?;
        // Not every host asks once more: what it was told just now is good enough.
        let asked = Some(asked).filter(|_| self.drawn(400));
        self.end(entity, asked).await?;
        self.call(&format!("candidate applied: {document}"), self.connector.sweep_applied(key))
            .await
    }

    fn is_shown(&self, entity: &Entity) -> bool {
        self.world().graph.borrow().get(entity).is_some()
    }

    fn moment(&self) -> u64 {
        self.world().audit.borrow_mut().deletions.moment()
    }

    /// Ends a begun sweep: the graph first, as only its rows say that it is to be deleted. Who has not
    /// asked the provider in this visit does.
    async fn end(&self, entity: &Entity, asked: Option<u64>) -> Step {
        let document = entity.document();
        let handle = self.session.document(&document);
        let asked = match asked {
            Some(asked) => asked,
            None => {
                self.reach().await;
                let asked = self.moment();
                match self.look(entity) {
                    SweepOutcome::Absent => asked,
                    SweepOutcome::Unknown => return Err(Stop::Unusable),
                    // Who was here before has deleted it in the graph. That its rows are not needed
                    // is forgotten only when they are written anew, or nobody would find them.
                    SweepOutcome::Present if !self.is_shown(entity) => return Err(Stop::Unusable),
                    SweepOutcome::Present => {
                        self.show_again(entity)?;
                        let abandon = handle.abandon_document_sweep();
                        return self.call(&format!("abandon a sweep: {document}"), abandon).await;
                    }
                }
            }
        };
        if !self.world().graph.borrow_mut().delete(entity, self.token()) {
            return Err(Stop::Late);
        }
        self.world().audit.borrow_mut().deletions.deleted(
            self.world(),
            entity,
            self.token(),
            asked,
        );
        let marks = self.world().audit.borrow().erasure.of(&document);
        self.call(&format!("sweep a document: {document}"), handle.sweep_document_rows()).await?;
        self.world().audit.borrow_mut().erasure.erase(&document, marks);
        Ok(())
    }

    /// It stays. Who deleted it in the graph has left its row, which has to be found when it goes
    /// after all; what it shows is not known to be the newest.
    fn show_again(&self, entity: &Entity) -> Step {
        let mut graph = self.world().graph.borrow_mut();
        let shown = Shown { version: String::new(), is_written: false };
        if graph.get(entity).is_none() {
            if !graph.put(entity, shown, self.token()) {
                return Err(Stop::Late);
            }
            self.world().audit.borrow_mut().deletions.shown(entity);
        }
        Ok(())
    }

    /// Finds the sweeps of this account that somebody has begun, and ends them.
    pub(super) async fn resume_sweeps(&mut self) -> Step {
        let before = Entity::before(self.at);
        let begun = self.worker.store.begun_sweeps(Some(&before), SWEEPS);
        let begun = self.call("list begun sweeps", begun).await?;
        let documents = begun.into_iter().map(|sweep| sweep.document_id);
        self.begun = documents
            .filter(|document| Entity::of(document).is_some_and(|of| of.account == self.at))
            .collect();
        self.finish_begun().await
    }

    /// Ends what is begun, as far as that can be known to be right.
    pub(super) async fn finish_begun(&mut self) -> Step {
        for document in self.begun.clone() {
            let Some(entity) = Entity::of(&document) else { continue };
            match self.end(&entity, None).await {
                Err(Stop::Unusable) => {}
                result => {
                    result?;
                    self.begun.remove(&document);
                }
            }
        }
        Ok(())
    }
}
