//! What must hold for any bytes whatever: each decoder answers with a typed error or with a value that
//! encodes back, and nothing that is done with such a value panics.
//!
//! The fuzz targets and the plain test run the same checks. It knows no corpus.

// Each fuzz target uses one of them.
#![allow(dead_code)]
// A check that does not hold should stop.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use connector_store::base::{
    ConnectorName, Digest, DocumentId, Error, OwnerDid, Result, StorageFault, StreamKey, StreamKind,
};
use connector_store::domain::auth::PendingAuth;
use connector_store::domain::connector::Connector;
use connector_store::domain::document::Document;
use connector_store::domain::{Aggregate, StoredEvent};
use connector_store::journal::{
    decode_event, decode_snapshot, decode_value, encode_event, encode_snapshot, encode_value,
};
use connector_store::records::{DidKey, Hlc, HlcClock};

/// A text as a DID.
pub fn did(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match DidKey::parse(text) {
        Ok(did) => {
            assert_eq!(did.as_str(), text);
            assert_eq!(DidKey::from_key(did.key().clone()), did);
            assert_eq!(OwnerDid::try_from(&did).unwrap().as_str(), text);
            assert_eq!(decode_value::<DidKey>(&encode_value(&did).unwrap()).unwrap(), did);
        }
        Err(Error::InvalidInput { field, .. }) => assert!(["did", "public_key"].contains(&field)),
        Err(other) => panic!("{other:?}"),
    }
}

/// One or two lines as stamps.
pub fn hlc(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (first, second) = text.split_once('\n').unwrap_or((text, ""));
    for text in [first, second] {
        let read = decode_value::<Hlc>(&encode_value(&text).unwrap());
        assert_eq!(read.ok(), Hlc::parse(text));
    }
    let Some(a) = Hlc::parse(first) else { return };
    assert_eq!(a.as_str(), first);
    for wall_ms in [i64::MIN, 0, a.wall_ms(), i64::MAX] {
        let mut clock = HlcClock::new(a.node(), Duration::from_secs(60)).unwrap();
        match clock.observe(&a, wall_ms) {
            Ok(()) => clock.now(wall_ms).map_or_else(is_input_error, |next| assert!(next > a)),
            Err(Error::HlcDrift { ahead_ms, max_drift_ms }) => assert!(ahead_ms > max_drift_ms),
            Err(other) => is_input_error(other),
        }
    }
    if let Some(b) = Hlc::parse(second) {
        assert_eq!(a.cmp(&b), first.cmp(second));
    }
}

fn is_input_error(error: Error) {
    assert!(matches!(error, Error::InvalidInput { field: "wall_ms", .. }), "{error:?}");
}

/// Kind of stream, type number, schema number, payload as an event.
pub fn event(input: &[u8]) {
    let Some(([kind, number, schema], payload)) = input.split_first_chunk() else { return };
    let (number, schema) = (u16::from(*number), u16::from(*schema));
    match kind % 3 {
        0 => event_of::<Document>(number, schema, payload),
        1 => event_of::<Connector>(number, schema, payload),
        _ => event_of::<PendingAuth>(number, schema, payload),
    }
}

/// Kind of stream and payload as a snapshot.
pub fn snapshot(input: &[u8]) {
    let Some((kind, payload)) = input.split_first() else { return };
    match kind % 3 {
        0 => snapshot_of::<Document>(payload),
        1 => snapshot_of::<Connector>(payload),
        _ => snapshot_of::<PendingAuth>(payload),
    }
}

fn event_of<A: Aggregate>(number: u16, schema: u16, payload: &[u8]) {
    let Some(event) = taken(decode_event::<A::Event>(number, schema, payload)) else { return };
    assert_eq!(event.event_type(), number);
    let written = encode_event(&event).unwrap();
    let again: A::Event = decode_event(number, event.schema(), &written).unwrap();
    assert_eq!(encode_event(&again).unwrap(), written);
    let (mut state, key) = (A::default(), key_of(A::KIND));
    state.apply(&event);
    let mut rows = Vec::new();
    A::touched(&key, &event, &mut rows);
    for row in &rows {
        let _ = (state.row(&key, row), state.content(&key, row));
    }
    use_state(&state);
}

fn snapshot_of<A: Aggregate>(payload: &[u8]) {
    let read = decode_snapshot::<A>(A::SNAPSHOT_SCHEMA, payload);
    if let Some(state) = taken(read) {
        use_state(&state);
    }
}

/// What loading, verifying and rebuilding do with a state.
fn use_state<A: Aggregate>(state: &A) {
    let key = &key_of(A::KIND);
    let written = encode_snapshot(state).unwrap();
    let again: A = decode_snapshot(A::SNAPSHOT_SCHEMA, &written).unwrap();
    assert_eq!(encode_snapshot(&again).unwrap(), written);
    let _ = state.resident(key);
    for row in state.rows(key) {
        assert!(state.row(key, &row).is_some(), "{row:?} is named and not there");
        let _ = state.content(key, &row);
    }
}

/// The value; none for an error that says why it is none.
fn taken<T>(read: Result<T>) -> Option<T> {
    match read {
        Ok(value) => Some(value),
        Err(Error::Storage { fault: StorageFault::Damaged, .. } | Error::UnknownSchema { .. }) => {
            None
        }
        Err(other) => panic!("{other:?}"),
    }
}

fn key_of(kind: StreamKind) -> StreamKey {
    match kind {
        StreamKind::Document => StreamKey::Document(DocumentId::new("d").unwrap()),
        StreamKind::Connector => StreamKey::Connector(
            OwnerDid::new("did:key:zOwner").unwrap(),
            ConnectorName::new("caldav").unwrap(),
        ),
        StreamKind::Auth => StreamKey::Auth(Digest::of(b"state")),
    }
}
