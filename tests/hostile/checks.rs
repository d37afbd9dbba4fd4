//! What must hold for any bytes whatever: each decoder answers with a typed error or with a value that
//! encodes back, and nothing that is done with such a value panics.
//!
//! The fuzz targets and the plain test run the same checks. It knows no corpus.

// Each fuzz target uses one of them.
#![allow(dead_code)]
// A check that does not hold should stop.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use connector_store::base::{
    ConnectorName, Digest, DocumentId, Error, OwnerDid, RecordFault, Result, StorageFault,
    StreamKey, StreamKind,
};
use connector_store::domain::auth::PendingAuth;
use connector_store::domain::connector::Connector;
use connector_store::domain::document::Document;
use connector_store::domain::{Aggregate, StoredEvent};
use connector_store::journal::{
    decode_event, decode_snapshot, decode_value, encode_event, encode_snapshot, encode_value,
};
use connector_store::records::{
    DidKey, Hlc, HlcClock, OBSERVATION_TYPE, RecordKey, RecordLimits, SignedRecord, SigningKey,
    VerifiedRecord, parse, verify,
};
use serde_json::Value;

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

/// The stamp that a record of these checks has.
pub const STAMP: &str = "001767225600000-00000000-node-a";
/// The value that it has.
pub const PAYLOAD: &[u8] = b"value";

/// The key that signs it.
pub fn signing_key() -> SigningKey {
    SigningKey::ed25519_from_seed([7; 32])
}

/// The record of a token.
pub fn record_of(token: &str) -> SignedRecord {
    let owner = OwnerDid::try_from(&signing_key().did()).unwrap();
    SignedRecord {
        key: RecordKey::observation(&owner, &DocumentId::new("document-1").unwrap()),
        hlc: Hlc::parse(STAMP).unwrap(),
        op_jwt: token.into(),
        op_hash: Digest::of(token.as_bytes()),
        payload: Some(PAYLOAD.into()),
    }
}

/// The token of a header and a payload, signed.
pub fn token_of(header: &[u8], payload: &[u8]) -> String {
    let part = Base64UrlUnpadded::encode_string;
    let signed = format!("{}.{}", part(header), part(payload));
    let signature = part(&signing_key().sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

/// Reads and verifies a record. The default limits refuse a large one before anything else; a host
/// that raises them must be safe, too.
pub fn judge(record: &SignedRecord) -> Result<VerifiedRecord, RecordFault> {
    let limits = RecordLimits::default();
    let raised = RecordLimits { max_token_bytes: usize::MAX, max_payload_bytes: usize::MAX };
    let parsed = match parse(record, &limits) {
        Err(RecordFault::TooLarge { .. }) => {
            assert!(record.op_jwt.len() > limits.max_token_bytes);
            parse(record, &raised)?
        }
        other => other?,
    };
    let key = parsed.built_in_key().ok_or(RecordFault::UnknownKey)?;
    assert_eq!(
        format!("{:?}", DidKey::from_key(key.clone())),
        format!("DidKey({})", parsed.issuer())
    );
    let verified = verify(&parsed, key)?;
    assert_eq!(verified.check(record), Ok(()));
    Ok(verified)
}

/// A token, or a whole record in JSON or as it is stored.
pub fn token(input: &[u8]) {
    if let Ok(token) = std::str::from_utf8(input) {
        let _ = judge(&record_of(token));
    }
    if let Ok(record) = serde_json::from_slice::<SignedRecord>(input) {
        let text = serde_json::to_vec(&record).unwrap();
        assert!(serde_json::from_slice::<SignedRecord>(&text).unwrap() == record);
        let _ = judge(&record);
    }
    if let Ok(record) = decode_value::<SignedRecord>(input) {
        assert!(decode_value::<SignedRecord>(&encode_value(&record).unwrap()).unwrap() == record);
    }
}

/// Header and payload of a token that is signed, with a zero byte between them. What verifies is what
/// another reader of JSON reads.
pub fn claim(input: &[u8]) {
    let Some(middle) = input.iter().position(|byte| *byte == 0) else { return };
    let (header, payload) = (&input[..middle], &input[middle + 1..]);
    let record = record_of(&token_of(header, payload));
    let Ok(verified) = judge(&record) else { return };
    let header: Value = serde_json::from_slice(header).unwrap();
    assert_eq!((&header["typ"], &header["alg"]), (&"JWT".into(), &"EdDSA".into()));
    let payload: Value = serde_json::from_slice(payload).unwrap();
    assert_eq!(payload["iss"], *verified.issuer);
    assert_eq!(payload.get("exp"), None);
    let claim = &payload["claim"];
    assert_eq!(claim["key"]["type"], OBSERVATION_TYPE);
    assert_eq!(claim["hlc"], STAMP);
    assert_eq!(claim["meta"]["version"], verified.version.as_str());
    assert_eq!(claim["payload"], Digest::of(PAYLOAD).to_hex());
    let canonical = serde_json_canonicalizer::to_vec(claim).unwrap();
    assert_eq!(verified.claim_digest, Digest::of(&canonical));
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
