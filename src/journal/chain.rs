//! The hash chain of a stream: finds changed, missing and swapped events and a cut tail.
//!
//! It is no defence against somebody who computes the chain anew.

use uuid::Uuid;

use crate::base::planted::{PlantedBug, is_planted};
use crate::base::{Digest, Timestamp};

/// The hash of a stream up to one of its events.
pub type ChainHash = Digest;

/// What an event's hash covers besides the hash before it.
#[derive(Clone, Copy, Debug)]
pub struct EventHashInput<'a> {
    /// The place in the stream.
    pub version: i64,
    /// The variant's number.
    pub event_type: u16,
    /// The variant's schema.
    pub schema: u16,
    /// The command that wrote it.
    pub command_id: Uuid,
    /// When it was written.
    pub recorded_at: Timestamp,
    /// The encoded data.
    pub payload: &'a [u8],
}

impl EventHashInput<'_> {
    /// The hash at this event. The fixed-width fields come first, so no two inputs share bytes.
    #[must_use]
    pub fn chain(&self, previous: &ChainHash) -> ChainHash {
        let Self { mut command_id, mut recorded_at, .. } = *self;
        if is_planted(PlantedBug::ChainSkipsCommand) {
            command_id = Uuid::nil();
        }
        if is_planted(PlantedBug::ChainSkipsTime) {
            recorded_at = Timestamp::default();
        }
        Digest::of_parts(&[
            previous.as_bytes(),
            &self.version.to_be_bytes(),
            &self.event_type.to_be_bytes(),
            &self.schema.to_be_bytes(),
            command_id.as_bytes(),
            &recorded_at.as_millis().to_be_bytes(),
            self.payload,
        ])
    }
}

/// The hash that a stream starts from, and starts anew from with an event that stands for erased
/// history.
#[must_use]
pub fn start_hash(stream: &str) -> ChainHash {
    Digest::of(stream.as_bytes())
}

/// What proves a snapshot whole.
#[must_use]
pub fn snapshot_checksum(
    stream: &str,
    version: i64,
    schema: u16,
    payload: &[u8],
    hash: &ChainHash,
) -> Digest {
    Digest::of_parts(&[
        Digest::of(stream.as_bytes()).as_bytes(),
        &version.to_be_bytes(),
        &schema.to_be_bytes(),
        hash.as_bytes(),
        payload,
    ])
}
