//! Other people's programs in tests: where they are, as whom they run, and the folder that they
//! leave nothing of. It knows neither of the servers by name.

use std::io::{Error, ErrorKind, Result, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// As this user servers run that refuse to run as root.
const USER: &str = "postgres";
/// How often a server is asked whether it answers, and how long between.
const TRIES: u32 = 2_000;
const PAUSE: Duration = Duration::from_millis(20);

/// Whether this process may do everything.
static IS_ROOT: OnceLock<bool> = OnceLock::new();

/// What a test does whose server is not installed: nothing, loudly, unless it must be there.
pub(super) fn skip<T>(server: &str) -> Result<Option<T>> {
    if std::env::var("CONNECTOR_STORE_REQUIRE_SERVICES").is_ok_and(|value| value == "1") {
        return Err(Error::new(ErrorKind::NotFound, format!("{server} is not installed")));
    }
    writeln!(std::io::stderr(), "SKIPPED: {server} is not installed")?;
    Ok(None)
}

/// The first of these folders, then those of the `PATH`, that has this program.
pub(super) fn find(program: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = folders.iter().cloned().chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// A program, to be run as the right user.
pub(super) fn command(program: impl AsRef<Path>) -> Result<Command> {
    let program = program.as_ref();
    let is_root = match IS_ROOT.get() {
        Some(is_root) => is_root,
        None => {
            let is_root = run(Command::new("id").arg("-u"))? == "0";
            IS_ROOT.get_or_init(|| is_root)
        }
    };
    let mut command = if *is_root {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--reuid", USER, "--regid", USER, "--init-groups"]).arg(program);
        setpriv
    } else {
        Command::new(program)
    };
    // The user may not look into the folder of the test.
    command.current_dir("/");
    Ok(command)
}

/// Runs it to its end, and gives what it printed.
pub(super) fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Error::other(format!("{command:?}: {}: {said}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// Starts a server, which writes to the log.
pub(super) fn spawn(command: &mut Command, log: &Path) -> Result<Child> {
    let log = std::fs::File::options().create(true).append(true).open(log)?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0).spawn()
}

/// Waits until it is so while the server runs.
pub(super) fn until(server: &mut Child, log: &Path, is_so: impl Fn() -> bool) -> Result<()> {
    let mut fault = ErrorKind::TimedOut;
    for _ in 0..TRIES {
        if is_so() {
            return Ok(());
        }
        if server.try_wait()?.is_some() {
            fault = ErrorKind::BrokenPipe;
            break;
        }
        std::thread::sleep(PAUSE);
    }
    let said = std::fs::read_to_string(log).unwrap_or_default();
    Err(Error::new(fault, format!("no answer of the server: {said}")))
}

/// A port of the loopback that nobody listens on.
pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// A folder of the servers' user, gone when it is dropped, and with it what runs in it.
///
/// A shell stands guard over it and reads from a pipe. The pipe ends with this process, however
/// that ends, so a test that is killed leaves no server behind either.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    guard: Child,
}

impl Folder {
    /// A new folder. At its end the shell runs `farewell`, in which `$0` is the folder.
    pub(super) fn new(farewell: &str) -> Result<Self> {
        let template = std::env::temp_dir().join("connector-store-XXXXXXXX");
        let path = PathBuf::from(run(command("mktemp")?.arg("-d").arg(template))?);
        let script = format!("read -r _\n{farewell}\nrm -rf \"$0\"");
        let guard = command("sh")?
            .arg("-c")
            .arg(script)
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // What ends the tests' group of processes must leave the guard to end the servers.
            .process_group(0)
            .spawn()?;
        Ok(Self { path, guard })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // A guard that can't be waited for is gone.
        let _ = self.guard.wait();
    }
}
