//! The network between the hosts: it loses, doubles and reorders. It knows nothing of what a record
//! says, and nobody who receives one has a reason to believe it.

use connector_store::records::SignedRecord;

use crate::chance::Chance;

/// So many of a hundred messages that are not lost arrive twice.
const DOUBLED_PERCENT: u8 = 10;

/// One copy on its way.
#[derive(Clone, Debug)]
pub struct Message {
    /// The number of the host that it goes to.
    pub to: usize,
    pub record: SignedRecord,
}

/// What is under way.
#[derive(Debug)]
pub struct Network {
    loss: u8,
    under_way: Vec<Message>,
    pub sent: u64,
    pub lost: u64,
    pub doubled: u64,
}

impl Network {
    /// A network that loses so many of a hundred messages.
    pub const fn new(loss: u8) -> Self {
        Self { loss, under_way: Vec::new(), sent: 0, lost: 0, doubled: 0 }
    }

    /// Sends a message. The sender does not learn what becomes of it.
    pub fn send(&mut self, message: Message, chance: &mut Chance) {
        self.sent += 1;
        if chance.percent(self.loss) {
            self.lost += 1;
            return;
        }
        if chance.percent(DOUBLED_PERCENT) {
            self.doubled += 1;
            self.under_way.push(message.clone());
        }
        self.under_way.push(message);
    }

    /// Any one of the messages that are under way: the order in which they were sent counts for
    /// nothing.
    pub fn deliver(&mut self, chance: &mut Chance) -> Option<Message> {
        let at = chance.below(self.under_way.len());
        (at < self.under_way.len()).then(|| self.under_way.swap_remove(at))
    }
}
