//! One store per file: an operating system's lock on a file beside it, gone with its process.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use crate::base::{Error, Result};
use crate::journal::file::{beside, file_error};

/// The lock; given back when it is dropped.
#[derive(Debug)]
pub(super) struct StoreLock {
    _file: File,
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
        .map_err(|error| {
            file_error(error, "opening the .lock file beside the store's -wal and -shm")
        })?;
    match file.try_lock() {
        Ok(()) => Ok(StoreLock { _file: file }),
        Err(TryLockError::WouldBlock) => Err(Error::StoreInUse { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(file_error(error, "locking the store's lock file")),
    }
}
