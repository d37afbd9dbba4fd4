//! What is told while the host works: notes, steps, a progress bar. All of it goes to standard
//! error, so that standard output is the summary alone.

use std::collections::HashSet;
use std::error::Error;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressStyle};

/// So many skipped entities are named in one run; the others are only counted.
const MAX_NAMED_SKIPS: usize = 20;

/// Tells the user.
#[derive(Debug)]
pub struct Report {
    bar: Option<ProgressBar>,
    verbose: bool,
    said: Mutex<HashSet<String>>,
}

impl Report {
    /// With a progress bar if there is a terminal to draw it on.
    pub fn new(verbose: bool) -> Self {
        let bar = (std::io::stderr().is_terminal() && !verbose).then(|| {
            let bar = ProgressBar::new(0);
            let style = ProgressStyle::with_template("{bar:30} {human_pos}/{human_len} {per_sec}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self { bar, verbose, said: Mutex::default() }
    }

    /// Something the user should know.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// A step that is done and safe.
    pub fn step(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            self.note(&format!("step: {}", text()));
        }
    }

    /// An entity, or what may be one, that cannot be mirrored. Several owners see the same ones,
    /// and each round of a watch sees them again: they are told once.
    pub fn skipped(&self, path: &Path, reason: &str) {
        // Escaped: a name may hold what a terminal takes for a command.
        let name = path.to_string_lossy();
        let text = format!("skipped {}: {reason}", name.escape_debug());
        // Nothing panics while this is locked; and if it did, the set would still be a set.
        let mut said = self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if said.len() > MAX_NAMED_SKIPS || !said.insert(text.clone()) {
            return;
        }
        let last = said.len() > MAX_NAMED_SKIPS;
        drop(said);
        self.note(if last { "… and more, which are only counted" } else { &text });
    }

    /// So many more entities were found.
    pub fn found(&self, entities: usize) {
        if let Some(bar) = &self.bar {
            bar.inc_length(entities as u64);
        }
    }

    /// So many more entities were dealt with.
    pub fn advance(&self, entities: usize) {
        if let Some(bar) = &self.bar {
            bar.inc(entities as u64);
        }
    }

    /// The bar is taken away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// An error with its causes, in one line.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
