//! A PostgreSQL server of a test's own: started in a temporary folder, gone with the test.
//!
//! It needs the server's programs on this machine and the right to run them; as root it runs them
//! as the user `postgres`. It knows no store and speaks to the server by its own programs alone.

use std::io::{Result, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::service::{self, Folder};

/// Where distributions put the programs, a folder for each version.
const INSTALLED: &str = "/usr/lib/postgresql";

/// What makes a server quick. A killed server loses nothing by it, only a machine without power would.
const SETTINGS: &[(&str, &str)] = &[
    // A client whose thread waits for the server's end can't say who it is, and is waited for.
    ("authentication_timeout", "5s"),
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("log_line_prefix", "%d "),
    ("max_connections", "200"),
    ("shared_buffers", "32MB"),
    ("wal_level", "replica"),
];

/// How long the server's programs wait for it, in seconds.
const PATIENCE: &str = "60";

/// A cluster that nobody has started, as long as there is a server that was copied from it.
static NEW_CLUSTER: Mutex<Weak<Folder>> = Mutex::new(Weak::new());

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Connections are cut and their transactions rolled back.
    Fast,
    /// As if it were killed: it recovers when it is started again.
    Immediate,
}

/// A running server, whose superuser `postgres` needs no password. Dropped, it is stopped and removed.
///
/// Every method waits for the programs that it runs, so it blocks its thread.
#[derive(Debug)]
pub struct TestPostgres {
    programs: PathBuf,
    port: u16,
    databases: AtomicU64,
    server: Mutex<Option<Child>>,
    folder: Folder,
    /// It is there for the next server.
    copied_from: Option<Arc<Folder>>,
}

impl TestPostgres {
    /// Starts a server with these settings besides the usual ones. None, and a line on the standard
    /// error output, if it is not installed.
    ///
    /// # Errors
    /// If it is installed and does not start, or if it is not and `CONNECTOR_STORE_REQUIRE_SERVICES`
    /// is 1.
    pub fn start(settings: &[(&str, &str)]) -> Result<Option<Self>> {
        let Some(programs) = programs() else { return service::skip("PostgreSQL") };
        let mut server = Self::in_new_folder(programs)?;
        server.copied_from = Some(server.copy_new_cluster()?);
        server.configure(SETTINGS)?;
        server.configure(settings)?;
        server.set_up_network()?;
        server.start_again()?;
        Ok(Some(server))
    }

    /// The URL of a database.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The port of the loopback that it listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Makes an empty database and gives its name.
    ///
    /// # Errors
    /// If the server does not.
    pub fn create_database(&self) -> Result<String> {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(name)
    }

    /// Runs statements in a database and gives the rows that they print, a line each, columns parted
    /// by `|`.
    ///
    /// # Errors
    /// What the server said.
    pub fn sql(&self, database: &str, statements: &str) -> Result<String> {
        let output = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"];
        service::run(
            self.program("psql")?.args(output).arg("-c").arg(statements).arg(self.url(database)),
        )
    }

    /// What it has logged of a database: errors and warnings, a line each.
    ///
    /// # Errors
    /// If its log can't be read.
    pub fn log(&self, database: &str) -> Result<Vec<String>> {
        let log = std::fs::read_to_string(self.log_file())?;
        let start = format!("{database} ");
        Ok(log.lines().filter_map(|line| line.strip_prefix(&start)).map(str::to_owned).collect())
    }

    /// Stops it. [`Self::start_again`] brings it back, on the same port.
    ///
    /// # Errors
    /// If it does not stop.
    pub fn stop(&self, how: Stop) -> Result<()> {
        let mode = match how {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        };
        self.control(&["stop", "-m", mode])?;
        // Waited for, so that nothing is left of the process.
        self.server().take().map_or(Ok(()), |mut server| server.wait().map(drop))
    }

    /// Starts it after a stop, and waits until it answers.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start_again(&self) -> Result<()> {
        let log = self.log_file();
        let mut server =
            service::spawn(self.program("postgres")?.arg("-D").arg(self.data()), &log)?;
        // To ask it costs a process each time.
        let answer = || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
                && self.sql("postgres", "SELECT 1").is_ok()
        };
        let answered = service::until(&mut server, &log, answer);
        *self.server() = Some(server);
        answered
    }

    /// Stops it and starts it again.
    ///
    /// # Errors
    /// If it does not stop or start.
    pub fn restart(&self, how: Stop) -> Result<()> {
        self.stop(how)?;
        self.start_again()
    }

    /// Makes a server of what this one holds now, which follows it and takes reads alone. If it is
    /// `synchronous`, this one acknowledges no commit any more that the standby has not got.
    ///
    /// # Errors
    /// If the copy can't be made or does not start.
    pub fn standby(&self, synchronous: bool) -> Result<Self> {
        let standby = Self::in_new_folder(self.programs.clone())?;
        let mut copy = self.program("pg_basebackup")?;
        copy.args(["-R", "-X", "stream", "-c", "fast", "-N", "-d"]).arg(self.url("postgres"));
        service::run(copy.arg("-D").arg(standby.data()))?;
        standby.set_up_network()?;
        standby.start_again()?;
        if synchronous {
            self.alter("synchronous_standby_names", "*")?;
        }
        Ok(standby)
    }

    /// Changes a setting of the running server.
    ///
    /// # Errors
    /// If the server refuses it.
    pub fn alter(&self, setting: &str, value: &str) -> Result<()> {
        // The statement can't stand in a transaction, as two in one command would.
        self.sql("postgres", &format!("ALTER SYSTEM SET {setting} = '{value}'"))?;
        self.sql("postgres", "SELECT pg_reload_conf()").map(drop)
    }

    /// Takes encrypted connections as well from now on, with a certificate for `localhost` alone. Gives the
    /// file of the authority that signed it, which is another one each time. None, and a line on the
    /// standard error output, if `openssl` is not installed.
    ///
    /// # Errors
    /// If the certificate can't be made, or the server refuses it; if `openssl` is not installed and
    /// `CONNECTOR_STORE_REQUIRE_SERVICES` is 1.
    pub fn enable_tls(&self) -> Result<Option<PathBuf>> {
        let Some(openssl) = service::find("openssl", &[]) else { return service::skip("openssl") };
        let folder = self.folder.path();
        let prefix = format!("tls-{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let file = |name: &str| folder.join(format!("{prefix}-{name}"));
        let [authority, authority_key] = [file("authority.pem"), file("authority.key")];
        let [request, certificate, key, names] =
            [file("request"), file("certificate"), file("key"), file("names")];
        std::fs::write(&names, "subjectAltName = DNS:localhost")?;
        let new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        let request_of = |name: &str| -> Result<Command> {
            let mut command = service::command(&openssl)?;
            command.arg("req").args(new_key).args(["-subj", &format!("/CN={prefix}-{name}")]);
            Ok(command)
        };
        let mut command = request_of("authority")?;
        command.args(["-x509", "-days", "2", "-keyout"]).arg(&authority_key);
        service::run(command.arg("-out").arg(&authority))?;
        let mut command = request_of("server")?;
        service::run(command.arg("-keyout").arg(&key).arg("-out").arg(&request))?;
        let mut command = service::command(&openssl)?;
        command.args(["x509", "-req", "-days", "2", "-CAcreateserial", "-in"]).arg(&request);
        command.arg("-CA").arg(&authority).arg("-CAkey").arg(&authority_key);
        service::run(command.arg("-extfile").arg(&names).arg("-out").arg(&certificate))?;
        self.alter("ssl_cert_file", &certificate.display().to_string())?;
        self.alter("ssl_key_file", &key.display().to_string())?;
        self.alter("ssl", "on")?;
        Ok(Some(authority))
    }

    /// Makes a standby a server of its own, and waits until it takes writes.
    ///
    /// # Errors
    /// If it is no standby.
    pub fn promote(&self) -> Result<()> {
        self.control(&["promote"])
    }

    fn in_new_folder(programs: PathBuf) -> Result<Self> {
        let control = programs.join("pg_ctl");
        let farewell = format!("'{}' stop -D \"$0/data\" -m immediate -s", control.display());
        let (folder, port) = (Folder::new(&farewell)?, service::free_port()?);
        let (databases, server) = (AtomicU64::new(0), Mutex::new(None));
        Ok(Self { programs, port, databases, server, folder, copied_from: None })
    }

    /// Fills its folder with a new cluster. To copy one takes a tenth of the time that it takes to make one.
    fn copy_new_cluster(&self) -> Result<Arc<Folder>> {
        let mut kept = NEW_CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = if let Some(folder) = kept.upgrade() {
            folder
        } else {
            let folder = Arc::new(Folder::new(":")?);
            let initdb = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"];
            // An order of letters that is not that of bytes shows who relies on the wrong one.
            let order = ["--locale-provider=icu", "--icu-locale=en-US"];
            let mut command = self.program("initdb")?;
            command.args(initdb).args(order).args(["-N", "--wal-segsize=1", "-D"]);
            service::run(command.arg(folder.path().join("data")))?;
            *kept = Arc::downgrade(&folder);
            folder
        };
        let mut copy = service::command("cp")?;
        service::run(copy.arg("-R").arg(folder.path().join("data")).arg(self.data()))?;
        Ok(folder)
    }

    fn set_up_network(&self) -> Result<()> {
        let sockets = self.folder.path().display().to_string();
        self.configure(&[
            ("listen_addresses", "127.0.0.1"),
            ("port", &self.port.to_string()),
            ("unix_socket_directories", &sockets),
        ])
    }

    /// The last line for a setting is the one that holds.
    fn configure(&self, settings: &[(&str, &str)]) -> Result<()> {
        let path = self.data().join("postgresql.conf");
        let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
        settings.iter().try_for_each(|(name, value)| writeln!(file, "{name} = '{value}'"))
    }

    fn control(&self, action: &[&str]) -> Result<()> {
        let patience = ["-w", "-s", "-t", PATIENCE, "-D"];
        service::run(self.program("pg_ctl")?.args(action).args(patience).arg(self.data())).map(drop)
    }

    fn server(&self) -> MutexGuard<'_, Option<Child>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn program(&self, name: &str) -> Result<Command> {
        service::command(self.programs.join(name))
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }
}

impl Drop for TestPostgres {
    fn drop(&mut self) {
        // What can't be stopped here is left to the guard of the folder.
        let _ = self.stop(Stop::Immediate);
    }
}

/// The folder of the newest installed version, or that of a link in the `PATH`.
fn programs() -> Option<PathBuf> {
    let entries = std::fs::read_dir(INSTALLED).into_iter().flatten().flatten();
    let mut folders: Vec<_> = entries.map(|entry| entry.path().join("bin")).collect();
    let version = |folder: &PathBuf| -> Option<u32> {
        folder.parent().and_then(Path::file_name)?.to_str()?.parse().ok()
    };
    folders.sort_by_key(|folder| std::cmp::Reverse(version(folder)));
    let postgres = service::find("postgres", &folders)?.canonicalize().ok()?;
    postgres.parent().map(Path::to_owned)
}

#[cfg(test)]
#[path = "postgres_tests.rs"]
mod tests;
