//! A source tree and a host's directory of their own, and runs of the program over them.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A body that the model cannot take whole.
pub const LONG: usize = 20_000;
/// Whom an unprivileged run belongs to.
const NOBODY: u32 = 65_534;

/// A temporary source and host.
pub struct World {
    dir: TempDir,
}

/// How a run ended.
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl World {
    pub fn new() -> Self {
        let world = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(world.source()).unwrap();
        world
    }

    /// With these files, each holding its own path.
    pub fn with(files: &[&str]) -> Self {
        let world = Self::new();
        for file in files {
            world.write(file, file);
        }
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn source(&self) -> PathBuf {
        self.path("source")
    }

    pub fn host(&self) -> PathBuf {
        self.path("host")
    }

    pub fn file(&self, file: &str) -> PathBuf {
        self.source().join(file)
    }

    pub fn write(&self, file: &str, content: &str) {
        let path = self.file(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn remove(&self, file: &str) {
        fs::remove_file(self.file(file)).unwrap();
    }

    /// The command of a run over this source and `host`.
    pub fn command(&self, host: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.arg("--source").arg(self.source()).arg("--store").arg(host).arg("--json");
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(&self.host(), args).output().unwrap())
    }

    /// A run whom the permission bits bind, which they do not where the tests run as root.
    pub fn run_unprivileged(&self, args: &[&str]) -> Run {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            return self.run(args);
        }
        let program = self.path("sync_host");
        fs::copy(binary(), &program).unwrap();
        fs::create_dir_all(self.host()).unwrap();
        for path in [self.dir.path(), &self.host()] {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut command = Command::new(program);
        command.arg("--source").arg(self.source()).arg("--store").arg(self.host()).arg("--json");
        Run::of(command.args(args).uid(NOBODY).gid(NOBODY).output().unwrap())
    }
}

impl Run {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The summary, which is the last line.
    pub fn summary(&self) -> Value {
        let line = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks the exit code and these counts of the summary; those not named must be 0.
    pub fn expect(&self, code: i32, counts: &[(&str, u64)]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        let summary = self.summary();
        for name in ["created", "updated", "unchanged", "trimmed", "swept", "skipped", "refused"] {
            let expected =
                counts.iter().find(|(given, _)| *given == name).map_or(0, |given| given.1);
            assert_eq!(summary[name], expected, "{name}: {self:?}");
        }
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "code {:?}\n{}\n{}", self.code, self.stdout, self.stderr)
    }
}

/// The program, which lies beside the tests: `cargo test` builds all examples first.
pub fn binary() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let profile = tests.parent().and_then(Path::parent).unwrap();
    let binary = profile.join("examples").join("sync_host");
    assert!(binary.is_file(), "build it first: cargo build --example sync_host");
    binary
}
