//! The bytes of every event and snapshot that was ever released are read, and written the same.
//!
//! `tests/golden/<kind>.txt` holds a line for each: what it is, its name, type number, schema
//! number, bytes in hex. A line stays for ever once it was released: an old schema is read by an
//! upcaster. To add a variant, add it to its kind's list below and run the test once with
//! `UPDATE_GOLDEN=1`, which writes the lines of the lists and leaves all others as they are.

// A test that cannot go on should stop.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use connector_store::base::{
    ConnectorName, Digest, Error, Json, OwnerDid, Result, StreamKind, Timestamp,
};
use connector_store::domain::auth::{
    Pending, PendingAuth, PendingAuthConsumed, PendingAuthCreated, PendingAuthEvent,
};
use connector_store::domain::connector::Connector;
use connector_store::domain::document::Document;
use connector_store::domain::{Aggregate, ContentRef, StoredEvent};
use connector_store::journal::{decode_event, decode_snapshot, encode_event, encode_snapshot};

#[path = "golden/connector.rs"]
mod connector_samples;
#[path = "golden/document.rs"]
mod document_samples;

/// A kind of stream: its file, what is written today, and how it is read.
struct Kind {
    file: &'static str,
    kind: StreamKind,
    samples: fn() -> Vec<Sample>,
    read: fn(&Sample) -> Result<Vec<u8>>,
}

const KINDS: &[Kind] = &[
    Kind {
        file: "document.txt",
        kind: StreamKind::Document,
        samples: document_samples::samples,
        read: read::<Document>,
    },
    Kind {
        file: "connector.txt",
        kind: StreamKind::Connector,
        samples: connector_samples::samples,
        read: read::<Connector>,
    },
    Kind { file: "auth.txt", kind: StreamKind::Auth, samples: auth, read: read::<PendingAuth> },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Event,
    Snapshot,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Sample {
    what: What,
    name: String,
    /// The event's type; 0 for a snapshot.
    number: u16,
    schema: u16,
    bytes: Vec<u8>,
}

fn event<E: StoredEvent>(name: &str, event: E) -> Sample {
    let (number, schema) = (event.event_type(), event.schema());
    let bytes = encode_event(&event).unwrap();
    Sample { what: What::Event, name: name.to_owned(), number, schema, bytes }
}

fn snapshot<A: Aggregate>(name: &str, state: &A) -> Sample {
    let (schema, bytes) = (A::SNAPSHOT_SCHEMA, encode_snapshot(state).unwrap());
    Sample { what: What::Snapshot, name: name.to_owned(), number: 0, schema, bytes }
}

/// Reads a sample, and gives what is written today for the value that was read.
fn read<A: Aggregate>(sample: &Sample) -> Result<Vec<u8>> {
    match sample.what {
        What::Event => {
            encode_event(&decode_event::<A::Event>(sample.number, sample.schema, &sample.bytes)?)
        }
        What::Snapshot => encode_snapshot(&decode_snapshot::<A>(sample.schema, &sample.bytes)?),
    }
}

fn owner() -> OwnerDid {
    OwnerDid::new("did:key:zOwner").unwrap()
}

fn connector() -> ConnectorName {
    ConnectorName::new("caldav").unwrap()
}

fn trimmed_fields() -> Json {
    Json::parse("trimmed_fields", r#"["body",9007199254740993]"#).unwrap()
}

const fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn auth() -> Vec<Sample> {
    let row = ContentRef { digest: Digest::of(b"row"), bytes: 300 };
    let created = PendingAuthCreated {
        provider: "example".to_owned(),
        owner: owner(),
        created_at: at(1_767_225_600_000),
        expires_at: at(1_767_226_200_000),
        row,
    };
    let pending = Pending {
        provider: "example".to_owned(),
        owner: owner(),
        created_at: at(0),
        expires_at: at(i64::MAX),
        row,
    };
    let consumed = PendingAuthConsumed { at: at(1_767_225_600_001) };
    vec![
        event("pending_auth_created", PendingAuthEvent::PendingAuthCreated(created)),
        event("pending_auth_consumed", PendingAuthEvent::PendingAuthConsumed(consumed)),
        event("pending_auth_expired", PendingAuthEvent::PendingAuthExpired),
        snapshot("absent", &PendingAuth::Absent),
        snapshot("pending", &PendingAuth::Pending(pending)),
        snapshot("consumed", &PendingAuth::Consumed { at: at(7) }),
        snapshot("expired", &PendingAuth::Expired),
    ]
}

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file)
}

/// What tells two lines apart.
type Key = (What, u16, u16, String);

fn key(sample: &Sample) -> Key {
    (sample.what, sample.number, sample.schema, sample.name.clone())
}

fn to_line(sample: &Sample) -> String {
    let what = match sample.what {
        What::Event => "event",
        What::Snapshot => "snapshot",
    };
    let mut line = format!("{what} {} {} {} ", sample.name, sample.number, sample.schema);
    for byte in &sample.bytes {
        write!(line, "{byte:02x}").unwrap();
    }
    line
}

fn from_line(line: &str) -> Sample {
    let parts: Vec<&str> = line.split(' ').collect();
    let [what, name, number, schema, hex] = parts[..] else { panic!("five words: {line}") };
    let what = match what {
        "event" => What::Event,
        "snapshot" => What::Snapshot,
        _ => panic!("event or snapshot: {line}"),
    };
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    Sample {
        what,
        name: name.to_owned(),
        number: number.parse().unwrap(),
        schema: schema.parse().unwrap(),
        bytes: (0..hex.len()).step_by(2).map(byte).collect(),
    }
}

/// The lines of a kind's file; with `UPDATE_GOLDEN=1` those of today's samples are written first.
fn golden(kind: &Kind) -> BTreeMap<Key, Sample> {
    let text = std::fs::read_to_string(path(kind.file)).unwrap_or_default();
    let mut lines: BTreeMap<Key, Sample> =
        text.lines().map(from_line).map(|sample| (key(&sample), sample)).collect();
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        lines.extend((kind.samples)().into_iter().map(|sample| (key(&sample), sample)));
        let text: String = lines.values().map(|sample| to_line(sample) + "\n").collect();
        std::fs::write(path(kind.file), text).unwrap();
    }
    lines
}

#[test]
fn what_is_written_today_is_what_the_golden_files_hold() {
    for kind in KINDS {
        let golden = golden(kind);
        for sample in (kind.samples)() {
            let Some(line) = golden.get(&key(&sample)) else {
                panic!(
                    "tests/golden/{} has no line for {:?}; if it is new, write it with \
                     `UPDATE_GOLDEN=1 cargo test --test golden`",
                    kind.file,
                    key(&sample)
                );
            };
            assert_eq!(
                to_line(line),
                to_line(&sample),
                "the encoding changed: stored events could no longer be read. Give the variant a \
                 new schema number, and read the old one with an upcaster"
            );
        }
    }
}

#[test]
fn everything_that_was_ever_written_is_read() {
    for kind in KINDS {
        let today: BTreeSet<Key> = (kind.samples)().iter().map(key).collect();
        for (key, sample) in golden(kind) {
            let written = (kind.read)(&sample);
            assert!(written.is_ok(), "{} {key:?}: {written:?}", kind.file);
            if today.contains(&key) {
                assert_eq!(written.unwrap(), sample.bytes, "{} {key:?}", kind.file);
            }
        }
    }
}

/// A type or schema that the program reads has a line, so a new variant cannot be left out; every
/// other is refused by its name.
#[test]
fn every_type_is_in_the_golden_files_and_every_other_is_unknown() {
    for kind in KINDS {
        let golden = golden(kind);
        for what in [What::Event, What::Snapshot] {
            let numbers = if what == What::Event { 0..=300 } else { 0..=0 };
            for (number, schema) in
                numbers.flat_map(|n| [(n, 0), (n, 1), (n, 2), (n, 3), (n, u16::MAX)])
            {
                let sample =
                    Sample { what, name: String::new(), number, schema, bytes: Vec::new() };
                let is_golden =
                    golden.keys().any(|(w, n, s, _)| (*w, *n, *s) == (what, number, schema));
                match (kind.read)(&sample) {
                    Err(Error::UnknownSchema { what: named, kind: k, number: n, schema: s }) => {
                        assert!(!is_golden, "{} {sample:?} is no longer read", kind.file);
                        assert_eq!((k, n, s), (kind.kind.number(), number, schema));
                        assert_eq!(named == "event", what == What::Event);
                    }
                    _ => assert!(is_golden, "{} has no line for {sample:?}", kind.file),
                }
            }
        }
    }
}

#[test]
fn cut_lengthened_or_changed_bytes_are_read_or_refused_and_never_panic() {
    for kind in KINDS {
        for (key, sample) in golden(kind) {
            let with = |bytes: Vec<u8>| (kind.read)(&Sample { bytes, ..sample.clone() });
            for length in 0..sample.bytes.len() {
                let cut = with(sample.bytes[..length].to_vec());
                assert!(cut.is_err(), "{} {key:?} cut to {length}", kind.file);
            }
            for more in [0, 1, 0xff] {
                let longer = with([sample.bytes.as_slice(), &[more]].concat());
                assert!(longer.is_err(), "{} {key:?} and {more}", kind.file);
            }
            for at in 0..sample.bytes.len() {
                for bit in 0..8 {
                    let mut bytes = sample.bytes.clone();
                    bytes[at] ^= 1 << bit;
                    let changed = with(bytes);
                    assert!(at > 0 || changed.is_err(), "{} {key:?}: another format", kind.file);
                }
                // A length of 2^63 in place of whatever was there: an integer may read so.
                let hostile = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0x80];
                let _ = with([&sample.bytes[..at], hostile.as_slice()].concat());
            }
        }
    }
}
