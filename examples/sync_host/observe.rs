//! What the host says of its documents, signed: for each that it created, updated or edited, a
//! record that every other host of the owner can verify and weigh against its own.
//!
//! The row in the graph comes first, with `sign_due` and the stamp that is to be signed. So a run
//! that is killed anywhere before the mark is taken away is made whole by the next, which signs
//! the very same record: putting it twice is putting it once.
//!
//! A decision may come from elsewhere and be newer than what was fetched. The fetch is not applied
//! then, and a repair is owed. The record says what was seen and not the whole file, so this host
//! pays with the first fetch that is newer than the decision.

use connector_store::base::ValueDigest;
use connector_store::records::SignedRecord;
use connector_store::{Digest, DocumentId, Hlc, ObservationRepair};
use serde_json::json;

use crate::Failure;
use crate::graph::Unsigned;
use crate::owners::Owner;
use crate::summary::Counts;
use crate::sync::OwnerRun;
use crate::tasks::at_once;

/// So many records are signed and put together: enough to fill the store's batches.
const RECORDS_AT_ONCE: u32 = 256;

/// Signs all that is due of the owner, also what an earlier run has left.
pub async fn sign_due(run: &OwnerRun, counts: &mut Counts) -> Result<(), Failure> {
    loop {
        let due = run.mirror.graph.unsigned(&run.owner.did, RECORDS_AT_ONCE).await?;
        if due.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = due.iter().map(|due| due.id.clone()).collect();
        let puts = due.into_iter().map(|due| {
            let (owner, document) = (run.owner.clone(), run.session.document(&due.id));
            async move { document.put_observation_copy(&sign(&owner, &due)?).await }
        });
        for result in at_once(ids.len(), puts).await? {
            result?;
            counts.signed += 1;
        }
        run.mirror.report.step(|| format!("{} records put", ids.len()));
        run.mirror.graph.signed(&ids).await?;
    }
}

/// The owner's word that the document is so, as of its version.
fn sign(owner: &Owner, document: &Unsigned) -> connector_store::Result<SignedRecord> {
    let payload = json!({ "digest": document.digest, "title": document.title }).to_string();
    let (stamp, payload) = (&document.version, Some(payload.as_bytes()));
    owner.signer.sign(&owner.did, &document.id, stamp, stamp, payload)
}

/// Something newer was decided than what was fetched, while the document shows what was there at
/// `shown`.
pub async fn owe(run: &OwnerRun, id: &DocumentId, shown: &Hlc) -> Result<(), Failure> {
    let document = run.session.document(id);
    let decision = document.observation_decision(&run.owner.did).await?;
    // Nobody else writes to this store, so what was just told to be decided is.
    let Some(decision) = decision else { return Ok(()) };
    let digest = decision.payload.as_deref().map(|payload| Digest::of(payload).to_hex());
    let repair = ObservationRepair {
        owner: run.owner.did.clone(),
        fetch_hlc: shown.clone(),
        decision_hlc: decision.decision_hlc,
        present: decision.payload.is_some(),
        value_digest: digest.map(ValueDigest::new).transpose()?,
    };
    document.put_repair(&repair).await?;
    run.mirror.report.step(|| format!("a repair of {id} owed"));
    Ok(())
}
