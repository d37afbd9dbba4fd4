//! A pending authorization: created once, consumed at most once, or expired.
//!
//! One stream, one actor, named by the SHA-256 of the secret `state`. State and events hold no
//! secret: `state` and `code_verifier` are in the row alone and die with it. Because the row's
//! primary key is a secret too, no event can name it, and a decision gives the row's change itself.

mod adopt;
mod command;
mod decide;
mod event;
mod record;
mod state;

pub use adopt::adopt;
pub use command::{PendingAuthCommand, PendingAuthReply};
pub use event::{PendingAuthConsumed, PendingAuthCreated, PendingAuthEvent};
pub use record::{PendingAuthRecord, auth_key, record_to_row, row_to_record};
pub use state::{Pending, PendingAuth};
