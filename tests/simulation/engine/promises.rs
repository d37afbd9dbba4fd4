//! What callers were told of the commands that they sent under ids of their own. It knows no command.

use std::collections::BTreeMap;

use connector_store::CommandId;

/// What the caller knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing: it waits, or its process is gone.
    Nothing,
    /// It is done.
    Done,
    /// It is not, and will not be.
    NotDone,
    /// It may be.
    Unknown,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Promises {
    told: BTreeMap<CommandId, (Told, String)>,
}

impl Promises {
    pub fn sent(&mut self, id: CommandId, what: &str) {
        self.told.insert(id, (Told::Nothing, what.to_owned()));
    }

    pub fn told(&mut self, id: CommandId, told: Told) {
        if let Some(entry) = self.told.get_mut(&id) {
            entry.0 = told;
        }
    }

    /// What was told of a command, and what it was.
    pub fn of(&self, id: CommandId) -> Option<(Told, &str)> {
        self.told.get(&id).map(|(told, what)| (*told, what.as_str()))
    }

    pub fn done(&self) -> impl Iterator<Item = (CommandId, &str)> {
        let done = self.told.iter().filter(|(_, (told, _))| *told == Told::Done);
        done.map(|(id, (_, what))| (*id, what.as_str()))
    }
}
