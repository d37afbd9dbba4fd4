//! All that a run has in common: time, database, hosts, what was promised, what was seen.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use connector_store::testing::{FaultyStorage, SimClock, Stage};
use connector_store::{Clock as _, CommandId, Error, ErrorClass, MemoryJournal, Result};
use tokio::sync::watch;
use uuid::Uuid;

use super::audit::Audit;
use super::chance::Chance;
use super::graph::Graph;
use super::history::{History, Violation};
use super::host::Host;
use super::promises::{Promises, Told};
use super::samples::Recorder;
use super::work::Accounts;
use super::work::observations::Observations;
use super::{Config, Progress, Report};

/// Tries of a command whose outcome is unknown or that was not done.
const TRIES: usize = 6;

/// Of a thousand commands that were done so many are sent again.
const REPEATED: usize = 20;

/// See the module.
pub struct World {
    pub config: Config,
    pub clock: SimClock,
    pub journal: MemoryJournal,
    pub hosts: Vec<Rc<Host>>,
    pub accounts: Accounts,
    pub observations: Observations,
    pub audit: Rc<RefCell<Audit>>,
    pub promises: RefCell<Promises>,
    pub graph: RefCell<Graph>,
    chance: RefCell<Chance>,
    history: RefCell<History>,
    violation: RefCell<Option<Violation>>,
    pub samples: Recorder,
    progress: Box<dyn Fn(Progress)>,
    commands: Cell<u64>,
    is_worked: watch::Sender<bool>,
}

impl World {
    pub fn new(
        config: Config,
        clock: SimClock,
        samples: Recorder,
        progress: Box<dyn Fn(Progress)>,
    ) -> Rc<Self> {
        let database = clock.clone();
        let journal = MemoryJournal::shared(Arc::new(move || database.wall()));
        let chance = Chance::new(config.seed);
        let accounts = Accounts::new(&config, &clock);
        Rc::new(Self {
            hosts: (0..config.hosts).map(|number| Rc::new(Host::new(number))).collect(),
            observations: Observations::new(&accounts.all),
            accounts,
            audit: Rc::new(RefCell::new(Audit::new())),
            promises: RefCell::default(),
            graph: RefCell::default(),
            chance: RefCell::new(chance),
            history: RefCell::default(),
            violation: RefCell::default(),
            samples,
            progress,
            commands: Cell::new(0),
            is_worked: watch::Sender::new(false),
            clock,
            journal,
            config,
        })
    }

    pub fn chance<T>(&self, draw: impl FnOnce(&mut Chance) -> T) -> T {
        draw(&mut self.chance.borrow_mut())
    }

    pub fn draw(&self) -> u64 {
        self.chance(Chance::draw)
    }

    pub fn note(&self, who: &str, what: fmt::Arguments<'_>) {
        self.history.borrow_mut().note(self.clock.monotonic(), who, what);
    }

    /// A rule is broken: the run ends.
    pub fn violate(&self, rule: &'static str, how: impl fmt::Display) {
        let mut violation = self.violation.borrow_mut();
        if violation.is_none() {
            let broken = Violation { rule, how: how.to_string() };
            self.history.borrow_mut().note(
                self.clock.monotonic(),
                "CHECK",
                format_args!("{broken}"),
            );
            *violation = Some(broken);
            self.is_worked.send_replace(true);
        }
    }

    /// Holds a rule.
    pub fn hold(&self, rule: &'static str, holds: bool, how: impl FnOnce() -> String) {
        self.samples.held(rule);
        if !holds {
            self.violate(rule, how());
        }
    }

    pub fn is_broken(&self) -> bool {
        self.violation.borrow().is_some()
    }

    /// New work may begin.
    pub fn goes_on(&self) -> bool {
        !*self.is_worked.borrow()
    }

    pub async fn until_worked(&self) {
        self.is_worked.subscribe().wait_for(|is| *is).await.unwrap();
    }

    pub fn commands(&self) -> u64 {
        self.commands.get()
    }

    /// Tells whoever looks on what the end of the run is at.
    pub fn stage(&self, what: &'static str, done: usize, of: usize) {
        (self.progress)(Progress::End { what, done, of });
    }

    pub async fn rest(&self, from: u64, to: u64) {
        let pause = self.chance(|chance| chance.millis(from, to));
        self.clock.sleep(pause).await;
    }

    pub fn report(&self, took: Duration) -> Report {
        Report {
            history: self.history.take(),
            violation: self.violation.take(),
            commands: self.commands.get(),
            took,
            samples: self.samples.take(),
        }
    }

    /// Looks at every batch as soon as it is written, before anybody hears of it.
    pub fn watch(&self, faults: &FaultyStorage) {
        let (journal, seen) = (self.journal.clone(), super::audit::Inbox::of(self));
        let samples = self.samples.clone();
        faults.observe(move |stage, batch| {
            if stage == Stage::AfterCommit {
                seen.take(&journal);
                samples.batch(batch);
            }
        });
    }

    /// A call of a host's user: counted, and told in the history with what it came to. `what` begins
    /// with its kind, and a colon if more is told.
    pub async fn call<T>(
        &self,
        host: &Host,
        what: &str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        host.unpaused().await;
        let count = self.commands.get() + 1;
        self.commands.set(count);
        if self.goes_on() {
            (self.progress)(Progress::Commands(count));
        }
        if count >= self.config.commands {
            self.is_worked.send_replace(true);
        }
        let result = call.await;
        let told = match &result {
            Ok(_) => "ok",
            Err(error) => error.code(),
        };
        self.note(&host.name, format_args!("{what}: {told}"));
        host.sample(&self.samples);
        self.samples.call(what, &result);
        self.audit();
        result
    }

    /// A command under an id of the caller's, repeated with that id until it is known what became of
    /// it, as far as that can be. What is told is held against the journal.
    pub async fn command<T, F: Future<Output = Result<T>>>(
        &self,
        host: &Host,
        what: &str,
        command: impl Fn(CommandId) -> F,
    ) -> Result<T> {
        let id = self.new_id();
        self.promises.borrow_mut().sent(id, what);
        let mut tries = 0;
        loop {
            tries += 1;
            let result = self.call(host, what, command(id)).await;
            let told = match &result {
                Ok(_) => Told::Done,
                Err(Error::OutcomeUnknown { .. } | Error::InFlight { .. }) => Told::Unknown,
                Err(_) if self.promises.borrow().of(id).is_some_and(|of| of.0 == Told::Unknown) => {
                    // Of the first try nothing is known by it.
                    Told::Unknown
                }
                Err(_) => Told::NotDone,
            };
            if tries > 1 && told == Told::Done {
                self.samples.settled();
            }
            self.promises.borrow_mut().told(id, told);
            self.check_promise(id, told, what);
            if told == Told::Done && self.chance(|chance| chance.per_mille(REPEATED)) {
                // As a caller does who has not heard the answer.
                let _ = self.call(host, &format!("{what}, again"), command(id)).await;
            }
            let again = told == Told::Unknown
                && matches!(&result, Err(error) if error.class() != ErrorClass::Refused);
            if !again || tries == TRIES {
                return result;
            }
            self.rest(50, 500).await;
        }
    }

    /// What is told is so.
    fn check_promise(&self, id: CommandId, told: Told, what: &str) {
        let is_durable = self.audit.borrow().has(id)
            || self.journal.tamper(|tables| tables.commands.contains_key(&id));
        match told {
            Told::Done => self.hold("acknowledged is durable", is_durable, || {
                format!("{what} was acknowledged and is not in the journal")
            }),
            Told::NotDone => self.hold("refused has no effect", !is_durable, || {
                format!("{what} was refused and is in the journal")
            }),
            Told::Unknown | Told::Nothing => {}
        }
    }

    fn new_id(&self) -> Uuid {
        let millis = u64::try_from(self.clock.wall().as_millis()).unwrap();
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.draw().to_be_bytes());
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }

    /// Judges what was written since the last time.
    pub fn audit(&self) {
        self.audit.clone().borrow_mut().judge(self);
    }
}
