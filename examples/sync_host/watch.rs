//! `--watch`: a new round whenever the source looks different, until Ctrl-C.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::Failure;
use crate::owners::Owner;
use crate::provider::Folder;
use crate::report::with_causes;
use crate::summary::Counts;
use crate::sync::{self, Mirror};

/// How often the source is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A round is made so often even if nothing seems to have changed: a deletion that could not be
/// confirmed may be due again, and no look sees everything.
const ROUND_EVERY: Duration = Duration::from_secs(300);

/// Rounds until the user stops them. Each that changed something is told, and one that failed is
/// tried again. What is given back adds up what all rounds did; what they found is as in the last.
pub async fn rounds(mirror: &Arc<Mirror>, owners: &[Owner]) -> Result<Counts, Failure> {
    let mut total = Counts::default();
    let mut last = Ok(());
    let mut seen = None;
    let mut due = Instant::now();
    while !mirror.stop.requested() {
        // Before the round: what is written while it goes on looks different the next time.
        let folder = mirror.folder.clone();
        let look = tokio::task::spawn_blocking(move || look(&folder)).await?.ok();
        if look.is_none() || look != seen || Instant::now() >= due {
            due = Instant::now() + ROUND_EVERY;
            match sync::round(mirror, owners).await {
                Ok(counts) => {
                    if counts.changed() {
                        mirror.report.note(&told(&counts));
                    }
                    total = added(total, counts);
                    seen = look;
                    last = Ok(());
                }
                Err(failure) => {
                    mirror.report.note(&format!("failed: {}", with_causes(failure.as_ref())));
                    seen = None;
                    last = Err(failure);
                }
            }
        }
        mirror.stop.sleep(LOOK_EVERY).await;
    }
    last.map(|()| total)
}

fn told(counts: &Counts) -> String {
    let Counts { created, updated, swept, refused, .. } = counts;
    let written = counts.written + counts.reconciled;
    format!(
        "{created} created, {updated} updated, {swept} swept, {refused} refused, {written} written"
    )
}

fn added(total: Counts, last: Counts) -> Counts {
    Counts {
        created: total.created + last.created,
        updated: total.updated + last.updated,
        trimmed: total.trimmed + last.trimmed,
        swept: total.swept + last.swept,
        written: total.written + last.written,
        reconciled: total.reconciled + last.reconciled,
        verified: total.verified + last.verified,
        mismatched: total.mismatched + last.mismatched,
        signed: total.signed + last.signed,
        ..last
    }
}

/// A number that differs when a name, a size or a time below the source does. A round writes to
/// the store even where nothing changed, so one every other second would only fill the journal.
fn look(folder: &Folder) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    for partition in folder.partitions()?.found {
        partition.hash(&mut hasher);
        let listing = folder.list(&partition);
        listing.hidden.hash(&mut hasher);
        for entry in &listing.entries {
            entry.source_id.hash(&mut hasher);
            if let Ok(meta) = fs::metadata(&entry.path) {
                meta.len().hash(&mut hasher);
                meta.modified().ok().hash(&mut hasher);
                #[cfg(unix)]
                {
                    use std::os::unix::fs::MetadataExt;
                    (meta.ino(), meta.ctime(), meta.ctime_nsec()).hash(&mut hasher);
                }
            }
        }
    }
    Ok(hasher.finish())
}
