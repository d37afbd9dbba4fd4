//! A client that keeps the store's rules: the half that writes. A request leaves only with a permit,
//! and what nobody knows is asked for.

use std::time::Duration;

use connector_store::testing::{Condition, ProviderError, Version, Write};
use connector_store::{
    Claim, ClaimedOperation, Clock, DeferReason, Digest, DocumentId, Error, Json, OperationKind,
    OperationRequest, Timestamp, WatchExpectation, WatchReason,
};

use super::mirror::{Document, Failure, Mirror};
use super::{calendar, home, host, operation, owner, source};

const CLAIM: Duration = Duration::from_secs(10);
/// The provider shows a write at the latest so long after it.
const VISIBILITY: Duration = Duration::from_secs(5);
const READ_BACK: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(1);

impl Mirror {
    /// The user makes a document. It is written at once, or by a later round.
    pub async fn create(&mut self, name: &str, content: Json) -> Result<DocumentId, Failure> {
        let id = self.new_id();
        let document = Document {
            source_id: source(name),
            content,
            base: None,
            edit: None,
            is_watched: false,
            is_deleted: false,
        };
        self.graph.insert(id.clone(), document);
        self.edit(&id, &format!("op-{name}"), OperationKind::Create).await?;
        Ok(id)
    }

    /// The user changes a document.
    pub async fn update(
        &mut self,
        id: &DocumentId,
        op: &str,
        content: Json,
    ) -> Result<(), Failure> {
        self.graph.get_mut(id).unwrap().content = content;
        self.edit(id, op, OperationKind::Update).await
    }

    /// The user deletes a document.
    pub async fn remove(&mut self, id: &DocumentId, op: &str) -> Result<(), Failure> {
        self.graph.get_mut(id).unwrap().is_deleted = true;
        self.edit(id, op, OperationKind::Delete).await
    }

    async fn edit(
        &mut self,
        id: &DocumentId,
        name: &str,
        op: OperationKind,
    ) -> Result<(), Failure> {
        let version = self.stamp()?;
        let document = self.graph.get_mut(id).unwrap();
        assert!(
            document.edit.is_none(),
            "one edit at a time, so that its operation is not forgotten"
        );
        let content = (op != OperationKind::Delete).then(|| document.content.clone());
        let text = content.as_ref().map_or("", Json::as_str);
        let request = OperationRequest {
            operation_id: operation(name),
            owner: owner(),
            connector: calendar(),
            op,
            version,
            request_digest: Digest::of(text.as_bytes()),
            visibility_delay: VISIBILITY,
        };
        let write = Write {
            operation_id: operation(name),
            partition: home(),
            op,
            source_id: document.source_id.clone(),
            content,
            condition: match &document.base {
                Some(base) => Condition::IfMatch(base.clone()),
                // The weakest, so that nothing but the store keeps it from being made twice.
                None => Condition::None,
            },
        };
        document.edit = Some((request, write));
        self.write_edit(id).await
    }

    pub async fn write_edits(&mut self) -> Result<(), Failure> {
        let edited = self.graph.iter().filter(|(_, it)| it.edit.is_some());
        let edited: Vec<_> = edited.map(|(id, _)| id.clone()).collect();
        for id in edited {
            self.write_edit(&id).await?;
        }
        Ok(())
    }

    async fn write_edit(&mut self, id: &DocumentId) -> Result<(), Failure> {
        let Some((request, write)) = self.graph[id].edit.clone() else { return Ok(()) };
        match self.store.document(id).claim_operation(&request, &host(), CLAIM).await {
            Ok(Claim::Attempt(claimed)) => self.send(id, &claimed, &request, &write).await,
            Ok(Claim::Reconcile(claimed)) => self.ask_back(id, &claimed, &request, &write).await,
            Ok(Claim::Finished(_)) => {
                self.graph.get_mut(id).unwrap().edit = None;
                Ok(())
            }
            // Its time comes.
            Err(Error::Deferred { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn send(
        &mut self,
        id: &DocumentId,
        claimed: &ClaimedOperation,
        request: &OperationRequest,
        write: &Write,
    ) -> Result<(), Failure> {
        let called = self.clock.monotonic();
        let permit = claimed.mark_send_started().await?;
        if self.clock.monotonic().saturating_sub(called) > permit.send_within {
            claimed.record_unknown().await?;
            return Ok(claimed.release().await?);
        }
        // In one breath with the request, which must not go to another account.
        if self.check_account().is_err() {
            return Ok(claimed.defer(DeferReason::AuthRequired, PAUSE, true).await?);
        }
        match self.provider.write(write) {
            Ok(version) => self.committed(id, claimed, request, write, version).await,
            Err(ProviderError::Gone) if write.op == OperationKind::Delete => {
                self.committed(id, claimed, request, write, None).await
            }
            Err(ProviderError::RateLimited { retry_after }) => {
                Ok(claimed.defer(DeferReason::RateLimited, retry_after, true).await?)
            }
            Err(ProviderError::TimedOut | ProviderError::Unavailable) => {
                claimed.record_unknown().await?;
                self.ask_back(id, claimed, request, write).await
            }
            Err(error) => self.refused(id, claimed, &error).await,
        }
    }

    /// Asks the provider whether it has what may have been sent.
    async fn ask_back(
        &mut self,
        id: &DocumentId,
        claimed: &ClaimedOperation,
        request: &OperationRequest,
        write: &Write,
    ) -> Result<(), Failure> {
        claimed.begin_reconcile_read().await?;
        let answer = self.provider.get(&home(), &write.source_id);
        if self.check_account().is_err() {
            return Ok(claimed.defer(DeferReason::AuthRequired, PAUSE, false).await?);
        }
        let standing = match answer {
            Ok(item) => Some(item),
            Err(ProviderError::Gone) => None,
            Err(_) => return Ok(claimed.defer(DeferReason::Offline, PAUSE, false).await?),
        };
        if standing.as_ref().map(|item| &item.content) == write.content.as_ref() {
            let version = standing.map(|item| item.version);
            return self.committed(id, claimed, request, write, version).await;
        }
        match claimed.record_not_written().await {
            // The next round sends it again.
            Ok(()) => Ok(claimed.release().await?),
            Err(Error::ReconcileTooEarly { not_before, .. }) => {
                let wait = self.until(not_before);
                Ok(claimed.defer(DeferReason::Dependency, wait, false).await?)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A little longer than until then.
    fn until(&self, time: Timestamp) -> Duration {
        let left = time.as_millis() - self.clock.wall().as_millis() + 1;
        Duration::from_millis(u64::try_from(left).unwrap_or(1))
    }

    async fn committed(
        &mut self,
        id: &DocumentId,
        claimed: &ClaimedOperation,
        request: &OperationRequest,
        write: &Write,
        version: Option<Version>,
    ) -> Result<(), Failure> {
        let digest = write.content.as_ref().map(|content| Digest::of(content.as_str().as_bytes()));
        let watch = WatchExpectation {
            reason: WatchReason::Write,
            expected_digest: digest,
            written_hlc: request.version.clone(),
            deadline: READ_BACK,
        };
        claimed.finalize_committed(&write.source_id, version.as_deref(), Some(&watch)).await?;
        let document = self.graph.get_mut(id).unwrap();
        (document.base, document.edit, document.is_watched) = (version, None, true);
        Ok(())
    }

    /// The provider has refused for certain. Where somebody has taken the entity away, what the user wrote is
    /// made anew; where somebody has changed it, theirs stands, and the next round shows it.
    async fn refused(
        &mut self,
        id: &DocumentId,
        claimed: &ClaimedOperation,
        error: &ProviderError,
    ) -> Result<(), Failure> {
        claimed.finalize_dead(&error.to_string()).await?;
        let name = format!("{}-again", claimed.operation().operation_id);
        let document = self.graph.get_mut(id).unwrap();
        document.edit = None;
        if *error == ProviderError::Gone {
            document.base = None;
            return Box::pin(self.edit(id, &name, OperationKind::Create)).await;
        }
        // Whatever is shown of it next is applied.
        document.is_watched = true;
        Ok(())
    }
}
