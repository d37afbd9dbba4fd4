//! Files of a backend: where they really are, what their errors mean, and new files that hold
//! everything or are not there.
//!
//! It knows neither a store nor what is in a file.

use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{Error, Result, StorageFault};

/// The error for a failed file operation; `context` says what was being done.
pub(super) fn file_error(error: std::io::Error, context: &str) -> Error {
    let fault = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StorageFault::Full,
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => StorageFault::ReadOnly,
        _ => StorageFault::Io,
    };
    let context = match fault {
        StorageFault::ReadOnly => format!(
            "{context}: the file and its directory must be writable, a store's -wal, -shm and .lock files are kept beside it"
        ),
        _ => context.to_owned(),
    };
    Error::Storage { fault, context, source: Some(Arc::new(error)) }
}

/// Where the file really is, so that two names of one file are one store.
pub(super) fn resolve(path: &Path) -> Result<PathBuf> {
    if let Ok(found) = path.canonicalize() {
        return Ok(found);
    }
    let name = path
        .file_name()
        .ok_or_else(|| Error::invalid("path", "expected the name of a file, not of a directory"))?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let found = parent.canonicalize();
    let context = || format!("finding the directory {}", parent.display());
    Ok(found.map_err(|error| file_error(error, &context()))?.join(name))
}

/// The path with `suffix` behind it.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Work on files, on a thread where it is in nobody's way.
pub(super) async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let stopped = |_| Error::storage(StorageFault::Unavailable, "working on the backup's file");
    tokio::task::spawn_blocking(work).await.map_err(stopped)?
}

/// A copy that is being written. Its path is taken by an empty file from the beginning, so that two
/// copies never meet, and holds nothing but the whole copy at the end. Dropped before, it leaves no
/// file.
#[derive(Debug)]
pub(super) struct Copy {
    path: PathBuf,
    partial: PathBuf,
    is_whole: bool,
}

impl Copy {
    /// Takes the path. The copy holds the store's secrets, so `permissions` say who may read it.
    pub(super) fn begin(path: &Path, permissions: Option<Permissions>) -> Result<Self> {
        let failed = |error| file_error(error, "making the backup's file");
        let path = resolve(path)?;
        File::create_new(&path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => Error::invalid("path", "expected one where nothing is"),
            _ => failed(error),
        })?;
        let copy = Self { partial: beside(&path, ".partial"), path, is_whole: false };
        // One that was killed may have left it; nobody else writes to it, since the path is ours.
        match fs::remove_file(&copy.partial) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let partial = File::create_new(&copy.partial).map_err(failed)?;
        if let Some(permissions) = permissions {
            partial.set_permissions(permissions).map_err(failed)?;
        }
        Ok(copy)
    }

    /// The empty file that the copy is written to.
    pub(super) fn partial(&self) -> &Path {
        &self.partial
    }

    /// Moves the copy, which is whole, to the medium and to its path.
    pub(super) fn keep(mut self) -> Result<()> {
        let failed = |error| file_error(error, "moving the backup to the medium");
        let partial = File::options().write(true).open(&self.partial).map_err(failed)?;
        partial.sync_all().map_err(failed)?;
        drop(partial);
        fs::rename(&self.partial, &self.path).map_err(failed)?;
        // Elsewhere a directory can't be opened, and its entries are on the medium with the file.
        #[cfg(unix)]
        if let Some(directory) = self.path.parent() {
            File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)?;
        }
        self.is_whole = true;
        Ok(())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if !self.is_whole {
            // What can't be removed stays as it is: an empty file, or a part beside it.
            let _ = fs::remove_file(&self.partial);
            let _ = fs::remove_file(&self.path);
        }
    }
}
