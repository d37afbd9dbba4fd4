//! The one place that names the encoding: bincode behind a format byte, with a size limit.
//!
//! A hostile or damaged length can't take memory, and bytes behind the value are refused. The
//! format byte lets another encoding take its place.

use bincode::BorrowDecode as _;
use bincode::config::standard;
use bincode::de::read::{Reader as _, SliceReader};
use bincode::de::{Decoder as _, DecoderImpl};
use bincode::serde::{BorrowCompat, encode_to_vec};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::{Error, Result, StreamKind};
use crate::domain::{Aggregate, PayloadDecoder, PayloadEncoder, StoredEvent};

/// The first byte of everything encoded: bincode 2, standard configuration.
const FORMAT_BINCODE_2: u8 = 1;
/// Largest event. A progress update holds one JSON value of at most a few MiB, a list of
/// candidates about 2 MiB.
const MAX_EVENT_BYTES: usize = 16 << 20;
/// Largest snapshot: a connector with a million candidates.
const MAX_SNAPSHOT_BYTES: usize = 1 << 30;
/// What decoding counts for one encoded byte at most: the eight bytes of the widest integer in use,
/// of which a small one is written as one.
const MAX_CLAIM_PER_BYTE: usize = 8;

fn encode<T: Serialize>(value: &T, max_bytes: usize, what: &'static str) -> Result<Vec<u8>> {
    let body = encode_to_vec(value, standard())
        .map_err(|error| Error::invalid(what, format!("expected an encodable value: {error}")))?;
    if body.len() > max_bytes {
        let reason = format!("expected at most {max_bytes} bytes encoded, got {}", body.len());
        return Err(Error::invalid(what, reason));
    }
    let mut bytes = Vec::with_capacity(body.len() + 1);
    bytes.push(FORMAT_BINCODE_2);
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

fn decode<T: DeserializeOwned>(bytes: &[u8], max_bytes: usize, what: &str) -> Result<T> {
    let (format, body) =
        bytes.split_first().ok_or_else(|| Error::damaged(format_args!("an empty {what}")))?;
    if *format != FORMAT_BINCODE_2 {
        return Err(Error::damaged(format_args!("{what} of unknown encoding {format}")));
    }
    if body.len() > max_bytes {
        return Err(Error::damaged(format_args!("a {what} of more than {max_bytes} bytes")));
    }
    // The library's limit is a constant. So all of it but what these bytes can need is claimed
    // before: a length that they declare takes no more memory than they could fill.
    let needed = body.len().saturating_mul(MAX_CLAIM_PER_BYTE);
    let config = standard().with_limit::<{ usize::MAX }>();
    let mut decoder = DecoderImpl::new(SliceReader::new(body), config, ());
    // The library's error may quote the bytes, so it is not passed on.
    let BorrowCompat(value) = decoder
        .claim_bytes_read(usize::MAX - needed)
        .and_then(|()| BorrowCompat::<T>::borrow_decode(&mut decoder))
        .map_err(|_| Error::damaged(format_args!("a {what} that can't be decoded")))?;
    if decoder.reader().peek_read(1).is_some() {
        return Err(Error::damaged(format_args!("a {what} with bytes behind its end")));
    }
    Ok(value)
}

struct EventEncoder;

impl PayloadEncoder for EventEncoder {
    fn encode<T: Serialize>(self, value: &T) -> Result<Vec<u8>> {
        encode(value, MAX_EVENT_BYTES, "event")
    }
}

struct EventDecoder<'a>(&'a [u8]);

impl PayloadDecoder for EventDecoder<'_> {
    fn decode<T: DeserializeOwned>(self) -> Result<T> {
        decode(self.0, MAX_EVENT_BYTES, "event")
    }
}

/// The bytes of an event.
///
/// # Errors
/// [`Error::InvalidInput`] when it is too large.
pub fn encode_event<E: StoredEvent>(event: &E) -> Result<Vec<u8>> {
    event.encode_with(EventEncoder)
}

/// The event of stored bytes.
///
/// # Errors
/// [`Error::UnknownSchema`] for a number this program does not know; damage otherwise.
pub fn decode_event<E: StoredEvent>(event_type: u16, schema: u16, payload: &[u8]) -> Result<E> {
    E::decode_with(event_type, schema, EventDecoder(payload))
}

/// The bytes of a state.
///
/// # Errors
/// [`Error::InvalidInput`] when it is too large.
pub fn encode_snapshot<A: Aggregate>(state: &A) -> Result<Vec<u8>> {
    encode(state, MAX_SNAPSHOT_BYTES, "snapshot")
}

/// The state of stored bytes.
///
/// # Errors
/// [`Error::UnknownSchema`] for a schema this program does not know; damage otherwise.
pub fn decode_snapshot<A: Aggregate>(schema: u16, payload: &[u8]) -> Result<A> {
    if schema != A::SNAPSHOT_SCHEMA {
        let kind: StreamKind = A::KIND;
        return Err(Error::UnknownSchema {
            what: "snapshot",
            kind: kind.number(),
            number: 0,
            schema,
        });
    }
    decode(payload, MAX_SNAPSHOT_BYTES, "snapshot")
}

/// The bytes of a command or an answer.
///
/// # Errors
/// [`Error::InvalidInput`] when it is too large.
pub fn encode_value<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    encode(value, MAX_EVENT_BYTES, "command")
}

/// The answer of stored bytes.
///
/// # Errors
/// Damage.
pub fn decode_value<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    decode(bytes, MAX_EVENT_BYTES, "answer")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A declared length that would take gigabytes is refused before anything is reserved.
    #[test]
    fn a_hostile_length_takes_no_memory() {
        for length in [1_u64 << 30, 1 << 34, 1 << 40, 1 << 62, u64::MAX] {
            let mut bytes = vec![FORMAT_BINCODE_2, 253];
            bytes.extend_from_slice(&length.to_le_bytes());
            assert!(decode_value::<Vec<u64>>(&bytes).is_err(), "{length}");
            assert!(decode_value::<String>(&bytes).is_err(), "{length}");
        }
    }

    /// Small integers are written shorter than they are counted when they are read.
    #[test]
    fn what_is_small_enough_to_be_written_is_small_enough_to_be_read() -> Result<()> {
        let numbers = vec![7_u64; MAX_EVENT_BYTES - 5];
        let bytes = encode_value(&numbers)?;
        assert_eq!(bytes.len(), MAX_EVENT_BYTES + 1);
        assert_eq!(decode_value::<Vec<u64>>(&bytes)?, numbers);
        Ok(())
    }

    #[test]
    fn bytes_are_read_to_the_last_and_no_further() -> Result<()> {
        let mut bytes = encode_value(&(7_u32, "x"))?;
        assert_eq!(decode_value::<(u32, String)>(&bytes)?, (7, "x".to_owned()));
        bytes.push(0);
        assert!(decode_value::<(u32, String)>(&bytes).is_err());
        assert!(decode_value::<(u32, String)>(&[]).is_err());
        assert!(decode_value::<u8>(&[9, 1]).is_err());
        Ok(())
    }
}
