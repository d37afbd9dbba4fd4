//! How a PostgreSQL database is opened: the options a host may set. It knows nothing of connections.

use std::fmt;
use std::time::Duration;

/// Reading connections, unless set otherwise. The two that write, and the one that listens, are others.
const DEFAULT_READERS: usize = 4;
/// How long a transaction may take, unless set otherwise.
const DEFAULT_COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection may take to be made, unless set otherwise.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How to open a store in a PostgreSQL database.
#[derive(Clone)]
pub struct PostgresOptions {
    pub(super) url: String,
    pub(super) readers: usize,
    pub(super) command_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) pooler: Option<bool>,
    pub(super) must_exist: bool,
}

/// The URL may hold a password.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("readers", &self.readers)
            .field("command_timeout", &self.command_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("pooler", &self.pooler)
            .finish_non_exhaustive()
    }
}

impl PostgresOptions {
    /// The store in the database of this URL: `postgres://user:password@host:port/database`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            readers: DEFAULT_READERS,
            command_timeout: DEFAULT_COMMAND_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            pooler: None,
            must_exist: false,
        }
    }

    /// Opens a store that is there already, and makes none.
    #[must_use]
    pub const fn must_exist(mut self) -> Self {
        self.must_exist = true;
        self
    }

    /// How many reads run at once, at least one; 4 unless set. A store has up to four connections
    /// besides: two that write, a third one while the store is maintained, and one that listens.
    #[must_use]
    pub const fn readers(mut self, readers: usize) -> Self {
        self.readers = readers;
        self
    }

    /// How long a transaction, then its commit, or a read may take; 30 s unless set. Then its connection
    /// is given up.
    #[must_use]
    pub const fn command_timeout(mut self, timeout: Duration) -> Self {
        self.command_timeout = timeout;
        self
    }

    /// How long a connection may take to be made; 5 s unless set.
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Whether a pooler that gives each transaction another connection stands between (`pgbouncer`
    /// in transaction mode). The store finds out when it opens, unless it is told here.
    #[must_use]
    pub const fn pooler(mut self, is_between: bool) -> Self {
        self.pooler = Some(is_between);
        self
    }
}
