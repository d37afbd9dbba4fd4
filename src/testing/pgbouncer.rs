//! A PgBouncer in front of a test's server, which gives each transaction any connection that is free.
//!
//! It is configured as it comes, so it refuses what it does not know. It knows no store.

use std::io::Result;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Child;

use super::postgres::TestPostgres;
use super::service::{self, Folder};

/// A running pooler in transaction mode. Dropped, it is stopped and removed.
#[derive(Debug)]
pub struct TestPgBouncer {
    // Held, not read: what runs in it ends with it.
    server: Child,
    port: u16,
    // Held, not read: it is removed with the last of its files.
    _folder: Folder,
}

impl TestPgBouncer {
    /// Starts one that holds at most `pool_size` connections to a database of `server`. None, and a
    /// line on the standard error output, if it is not installed.
    ///
    /// # Errors
    /// If it is installed and does not start, or if it is not and `CONNECTOR_STORE_REQUIRE_SERVICES`
    /// is 1.
    pub fn start(server: &TestPostgres, pool_size: u32) -> Result<Option<Self>> {
        let Some(program) = service::find("pgbouncer", &[PathBuf::from("/usr/sbin")]) else {
            return service::skip("PgBouncer");
        };
        let farewell = "kill \"$(cat \"$0/pid\")\"";
        let (folder, port) = (Folder::new(farewell)?, service::free_port()?);
        let place = folder.path().display();
        let settings = format!(
            "[databases]\n\
             * = host=127.0.0.1 port={} user=postgres\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir =\n\
             auth_type = any\n\
             pool_mode = transaction\n\
             default_pool_size = {pool_size}\n\
             max_client_conn = 1000\n\
             pidfile = {place}/pid\n",
            server.port()
        );
        // Whose it is does not matter: it holds no secret, and its reader owns the folder.
        let file = folder.path().join("settings.ini");
        std::fs::write(&file, settings)?;
        let log = folder.path().join("log");
        let mut server = service::spawn(service::command(program)?.arg("-q").arg(&file), &log)?;
        let answers = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
        service::until(&mut server, &log, answers)?;
        Ok(Some(Self { server, port, _folder: folder }))
    }

    /// The URL of a database of its server, through it.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for TestPgBouncer {
    fn drop(&mut self) {
        // One that has ended already needs no end.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
