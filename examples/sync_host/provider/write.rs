//! The provider's other half: it takes a file that a host wants to write.
//!
//! Three habits of a good provider are played here, because a host can rely on no more than that:
//!
//! - **A write is conditional.** The request says what the host believes to stand there (`If-Match`
//!   with the digest, or `If-None-Match: *` for a new file), and the provider compares and renames
//!   under one lock. A request that leaves too late (its process was stopped after it had asked the
//!   store, and was woken when another run had long asked the provider and written) meets something
//!   else than it expects, and does nothing. No store can give that: it is the provider's to give.
//!   A content that returns to what it was is the same to a digest; a provider that never gives one
//!   version twice is safe there, too.
//! - **What stands there already is not written again.**
//! - **It knows what it did.** Each write that took effect has exactly one line in its log, also
//!   when it is killed between the rename and the line: the line is in a journal before.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use connector_store::{Digest, Rfc3339, SourceId};
use serde::{Deserialize, Serialize};

use super::{Entry, Folder};
use crate::crash::{Crash, CrashPoint};
use crate::host::write_new;
use crate::sync::now;

/// A file that is being written. There is one at a time, and one that was left by a kill goes with the
/// next attempt. The provider shows it to nobody.
pub const DRAFT_NAME: &str = ".sync-host-draft";

/// A request to write a file.
#[derive(Clone, Debug)]
pub struct Put {
    /// Who asks, for the log.
    pub owner: String,
    pub source_id: SourceId,
    pub text: String,
    /// The digest that must stand there; none where nothing may.
    pub if_match: Option<String>,
}

/// What stands under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Absent,
    /// A file, by its digest.
    File(String),
    /// Something that cannot be written over, and why.
    Other(String),
}

/// The provider's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutAnswer {
    Written,
    /// The very text stands there.
    AlreadySo,
    /// Something else stands there than the request expects.
    Refused(Standing),
}

/// The provider failed.
#[derive(Debug)]
pub enum PutFailure {
    /// Before the write took effect.
    NotWritten(io::Error),
    /// When it had taken effect, or nobody knows.
    Unknown(io::Error),
}

/// A write that is about to take effect: what must be in the log if it does.
#[derive(Debug, Serialize, Deserialize)]
struct Intent {
    source_id: String,
    /// How long the log was before.
    log_bytes: u64,
    line: String,
}

impl Folder {
    /// What stands under the name of an entity.
    pub fn standing(&self, source_id: &SourceId) -> Standing {
        let mut path = self.root.to_path_buf();
        let mut parts = source_id.as_str().split('/').peekable();
        while let Some(part) = parts.next() {
            path.push(part);
            let is_last = parts.peek().is_none();
            match fs::symlink_metadata(&path) {
                Err(error) if super::is_absence(&error) => return Standing::Absent,
                Err(error) => return Standing::Other(error.to_string()),
                Ok(meta) if is_last && meta.is_file() || !is_last && meta.is_dir() => {}
                Ok(_) => return Standing::Other(format!("{} is in the way", path.display())),
            }
        }
        match (Entry { source_id: source_id.clone(), path }).read() {
            Ok(Ok(content)) => Standing::File(content.digest),
            Ok(Err(reason)) => Standing::Other(reason),
            Err(error) if super::is_absence(&error) => Standing::Absent,
            Err(error) => Standing::Other(error.to_string()),
        }
    }

    /// Carries out a request, if what it expects is so.
    pub fn put(&self, put: &Put, crash: Crash) -> Result<PutAnswer, PutFailure> {
        let log = self.locked_log().map_err(PutFailure::NotWritten)?;
        if let Some(answer) = self.unless_as_expected(put) {
            return Ok(answer);
        }
        let target = self.root.join(put.source_id.as_str());
        let draft = draft_of(&target);
        write_draft(&draft, &target, put.text.as_bytes()).map_err(PutFailure::NotWritten)?;
        // Others who use the folder take no lock. What they did while the draft was written is seen
        // here, so that only the instant before the rename is left, which no folder can close.
        if let Some(answer) = self.unless_as_expected(put) {
            fs::remove_file(&draft).map_err(PutFailure::NotWritten)?;
            return Ok(answer);
        }
        let intent = self.intend(put, &log).map_err(PutFailure::NotWritten)?;
        fs::rename(&draft, &target).map_err(PutFailure::NotWritten)?;
        crash.after(CrashPoint::Rename);
        self.complete(&intent, log, &target).map_err(PutFailure::Unknown)?;
        Ok(PutAnswer::Written)
    }

    /// Puts a write on record that a kill had cut off. A folder whose log has no unfinished line is
    /// not touched, so that a tree that is only read may lie where nothing can be written.
    pub fn recover(&self) -> io::Result<()> {
        match self.beside("journal") {
            Ok(journal) if journal.exists() => self.locked_log().map(drop),
            _ => Ok(()),
        }
    }

    fn unless_as_expected(&self, put: &Put) -> Option<PutAnswer> {
        let standing = self.standing(&put.source_id);
        match (&standing, &put.if_match) {
            (Standing::File(found), _) if *found == digest_of(&put.text) => {
                Some(PutAnswer::AlreadySo)
            }
            (Standing::File(found), Some(expected)) if found == expected => None,
            (Standing::Absent, None) => None,
            _ => Some(PutAnswer::Refused(standing)),
        }
    }

    /// The log, which is the lock as well: who has it has seen to it that it is whole.
    fn locked_log(&self) -> io::Result<File> {
        let log = File::options().append(true).create(true).open(self.beside("log")?)?;
        log.lock()?;
        let journal = match fs::read(self.beside("journal")?) {
            Ok(journal) => journal,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(log),
            Err(error) => return Err(error),
        };
        let intent: Intent = serde_json::from_slice(&journal)?;
        let target = self.root.join(&intent.source_id);
        let draft = draft_of(&target);
        // The rename takes the draft away, so where it still is nothing was renamed. The journal goes
        // first: without its draft it would tell of a write.
        if fs::symlink_metadata(&draft).is_ok() {
            fs::remove_file(self.beside("journal")?)?;
            fs::remove_file(&draft)?;
            return Ok(log);
        }
        self.complete(&intent, log.try_clone()?, &target)?;
        Ok(log)
    }

    /// Notes what is about to happen.
    fn intend(&self, put: &Put, log: &File) -> io::Result<Intent> {
        let time = Rfc3339::from_timestamp(now());
        let (path, digest) = (put.source_id.as_str(), digest_of(&put.text));
        let intent = Intent {
            source_id: path.to_owned(),
            log_bytes: log.metadata()?.len(),
            // No name holds a control character, so a tab is no part of one.
            line: format!("{}\t{}\t{path}\t{digest}\n", time.as_str(), put.owner),
        };
        let text = serde_json::to_vec(&intent)?;
        write_new(&self.beside("journal")?, &text).map_err(io::Error::other)?;
        Ok(intent)
    }

    /// The file is renamed: makes that safe and writes the line. May be done again and again.
    fn complete(&self, intent: &Intent, mut log: File, target: &Path) -> io::Result<()> {
        if let Some(directory) = target.parent()
            && directory.is_dir()
        {
            File::open(directory)?.sync_all()?;
        }
        // A line that was begun already is taken back first.
        if log.metadata()?.len() > intent.log_bytes {
            log.set_len(intent.log_bytes)?;
        }
        log.write_all(intent.line.as_bytes())?;
        log.sync_all()?;
        fs::remove_file(self.beside("journal")?)
    }

    /// The provider's own files lie beside the tree: `<source>.writes.log` and its journal.
    fn beside(&self, ending: &str) -> io::Result<PathBuf> {
        let name = self.root.file_name();
        let mut name = name.ok_or_else(|| io::Error::other("the source has no name"))?.to_owned();
        name.push(".writes.");
        name.push(ending);
        Ok(self.root.with_file_name(name))
    }
}

/// The digest by which a text is known here.
pub fn digest_of(text: &str) -> String {
    Digest::of(text.as_bytes()).to_hex()
}

fn draft_of(target: &Path) -> PathBuf {
    target.with_file_name(DRAFT_NAME)
}

/// Writes the draft whole, in the directory of the file: only within one is a rename atomic.
fn write_draft(draft: &Path, target: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(directory) = draft.parent() {
        fs::create_dir_all(directory)?;
    }
    // One that is left may belong to a file that nobody may write.
    match fs::remove_file(draft) {
        Err(error) if !super::is_absence(&error) => return Err(error),
        _ => {}
    }
    let mut file = File::create_new(draft)?;
    if let Ok(meta) = fs::symlink_metadata(target) {
        file.set_permissions(meta.permissions())?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}
