//! Local edits, as the user gives them on the command line, and how they become safe.

use std::sync::Arc;

use connector_store::{PartitionId, SourceId};

use crate::crash::CrashPoint;
use crate::document::{Document, MAX_BODY_BYTES, fit_body, id_of, title_of};
use crate::graph::{Edit, EditState, operation_id};
use crate::owners::Owner;
use crate::provider::{Content, Standing, digest_of};
use crate::sync::Mirror;
use crate::{Failure, sweep};

/// What the user wants a document to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    owner: String,
    partition: PartitionId,
    source_id: SourceId,
    text: String,
}

impl Request {
    /// Reads the value of `--edit`: `owner-1/PATH=TEXT`. The first `=` ends the path.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected = || "expected OWNER/PARTITION/PATH=TEXT".to_owned();
        let (name, text) = text.split_once('=').ok_or_else(expected)?;
        let (owner, path) = name.split_once('/').ok_or_else(expected)?;
        let (partition, below) = path.split_once('/').ok_or_else(expected)?;
        if owner.is_empty() || below.is_empty() {
            return Err(expected());
        }
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(format!("{path} is no plain path below the source"));
        }
        Ok(Self {
            owner: owner.to_owned(),
            partition: PartitionId::new(partition).map_err(|error| error.to_string())?,
            source_id: SourceId::new(path).map_err(|error| error.to_string())?,
            text: text.to_owned(),
        })
    }
}

/// Keeps the edits in the graph, where they survive whatever follows. One that is there already,
/// from a run that was killed, is the same edit and not another.
pub async fn accept(
    mirror: &Arc<Mirror>,
    owners: &[Owner],
    requests: &[Request],
) -> Result<(), Failure> {
    if requests.is_empty() {
        return Ok(());
    }
    // All or none: a mistake is told before anything is kept.
    let mut checked = Vec::with_capacity(requests.len());
    for request in requests {
        let owner = owners.iter().find(|owner| owner.name == request.owner);
        let owner = owner.ok_or_else(|| {
            format!("--edit: there is no {}, only {} of --owners", request.owner, owners.len())
        })?;
        if !mirror.folder.allows(&request.source_id) {
            return Err(format!("--edit: {} is not the user's", request.source_id).into());
        }
        checked.push((owner, request));
    }
    // What an earlier run began to delete is gone before anything new is said of it.
    sweep::finish_begun(mirror).await?;
    for (owner, request) in checked {
        accept_one(mirror, owner, request).await?;
    }
    mirror.crash.after(CrashPoint::Edit);
    Ok(())
}

async fn accept_one(mirror: &Arc<Mirror>, owner: &Owner, request: &Request) -> Result<(), Failure> {
    let id = id_of(&owner.did, &mirror.connector, &request.source_id)?;
    let digest = digest_of(&request.text);
    let known = mirror.graph.known(std::slice::from_ref(&id)).await?.remove(&id);
    let base = match mirror.graph.last_unwritten(&id).await? {
        Some(last) => match last.state {
            // The user was told of what is there, and decides: the edit stands upon that.
            EditState::Conflict(seen) => seen,
            _ if last.digest == digest => return Ok(()),
            _ => Some(last.digest),
        },
        None => match &known {
            Some(known) if known.digest == digest => return Ok(()),
            // What the user saw is what was mirrored last, and not what may be there by now.
            Some(known) => Some(known.digest.clone()),
            None => standing(mirror, &request.source_id).await?,
        },
    };
    let version = mirror.stamp()?;
    let (body, trim) = fit_body(content_of(&request.text, digest.clone()));
    let told = known.as_ref().and_then(|known| known.trim.as_ref());
    let document = Document {
        trim_due: known.as_ref().is_some_and(|known| known.trim_due) || told != trim.as_ref(),
        id: id.clone(),
        owner: owner.did.clone(),
        partition: request.partition.clone(),
        title: title_of(&request.source_id),
        source_id: request.source_id.clone(),
        body,
        digest: digest.clone(),
        trim,
        version: version.clone(),
    };
    let edit = Edit {
        number: 0,
        operation_id: operation_id(&id, &digest, &version)?,
        document: id,
        source_id: request.source_id.clone(),
        text: request.text.clone(),
        digest,
        base,
        version,
        state: EditState::Pending,
    };
    mirror.graph.keep_edit(&document, &edit, mirror.folder.provenance()).await?;
    mirror.report.step(|| format!("edit of {} by {} kept", edit.source_id, owner.name));
    Ok(())
}

/// What stands at the source under a name that the graph does not know.
async fn standing(mirror: &Arc<Mirror>, source_id: &SourceId) -> Result<Option<String>, Failure> {
    let (folder, name) = (mirror.folder.clone(), source_id.clone());
    match tokio::task::spawn_blocking(move || folder.standing(&name)).await? {
        Standing::Absent => Ok(None),
        Standing::File(digest) => Ok(Some(digest)),
        Standing::Other(reason) => {
            Err(format!("--edit: {source_id} cannot be edited: {reason}").into())
        }
    }
}

fn content_of(text: &str, digest: String) -> Content {
    let head = text.as_bytes();
    let bytes = head.len() as u64;
    Content { bytes, digest, head: head[..head.len().min(MAX_BODY_BYTES)].to_vec() }
}
