//! One store per file: an operating system's lock on a file beside it, gone with its process.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use super::fault::file_error;
use crate::base::{Error, Result};

/// The lock; given back when it is dropped.
#[derive(Debug)]
pub(super) struct StoreLock {
    _file: File,
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
    let parent = parent
        .canonicalize()
        .map_err(|error| file_error(error, "finding the directory of the store's file"))?;
    Ok(parent.join(name))
}

/// The path with `suffix` behind it.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Takes the lock of the store at `path`.
pub(super) fn take(path: &Path) -> Result<StoreLock> {
    // The lock file stays when the store is gone: a file that was removed and made anew could be
    // locked twice.
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(beside(path, ".lock"))
        .map_err(|error| file_error(error, "opening the store's lock file"))?;
    match file.try_lock() {
        Ok(()) => Ok(StoreLock { _file: file }),
        Err(TryLockError::WouldBlock) => Err(Error::StoreInUse { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(file_error(error, "locking the store's lock file")),
    }
}
