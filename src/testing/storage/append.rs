//! The way of an append through a storage with faults.

use std::borrow::Cow;
use std::sync::Arc;

use uuid::Uuid;

use super::fault::{Fault, Stage, unreachable};
use super::{FaultyStorage, Rival, Steps};
use crate::base::{Result, StreamName, Timestamp};
use crate::journal::{Append, AppendOutcome, BatchError, BegunAppend, Expected, Storage};

impl FaultyStorage {
    async fn play_rivals(&self, batch: &[Append]) -> Result<(), BatchError> {
        let names = |stream: &StreamName| {
            batch.iter().flat_map(|append| &append.parts).any(|part| part.stream == *stream)
        };
        let due: Vec<(StreamName, Rival)> =
            self.script().rivals.extract_if(.., |(stream, _)| names(stream)).collect();
        for (stream, build) in due {
            let confirmed = self.inner.confirm_heads(&[stream]).await;
            let heads = confirmed.map_err(BatchError::Failed)?;
            let head = heads.heads.first().copied().flatten().unwrap_or(Expected::NONE);
            self.inner.append(&[build(head)], heads.now).await?;
            self.count();
        }
        Ok(())
    }

    fn remember_taken(&self, batch: &[Append], outcomes: Vec<AppendOutcome>) {
        let mut script = self.script();
        for (append, outcome) in batch.iter().zip(outcomes) {
            if let AppendOutcome::Committed { taken } = outcome {
                script.taken_in_doubt.insert(append.command_id, taken);
            }
        }
    }

    pub(super) async fn look_up_taken(&self, append: &Append) -> Result<Option<AppendOutcome>> {
        let gate = self.script().look_up_gate.clone();
        if let Some(gate) = gate {
            gate.pass().await;
        }
        let found = self.alive(async { self.online()?.look_up(append).await }).await?;
        let remembered = self.script().taken_in_doubt.remove(&append.command_id);
        Ok(match (found, remembered) {
            (Some(AppendOutcome::Committed { .. }), Some(taken)) => {
                Some(AppendOutcome::Committed { taken })
            }
            (found, _) => found,
        })
    }

    fn tell(&self, stage: Stage, batch: &[Append]) {
        let observer = self.script().observer.clone();
        if let Some(observer) = observer {
            observer(stage, batch);
        }
    }

    /// Judges a batch, whose faults come when it is committed.
    pub(super) async fn begin_faulty(
        &self,
        batch: &[Append],
        now: Timestamp,
    ) -> Result<BegunAppend, BatchError> {
        let Some(Steps { journal, waits, turn }) = &self.steps else {
            let outcomes = self.append_faulty(batch, now).await?;
            return Ok(BegunAppend { outcomes, commit: None });
        };
        let held = if *waits { Some(Arc::clone(turn).lock_owned().await) } else { None };
        self.alive(self.play_rivals(batch)).await?;
        let outcomes = self.alive(async { journal.judge(batch, now) }).await;
        let number = {
            let mut script = self.script();
            script.begun += 1;
            script.begun
        };
        let (storage, turn) = (self.clone(), Arc::clone(turn));
        let (batch, told) = (batch.to_vec(), outcomes.clone());
        let commit = async move {
            let held = held.or_else(|| turn.try_lock_owned().ok());
            assert!(held.is_some(), "a transaction is committed beside another one");
            let failed = storage.script().begun_at_failure;
            assert!(number > failed, "a transaction is committed behind one that failed");
            let ended = storage.commit_faulty(&batch, now, told).await;
            if ended.is_err() {
                let mut script = storage.script();
                script.begun_at_failure = script.begun;
            }
            ended
        };
        Ok(BegunAppend { outcomes, commit: Some(Box::pin(commit)) })
    }

    async fn commit_faulty(
        &self,
        batch: &[Append],
        now: Timestamp,
        told: Vec<AppendOutcome>,
    ) -> Result<(), BatchError> {
        let outcomes = self.append_faulty(batch, now).await?;
        if outcomes == told {
            return Ok(());
        }
        // Another store came between the steps, which nothing here is locked against: what became of
        // each append must be looked up.
        self.remember_taken(batch, outcomes);
        Err(BatchError::Unknown(unreachable()))
    }

    pub(super) async fn append_faulty(
        &self,
        batch: &[Append],
        now: Timestamp,
    ) -> Result<Vec<AppendOutcome>, BatchError> {
        self.alive(async {}).await;
        let (fault, yields) = self.choose();
        if yields > 0 || !matches!(fault, Fault::None) {
            self.count();
        }
        if yields > 0 || matches!(fault, Fault::StallBefore(_) | Fault::Kill) {
            self.script().under_way = Some((batch.to_vec(), now));
        }
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        match &fault {
            Fault::Fail(error) => return Err(BatchError::Failed(error.clone())),
            Fault::Passing => return Err(BatchError::Passing(unreachable())),
            Fault::LoseCommit => return Err(BatchError::Unknown(unreachable())),
            Fault::StallBefore(gate) => gate.pass().await,
            Fault::Panic => panic!("the storage panics as it was told to"),
            Fault::Full(appends) => self.script().appends_without_room = *appends,
            Fault::Kill => self.kill().await,
            Fault::None | Fault::LoseAcknowledgement | Fault::StallAfter(_) | Fault::Rival => {}
        }
        let is_outrun = matches!(fault, Fault::Rival);
        let outcomes = self.alive(self.write(batch, now, is_outrun)).await?;
        match fault {
            Fault::LoseAcknowledgement => {
                self.remember_taken(batch, outcomes);
                return Err(BatchError::Unknown(unreachable()));
            }
            Fault::StallAfter(gate) => {
                gate.pass().await;
                self.alive(async {}).await;
            }
            _ => {}
        }
        Ok(outcomes)
    }

    /// Hands a batch to the storage, whose answer is that it is written and synced.
    pub(super) async fn write(
        &self,
        batch: &[Append],
        now: Timestamp,
        is_outrun: bool,
    ) -> Result<Vec<AppendOutcome>, BatchError> {
        self.script().under_way = None;
        let inner = self.room_for(batch).map_err(BatchError::Failed)?;
        if self.steps.is_none() {
            self.play_rivals(batch).await?;
        }
        self.tell(Stage::BeforeCommit, batch);
        let written = if is_outrun { self.outrun(batch) } else { Cow::Borrowed(batch) };
        let outcomes = inner.append(&written, now).await?;
        self.tell(Stage::AfterCommit, batch);
        Ok(outcomes)
    }

    /// The storage that a batch can be written to. A batch of conditions alone needs no room.
    fn room_for(&self, batch: &[Append]) -> Result<&dyn Storage> {
        if !batch.iter().any(Append::writes) {
            return self.online();
        }
        let reached = self.room();
        let mut script = self.script();
        script.appends_without_room = script.appends_without_room.saturating_sub(1);
        reached
    }

    /// The batch as it would be judged had a rival host moved the head of one of its streams: what
    /// names the stream expects a head that it has not.
    fn outrun<'a>(&self, batch: &'a [Append]) -> Cow<'a, [Append]> {
        let streams: Vec<&StreamName> =
            batch.iter().flat_map(|append| &append.parts).map(|part| &part.stream).collect();
        let Some(stream) = self.script().seeded.one_of(&streams) else {
            return Cow::Borrowed(batch);
        };
        let mut outrun = batch.to_vec();
        let parts = outrun.iter_mut().flat_map(|append| &mut append.parts);
        for part in parts.filter(|part| part.stream == **stream) {
            part.expected.command_id = Uuid::max();
        }
        Cow::Owned(outrun)
    }
}
