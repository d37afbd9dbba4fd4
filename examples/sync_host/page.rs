//! One page of an enumeration: files are read, compared with the graph, and what changed is written.
//!
//! Rows first, then the store is told of the trims. A row says by `trim_due` that the store is still
//! to be told, so it does not matter where in between a run is killed, nor what becomes of the file
//! until the next one.

use connector_store::{DocumentId, Json, PartitionId, SourceId};

use crate::Failure;
use crate::document::{Document, fit_body, id_of, title_of};
use crate::graph::Known;
use crate::provider::{Content, Entry, Fetched};
use crate::summary::Counts;
use crate::sync::OwnerRun;
use crate::tasks::at_once;

/// So many commands of one owner are under way at a time: enough to fill the store's batches.
const COMMANDS_AT_ONCE: usize = 256;

/// A trim that the store is to be told of; none where the document no longer has one.
type DueTrim = (DocumentId, Option<String>);

/// Mirrors the entities and gives the ids of those that are there, mirrored or not.
pub async fn mirror(
    run: &OwnerRun,
    partition: &PartitionId,
    entries: &[Entry],
    counts: &mut Counts,
) -> Result<Vec<SourceId>, Failure> {
    let entries = entries.to_vec();
    let fetched = tokio::task::spawn_blocking(move || {
        entries.into_iter().map(|entry| (entry.fetch(), entry.source_id)).collect::<Vec<_>>()
    })
    .await?;

    let mut present = Vec::with_capacity(fetched.len());
    let mut contents = Vec::with_capacity(fetched.len());
    for (fetched, source_id) in fetched {
        match fetched {
            Fetched::Content(content) => {
                let id = id_of(&run.owner.did, &run.mirror.connector, &source_id)?;
                contents.push((id, source_id.clone(), content));
            }
            Fetched::Skipped(skip) => run.tell_skipped(&[skip], counts),
            Fetched::Gone => continue,
        }
        present.push(source_id);
    }

    let (changed, trims) = compare(run, partition, contents, counts).await?;
    if !changed.is_empty() {
        run.mirror.graph.write(&changed).await?;
        run.mirror.report.step(|| format!("{} documents of {partition} written", changed.len()));
    }
    tell_trims(run, trims).await?;
    Ok(present)
}

/// What is to be written, and what the store is to be told: also what a run that was killed left
/// untold.
async fn compare(
    run: &OwnerRun,
    partition: &PartitionId,
    contents: Vec<(DocumentId, SourceId, Content)>,
    counts: &mut Counts,
) -> Result<(Vec<Document>, Vec<DueTrim>), Failure> {
    let ids: Vec<_> = contents.iter().map(|(id, ..)| id.clone()).collect();
    let mut known = run.mirror.graph.known(&ids).await?;
    let (mut changed, mut trims) = (Vec::new(), Vec::new());
    for (id, source_id, content) in contents {
        counts.entities += 1;
        let known = known.remove(&id);
        match &known {
            Some(known) if known.digest == content.digest => {
                counts.unchanged += 1;
                if known.trim_due {
                    trims.push((id, known.trim.clone()));
                }
                continue;
            }
            Some(_) => counts.updated += 1,
            None => counts.created += 1,
        }
        let document = document_of(run, partition, id, source_id, content, known.as_ref());
        counts.trimmed += u64::from(document.trim.is_some());
        if document.trim_due {
            trims.push((document.id.clone(), document.trim.clone()));
        }
        changed.push(document);
    }
    Ok((changed, trims))
}

fn document_of(
    run: &OwnerRun,
    partition: &PartitionId,
    id: DocumentId,
    source_id: SourceId,
    content: Content,
    known: Option<&Known>,
) -> Document {
    let digest = content.digest.clone();
    let (body, trim) = fit_body(content);
    let told = known.and_then(|known| known.trim.as_ref());
    let owed = known.is_some_and(|known| known.trim_due);
    Document {
        trim_due: owed || told != trim.as_ref(),
        title: title_of(&source_id),
        owner: run.owner.did.clone(),
        partition: partition.clone(),
        id,
        source_id,
        body,
        digest,
        trim,
    }
}

/// Tells the store what was trimmed, or no longer is; then the graph that the store knows.
async fn tell_trims(run: &OwnerRun, trims: Vec<DueTrim>) -> Result<(), Failure> {
    if trims.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = trims.iter().map(|(id, _)| id.clone()).collect();
    let commands = trims.into_iter().map(|(id, trim)| {
        let document = run.session.document(&id);
        let (owner, connector) = (run.owner.did.clone(), run.mirror.connector.clone());
        async move {
            match trim {
                Some(fields) => {
                    let fields = Json::parse("trimmed_fields", &fields)?;
                    document.set_entity_trim(&owner, &connector, fields).await
                }
                None => document.clear_entity_trim().await,
            }
        }
    });
    for result in at_once(COMMANDS_AT_ONCE, commands).await? {
        result?;
    }
    run.mirror.report.step(|| format!("{} trims recorded", ids.len()));
    run.mirror.graph.trims_told(&ids).await
}
