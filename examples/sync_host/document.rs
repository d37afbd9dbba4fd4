//! The model that files are mirrored into, and how an entity becomes a document of it.

use connector_store::{ConnectorName, Digest, DocumentId, Hlc, OwnerDid, PartitionId, SourceId};
use serde_json::json;

use crate::Failure;
use crate::provider::Content;

/// The model's name.
pub const MODEL: &str = "note";
/// The longest body that the model takes. What is beyond it is trimmed, and the store remembers
/// that, so that the host never writes a cut body back over the whole one.
pub const MAX_BODY_BYTES: usize = 16 << 10;

/// A document as the graph holds it.
#[derive(Clone, Debug)]
pub struct Document {
    pub id: DocumentId,
    pub owner: OwnerDid,
    pub partition: PartitionId,
    pub source_id: SourceId,
    pub title: String,
    /// None for what is not text.
    pub body: Option<String>,
    /// SHA-256 of the whole file.
    pub digest: String,
    /// What was trimmed, as the store is to record it.
    pub trim: Option<String>,
    /// The store was not told yet what `trim` says.
    pub trim_due: bool,
    /// The stamp of what the document shows: of the fetch, or of the local edit.
    pub version: Hlc,
}

/// The document of a source entity: always the same, so that a run that was killed and an
/// undisturbed one name it alike.
pub fn id_of(
    owner: &OwnerDid,
    connector: &ConnectorName,
    source_id: &SourceId,
) -> Result<DocumentId, Failure> {
    let separator = [0x1f_u8];
    let digest = Digest::of_parts(&[
        owner.as_str().as_bytes(),
        &separator,
        connector.as_str().as_bytes(),
        &separator,
        source_id.as_str().as_bytes(),
    ]);
    Ok(DocumentId::new(digest.to_hex())?)
}

/// The name of the file, which is what follows the last slash.
pub fn title_of(source_id: &SourceId) -> String {
    let text = source_id.as_str();
    text.rsplit_once('/').map_or(text, |(_, name)| name).to_owned()
}

/// The body that the model takes of a file, and the record of what was cut from it.
pub fn fit_body(content: Content) -> (Option<String>, Option<String>) {
    let whole = usize::try_from(content.bytes).is_ok_and(|bytes| bytes <= content.head.len());
    let Some(body) = text_of(content.head, whole) else { return (None, None) };
    let trim = (!whole)
        .then(|| json!({ "body": { "bytes": content.bytes, "kept": body.len() } }).to_string());
    (Some(body), trim)
}

/// The text of a file's first bytes, if it is text. A character that the cut went through is left
/// out; that is no sign of anything else than text.
fn text_of(mut head: Vec<u8>, whole: bool) -> Option<String> {
    if head.contains(&0) {
        return None;
    }
    if let Err(error) = std::str::from_utf8(&head) {
        if whole || error.error_len().is_some() {
            return None;
        }
        head.truncate(error.valid_up_to());
    }
    String::from_utf8(head).ok()
}
