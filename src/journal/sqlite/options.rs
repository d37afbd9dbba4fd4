//! How a SQLite file is opened: the options a host may set. It knows nothing of connections.

use std::path::PathBuf;
use std::time::Duration;

use crate::base::Timestamp;

/// Reading connections, unless set otherwise. A read is short, and the writer needs a core too.
const DEFAULT_READERS: usize = 2;
/// How long a statement waits for a lock that another program's connection holds.
const DEFAULT_BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// When a commit is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// Once it is on the medium: what was acknowledged survives a loss of power.
    #[default]
    Full,
    /// Once the system has it: it survives a killed process. A loss of power may lose the last
    /// acknowledged commits; it never corrupts the file, and events and rows still agree.
    Normal,
}

/// How to open a store in a SQLite file.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    pub(super) path: PathBuf,
    pub(super) now: Timestamp,
    pub(super) synchronous: Synchronous,
    pub(super) readers: usize,
    pub(super) busy_timeout: Duration,
    pub(super) must_exist: bool,
}

impl SqliteOptions {
    /// The store in the file at `path`, created if it is not there. `now` is the wall clock: the
    /// generation of a store that is created starts from it.
    pub fn new(path: impl Into<PathBuf>, now: Timestamp) -> Self {
        Self {
            path: path.into(),
            now,
            synchronous: Synchronous::default(),
            readers: DEFAULT_READERS,
            busy_timeout: DEFAULT_BUSY_TIMEOUT,
            must_exist: false,
        }
    }

    /// When a commit is answered; [`Synchronous::Full`] unless set.
    #[must_use]
    pub const fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Opens a store that is there already, and makes none.
    #[must_use]
    pub const fn must_exist(mut self) -> Self {
        self.must_exist = true;
        self
    }

    /// How many reads run at once, at least one; 2 unless set.
    #[must_use]
    pub const fn readers(mut self, readers: usize) -> Self {
        self.readers = readers;
        self
    }

    /// How long a statement waits for a lock that another program holds; 5 s unless set.
    #[must_use]
    pub const fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }
}
