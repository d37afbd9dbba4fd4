//! What a host says was acknowledged to it: a file that only grows, a line for each fact. It knows
//! nothing of the store, so that nothing the store does wrong can make it right.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// The lease of an account was given, with this token.
    Leased { key: u32, token: String },
    /// The trim of a document was set, by the command of this id.
    Trimmed { command: Uuid },
    /// An account was synced for the `round`th time, by the progress that bears this id.
    Synced { key: u32, round: i64, sync: Uuid },
    /// What was called under a lease was refused, because the lease was lost.
    Fenced { key: u32 },
}

/// Writes a file, on a thread of its own: many facts that come together are one write and one sync.
#[derive(Debug)]
pub struct Witness {
    entries: Sender<Entry>,
    writer: JoinHandle<io::Result<()>>,
}

impl Witness {
    /// Begins a file.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let file = File::options().create_new(true).append(true).open(path)?;
        let (entries, received) = mpsc::channel();
        let writer = std::thread::spawn(move || write(file, &received));
        Ok(Self { entries, writer })
    }

    /// Notes facts from anywhere. The acknowledgement came before, so a fact that is not noted any more
    /// because the process is killed is one less to be checked, and never one too many.
    pub fn notes(&self) -> Sender<Entry> {
        self.entries.clone()
    }

    /// Waits until all facts are on the disk. All senders are gone by then.
    pub fn end(self) -> io::Result<()> {
        drop(self.entries);
        self.writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer panicked")))
    }
}

/// Writes what comes. For each sync that is on the disk a byte goes to standard output, by which the
/// parent counts.
fn write(mut file: File, received: &Receiver<Entry>) -> io::Result<()> {
    while let Ok(first) = received.recv() {
        let mut lines = Vec::new();
        let mut synced = Vec::new();
        for entry in std::iter::once(first).chain(received.try_iter()) {
            serde_json::to_writer(&mut lines, &entry)?;
            lines.push(b'\n');
            if matches!(entry, Entry::Synced { .. }) {
                synced.push(b'.');
            }
        }
        file.write_all(&lines)?;
        file.sync_data()?;
        let mut out = io::stdout().lock();
        out.write_all(&synced)?;
        out.flush()?;
    }
    Ok(())
}

/// Reads a file. Its last line may be torn, as the process may have been killed in the middle of it.
pub fn read(path: &Path) -> io::Result<Vec<Entry>> {
    let text = std::fs::read_to_string(path)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).map_err(io::Error::from)).collect()
}
