//! Ends the process on purpose, as nobody would wish it to end: `--crash-after`.

use clap::ValueEnum;

/// The steps of an edit, in their order, after each of which the process can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CrashPoint {
    /// The edit is safe in the graph
    Edit,
    /// The store has given the operation to this run
    Claim,
    /// The store knows that the request leaves now
    Send,
    /// The provider has renamed the file, and has not written its log yet
    Rename,
    /// The provider has answered
    Write,
    /// The store knows that the write is made
    Finalize,
}

impl CrashPoint {
    /// All of them, in their order.
    pub const ALL: [Self; 6] =
        [Self::Edit, Self::Claim, Self::Send, Self::Rename, Self::Write, Self::Finalize];

    /// The word on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Edit => "edit",
            Self::Claim => "claim",
            Self::Send => "send",
            Self::Rename => "rename",
            Self::Write => "write",
            Self::Finalize => "finalize",
        }
    }
}

/// Where the user wants the process to be killed, if anywhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crash(pub Option<CrashPoint>);

impl Crash {
    /// The step is done: the process ends here if the user wants that. No destructor runs and no
    /// file is closed in order, which is the point of it.
    pub fn after(self, point: CrashPoint) {
        if self.0 == Some(point) {
            kill();
        }
    }
}

fn kill() -> ! {
    #[cfg(unix)]
    signal(rustix::process::Signal::KILL);
    std::process::abort()
}

/// Stops the process until somebody wakes it, as a laptop does whose lid is closed.
pub fn stop_until_woken() {
    #[cfg(unix)]
    signal(rustix::process::Signal::STOP);
}

#[cfg(unix)]
fn signal(signal: rustix::process::Signal) {
    // One cannot fail to be allowed to signal oneself.
    let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
}
