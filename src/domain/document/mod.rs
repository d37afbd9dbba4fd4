//! A document: its entity trim and its begun sweep.
//!
//! One stream, one actor. It knows nothing of other keys; a sweep that crosses keys is a unit of
//! work outside.

mod command;
mod decide;
mod event;
mod rows;
mod state;

pub use command::{DocumentCommand, DocumentReply};
pub use event::{DocumentEvent, DocumentSweepBegun, EntityTrimSet};
pub use state::{Document, EntityTrim, EntityTrimRecord};
