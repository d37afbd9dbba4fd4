//! The host processes, and what is done to them: by chance from a seed one is killed, or stopped until
//! its leases have expired. It looks at nothing but whether they run and how far they have come.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use connector_store::ConnectorName;
use indicatif::ProgressBar;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::Instant;

use crate::Failure;
use crate::chance::Chance;
use crate::cli::Play;
use crate::{host, names};

/// How often the processes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Beyond the time of its leases a paused or killed host is gone for so long, in which others find the
/// leases that have expired and take them over.
const GRACE: Duration = Duration::from_secs(2);

/// A host, over all its processes.
pub struct Host {
    pub number: u32,
    pub kills: u64,
    pub pauses: u64,
    /// What its processes noted, a file for each.
    pub witnesses: Vec<PathBuf>,
    process: Process,
}

enum Process {
    Runs(Child),
    Paused(Child, Instant),
    Killed(Instant),
    Ended,
}

#[derive(Clone, Copy)]
enum Blow {
    Kill,
    Pause,
}

/// All of them. Dropped, it kills what is left of them.
pub struct Fleet {
    pub hosts: Vec<Host>,
    play: Play,
    url: String,
    connector: ConnectorName,
    dir: PathBuf,
    chance: Chance,
    /// The blows that are still to come, the next one last.
    blows: Vec<Blow>,
    planned: u64,
    synced: Arc<AtomicU64>,
}

impl Fleet {
    /// Starts the hosts, which keep their witnesses in a folder.
    pub fn start(
        play: &Play,
        url: &str,
        connector: &ConnectorName,
        dir: &Path,
    ) -> Result<Self, Failure> {
        let mut chance = Chance::new(play.seed);
        let mut blows = Vec::new();
        let kinds = [(Blow::Kill, play.kills), (Blow::Pause, play.pauses)];
        for blow in kinds.into_iter().flat_map(|(blow, n)| std::iter::repeat_n(blow, n.into())) {
            blows.insert(chance.below(blows.len() + 1), blow);
        }
        let mut fleet = Self {
            hosts: Vec::new(),
            play: play.clone(),
            url: url.to_owned(),
            connector: connector.clone(),
            dir: dir.to_owned(),
            planned: blows.len() as u64,
            synced: Arc::default(),
            chance,
            blows,
        };
        for number in 1..=play.work.hosts {
            let witness = fleet.dir.join(format!("{}.1", names::host(number)));
            let process = Process::Runs(fleet.spawn(number, &witness)?);
            let witnesses = vec![witness];
            fleet.hosts.push(Host { number, kills: 0, pauses: 0, witnesses, process });
        }
        Ok(fleet)
    }

    /// Until all hosts have ended by themselves.
    pub async fn run(&mut self, bar: &ProgressBar) -> Result<(), Failure> {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        while !self.hosts.iter().all(|host| matches!(host.process, Process::Ended)) {
            looks.tick().await;
            bar.set_position(self.synced.load(Ordering::Relaxed));
            for at in 0..self.hosts.len() {
                self.look(at)?;
            }
            if self.is_blow_due() {
                self.strike().await?;
            }
        }
        Ok(())
    }

    /// Sees to what has happened to a host since the last look.
    fn look(&mut self, at: usize) -> Result<(), Failure> {
        let number = self.hosts[at].number;
        let process = std::mem::replace(&mut self.hosts[at].process, Process::Ended);
        self.hosts[at].process = match process {
            Process::Runs(mut child) => match child.try_wait()? {
                None => Process::Runs(child),
                Some(status) if status.success() => Process::Ended,
                Some(status) => return Err(format!("{}: {status}", names::host(number)).into()),
            },
            Process::Paused(child, until) if Instant::now() >= until => {
                signal(&child, Signal::Continue)?;
                Process::Runs(child)
            }
            Process::Killed(until) if Instant::now() >= until => {
                let processes = self.hosts[at].witnesses.len();
                let name = format!("{}.{}", names::host(number), processes + 1);
                let witness = self.dir.join(name);
                let child = self.spawn(number, &witness)?;
                self.hosts[at].witnesses.push(witness);
                Process::Runs(child)
            }
            as_it_was => as_it_was,
        };
        Ok(())
    }

    /// The blows are spread evenly over the work, and not over the time it takes.
    fn is_blow_due(&self) -> bool {
        let work = &self.play.work;
        let all = u64::from(work.keys) * u64::from(work.rounds);
        let next = self.planned - self.blows.len() as u64 + 1;
        self.synced.load(Ordering::Relaxed) >= all * next / (self.planned + 2)
    }

    /// The next blow falls on a host that runs. While no other does, it waits.
    async fn strike(&mut self) -> Result<(), Failure> {
        let run = |host: &&mut Host| matches!(host.process, Process::Runs(_));
        let mut running: Vec<&mut Host> = self.hosts.iter_mut().filter(run).collect();
        if running.len() < 2 {
            return Ok(());
        }
        let Some(blow) = self.blows.pop() else { return Ok(()) };
        let host = running.swap_remove(self.chance.below(running.len()));
        let until = Instant::now() + self.play.work.ttl() + GRACE;
        let process = std::mem::replace(&mut host.process, Process::Ended);
        if let Process::Runs(mut child) = process {
            host.process = match blow {
                Blow::Kill => {
                    child.kill().await?;
                    host.kills += 1;
                    Process::Killed(until)
                }
                Blow::Pause => {
                    signal(&child, Signal::Stop)?;
                    host.pauses += 1;
                    Process::Paused(child, until)
                }
            };
        }
        Ok(())
    }

    fn spawn(&self, number: u32, witness: &Path) -> Result<Child, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("host").arg("--number").arg(number.to_string());
        command.arg("--connector").arg(self.connector.as_str()).arg("--witness").arg(witness);
        command.args(self.play.work.to_args()).env(host::URL, &self.url);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        // Ctrl-C is for the parent, which ends the others. And what is left stopped in a group of its
        // own is ended by the kernel with its parent.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn()?;
        if let Some(out) = child.stdout.take() {
            tokio::spawn(count(out, Arc::clone(&self.synced)));
        }
        Ok(child)
    }
}

/// A host prints a byte for each sync.
async fn count(mut out: ChildStdout, synced: Arc<AtomicU64>) {
    let mut bytes = [0; 1_024];
    while let Ok(more @ 1..) = out.read(&mut bytes).await {
        synced.fetch_add(more as u64, Ordering::Relaxed);
    }
}

enum Signal {
    Stop,
    Continue,
}

#[cfg(unix)]
fn signal(child: &Child, signal: Signal) -> Result<(), Failure> {
    use rustix::process::{Pid, Signal as Number, kill_process};
    let pid = child.id().map(i32::try_from).transpose()?.and_then(Pid::from_raw);
    let number = match signal {
        Signal::Stop => Number::STOP,
        Signal::Continue => Number::CONT,
    };
    // One that has ended by itself meanwhile has no number any more.
    pid.map_or(Ok(()), |pid| Ok(kill_process(pid, number)?))
}

#[cfg(not(unix))]
fn signal(_: &Child, _: Signal) -> Result<(), Failure> {
    Err("only Unix can pause a process: give --pauses 0".into())
}
