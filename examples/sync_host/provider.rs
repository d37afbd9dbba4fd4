//! The provider: a folder tree that stands for somebody's account.
//!
//! It only reads. Whatever it meets there is an answer and never a failure: trees are changed while
//! they are walked, and hold files that nobody may read.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use connector_store::{Digest, PartitionId, Provenance, SourceId, SweepOutcome};
use sha2::{Digest as _, Sha256};

use crate::Failure;
use crate::document::MAX_BODY_BYTES;

/// A file above this is not read: one sparse file could keep a host busy for days.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// The account.
#[derive(Clone, Debug)]
pub struct Folder {
    root: Arc<Path>,
    /// What belongs to the host itself, in case it lives inside the source.
    own: Arc<[PathBuf]>,
    provenance: Provenance,
}

/// Something that is there but cannot be mirrored.
#[derive(Clone, Debug)]
pub struct Skip {
    pub path: PathBuf,
    pub reason: String,
}

/// A file, or what else has a name and is no directory.
#[derive(Clone, Debug)]
pub struct Entry {
    pub source_id: SourceId,
    pub path: PathBuf,
}

/// The partitions of the account.
#[derive(Debug, Default)]
pub struct Partitions {
    pub found: Vec<PartitionId>,
    pub skipped: Vec<Skip>,
}

/// One partition's entities, by the bytes of their ids.
#[derive(Debug, Default)]
pub struct Listing {
    pub entries: Vec<Entry>,
    pub skipped: Vec<Skip>,
    /// A directory could not be read: there may be more entities than these.
    pub hidden: bool,
}

/// A file's content, as far as the model has use for it.
#[derive(Debug)]
pub struct Content {
    pub bytes: u64,
    pub digest: String,
    /// The first [`MAX_BODY_BYTES`].
    pub head: Vec<u8>,
}

/// What became of reading an entity.
#[derive(Debug)]
pub enum Fetched {
    Content(Content),
    /// It is there, but cannot be mirrored.
    Skipped(Skip),
    /// It is no longer there.
    Gone,
}

impl Folder {
    /// The account in the folder `root`, without the paths that are the host's `own`.
    pub fn new(root: PathBuf, own: Vec<PathBuf>) -> Result<Self, Failure> {
        let provenance = lineage(&root)?;
        if !root.is_dir() {
            return Err(format!("the source {} is no directory", root.display()).into());
        }
        Ok(Self { root: root.into(), own: own.into(), provenance })
    }

    /// Under what lineage this folder's enumerations are comparable.
    pub const fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// What an enumeration depends on besides: the rule by which files are chosen.
    pub fn fingerprint(&self) -> String {
        "every file, links to directories not followed".to_owned()
    }

    /// The directories directly below the root.
    ///
    /// That the root cannot be read is a failure, and the only one here: it says nothing about
    /// what is in it.
    pub fn partitions(&self) -> io::Result<Partitions> {
        let mut partitions = Partitions::default();
        for entry in fs::read_dir(&self.root)? {
            let path = entry?.path();
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            if self.is_own(&path) || !(meta.is_dir() || meta.is_symlink() && path.is_dir()) {
                continue;
            }
            match partition_id(&path) {
                Ok(_) if meta.is_symlink() => {
                    partitions
                        .skipped
                        .push(Skip::new(path, "links to directories are not followed"));
                }
                Ok(id) => partitions.found.push(id),
                Err(reason) => partitions.skipped.push(Skip::new(path, reason)),
            }
        }
        partitions.found.sort();
        Ok(partitions)
    }

    /// A known partition that [`Self::partitions`] did not find has really vanished, and is not
    /// just out of reach.
    pub fn has_vanished(&self, partition: &PartitionId) -> bool {
        match fs::symlink_metadata(self.root.join(partition.as_str())) {
            Ok(meta) => !meta.is_dir() && !meta.is_symlink(),
            Err(error) => is_absence(&error),
        }
    }

    /// Everything below a partition's directory. A directory that vanishes on the way is empty.
    pub fn list(&self, partition: &PartitionId) -> Listing {
        let mut listing = Listing::default();
        let mut directories = vec![self.root.join(partition.as_str())];
        while let Some(directory) = directories.pop() {
            if let Err(error) = self.list_directory(&directory, &mut directories, &mut listing)
                && !is_absence(&error)
            {
                listing.skipped.push(Skip::new(directory, error));
                listing.hidden = true;
            }
        }
        listing.entries.sort_by(|a, b| a.source_id.cmp(&b.source_id));
        listing
    }

    fn list_directory(
        &self,
        directory: &Path,
        directories: &mut Vec<PathBuf>,
        listing: &mut Listing,
    ) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let path = entry.path();
            if self.is_own(&path) {
                continue;
            }
            // Of the entry itself: a link to a directory is no directory here.
            let kind = match entry.file_type() {
                Ok(kind) => kind,
                Err(error) if is_absence(&error) => continue,
                Err(error) => return Err(error),
            };
            match self.source_id(&path) {
                // Below a directory that has no valid name no entity can have one, so nothing that
                // could be known is hidden.
                Err(reason) => listing.skipped.push(Skip::new(path, reason)),
                Ok(_) if kind.is_dir() => directories.push(path),
                Ok(source_id) => listing.entries.push(Entry { source_id, path }),
            }
        }
        Ok(())
    }

    /// The path below the root: unique in the whole account, as a source id must be.
    fn source_id(&self, path: &Path) -> Result<SourceId, String> {
        let relative = path.strip_prefix(&self.root).map_err(|error| error.to_string())?;
        let text = relative.to_str().ok_or("its name is not UTF-8")?;
        SourceId::new(text).map_err(|error| error.to_string())
    }

    fn is_own(&self, path: &Path) -> bool {
        self.own.iter().any(|own| own == path)
    }

    /// Asks once more whether one entity is gone, before it is deleted for good.
    ///
    /// Only an answer counts as evidence: where the whole account is out of reach, or the path
    /// cannot be looked at, nothing is known.
    pub fn confirm(&self, source_id: &SourceId) -> SweepOutcome {
        if fs::read_dir(&self.root).is_err() {
            return SweepOutcome::Unknown;
        }
        match fs::symlink_metadata(self.root.join(source_id.as_str())) {
            // A directory of that name is no entity: the file is gone.
            Ok(meta) if meta.is_dir() => SweepOutcome::Absent,
            Ok(_) => SweepOutcome::Present,
            Err(error) if is_absence(&error) => SweepOutcome::Absent,
            Err(_) => SweepOutcome::Unknown,
        }
    }
}

impl Entry {
    /// Reads the file, if it is one that can be mirrored.
    pub fn fetch(&self) -> Fetched {
        match self.read() {
            Ok(Ok(content)) => Fetched::Content(content),
            Ok(Err(reason)) => Fetched::Skipped(Skip::new(self.path.clone(), reason)),
            Err(error) if is_absence(&error) && fs::symlink_metadata(&self.path).is_err() => {
                Fetched::Gone
            }
            Err(error) if is_absence(&error) => {
                Fetched::Skipped(Skip::new(self.path.clone(), "a link that leads nowhere"))
            }
            Err(error) => Fetched::Skipped(Skip::new(self.path.clone(), error)),
        }
    }

    fn read(&self) -> io::Result<Result<Content, String>> {
        // Looked at before it is opened: to open a pipe would wait for its other end.
        let meta = fs::metadata(&self.path)?;
        if meta.is_dir() {
            return Ok(Err("links to directories are not followed".to_owned()));
        }
        if !meta.is_file() {
            return Ok(Err("it is no file".to_owned()));
        }
        if meta.len() > MAX_FILE_BYTES {
            return Ok(Err(format!("{} bytes are more than {MAX_FILE_BYTES}", meta.len())));
        }
        let mut file = File::open(&self.path)?;
        let mut content = Content { bytes: 0, digest: String::new(), head: Vec::new() };
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let room = MAX_BODY_BYTES - content.head.len();
            content.head.extend_from_slice(&buffer[..read.min(room)]);
            hasher.update(&buffer[..read]);
            content.bytes += read as u64;
            if content.bytes > MAX_FILE_BYTES {
                return Ok(Err("it grew while it was read".to_owned()));
            }
        }
        content.digest = Digest::from_bytes(hasher.finalize().into()).to_hex();
        Ok(Ok(content))
    }
}

impl Skip {
    fn new(path: PathBuf, reason: impl ToString) -> Self {
        Self { path, reason: reason.to_string() }
    }
}

fn partition_id(path: &Path) -> Result<PartitionId, String> {
    let name = path.file_name().and_then(|name| name.to_str()).ok_or("its name is not UTF-8")?;
    PartitionId::new(name).map_err(|error| error.to_string())
}

/// The path says which folder it is, and a digest of it where the path is too long or not text.
fn lineage(root: &Path) -> Result<Provenance, Failure> {
    let readable = root.to_str().and_then(|path| Provenance::new(format!("folder:{path}")).ok());
    match readable {
        Some(provenance) => Ok(provenance),
        None => {
            let digest = Digest::of(root.as_os_str().as_encoded_bytes()).to_hex();
            Ok(Provenance::new(format!("folder-digest:{digest}"))?)
        }
    }
}

/// The provider's clear word that there is nothing of this name.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
