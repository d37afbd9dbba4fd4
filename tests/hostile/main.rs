//! Whatever bytes a decoder is given, it answers with a typed error or with a value that encodes back, and
//! takes no more memory than their length allows. The fuzz targets of `tests/fuzz` run the same checks on
//! what they think of; what they find becomes a case here.

// A test that cannot go on should stop.
#![allow(clippy::unwrap_used)]

mod cases;
mod checks;
mod memory;

use std::collections::BTreeMap;
use std::path::PathBuf;

use connector_store::base::{Json, RecordFault};
use connector_store::journal::{decode_value, encode_value};
use connector_store::records::{RecordLimits, parse};
use memory::most_held;

/// What a check may hold, whatever its input: a list may reserve room for one mebibyte before its
/// first item is read.
const BASE_BYTES: usize = (1 << 20) + (64 << 10);
/// What it may hold for each byte of its input: a JSON value of one sign takes a node of a tree while it
/// is looked at, and a list that grows is there twice.
const BYTES_PER_BYTE: usize = 64;

/// Runs a check, and holds it to its memory.
fn run(check: fn(&[u8]), input: &[u8]) {
    let held = most_held(|| check(input));
    let most = BASE_BYTES + BYTES_PER_BYTE * input.len();
    let start = &input[..input.len().min(100)];
    assert!(held <= most, "{held} bytes held for {} bytes: {start:02x?}", input.len());
}

#[test]
fn every_changed_event_is_read_or_refused() {
    let (events, _) = cases::goldens();
    assert!(events.len() > 50, "only {} events", events.len());
    for event in events {
        run(checks::event, &event);
        let inputs = cases::changed(&event).chain(cases::with_lengths(&event));
        inputs.for_each(|input| run(checks::event, &input));
    }
}

#[test]
fn every_changed_snapshot_is_read_or_refused() {
    let (_, snapshots) = cases::goldens();
    assert!(snapshots.len() > 10, "only {} snapshots", snapshots.len());
    for snapshot in snapshots {
        run(checks::snapshot, &snapshot);
        let inputs = cases::changed(&snapshot).chain(cases::with_lengths(&snapshot));
        inputs.for_each(|input| run(checks::snapshot, &input));
    }
}

#[test]
fn a_declared_length_takes_no_memory_wherever_it_stands() {
    fn refuse<T: serde::de::DeserializeOwned>(bytes: &[u8], what: &str) {
        let held = most_held(|| assert!(decode_value::<T>(bytes).is_err(), "{what} of {bytes:?}"));
        assert!(held < BASE_BYTES, "{held} bytes held for {what} of {bytes:?}");
    }
    for length in cases::LENGTHS.map(cases::length) {
        for outer in [Vec::new(), vec![3], vec![3, 3]] {
            let nested = [&[1], outer.as_slice(), &length].concat();
            for bytes in [nested.clone(), [nested.as_slice(), &[1; 20]].concat()] {
                match outer.len() {
                    0 => {
                        refuse::<Vec<u64>>(&bytes, "numbers");
                        refuse::<Vec<[u64; 16]>>(&bytes, "arrays");
                        refuse::<String>(&bytes, "text");
                        refuse::<Json>(&bytes, "JSON");
                        refuse::<BTreeMap<u64, u64>>(&bytes, "map");
                    }
                    1 => refuse::<Vec<String>>(&bytes, "texts"),
                    _ => refuse::<Vec<Vec<Vec<u64>>>>(&bytes, "lists of lists"),
                }
            }
        }
    }
}

/// Deep, wide and long: read, and dropped again.
#[test]
fn json_of_any_shape_is_read_or_refused() {
    for text in cases::json(1_000_000) {
        let start: String = text.chars().take(50).collect();
        let held = most_held(|| match Json::parse("fields", &text) {
            Ok(json) => assert_eq!(json.as_str(), text),
            Err(error) => assert!(error.to_string().starts_with("fields: "), "{start}: {error}"),
        });
        assert!(held <= BASE_BYTES + BYTES_PER_BYTE * text.len(), "{held} bytes held: {start}");
    }
}

/// Also in a token, where a host raised the limits: the text is then read to its end, or its depth.
#[test]
fn json_of_any_shape_is_an_event_or_a_claim_or_refused() {
    for text in cases::json(20_000) {
        run(checks::event, &cases::trim(&text));
        let meta = cases::payload(&format!("\"a\":{text},"));
        for (header, payload) in [(cases::HEADER, &meta), (cases::HEADER, &text), (&text, &meta)] {
            run(checks::claim, &cases::claim(header, payload));
        }
    }
}

#[test]
fn no_other_text_is_a_did() {
    for text in cases::dids() {
        run(checks::did, &text);
        assert!(text.len() < 1_000 || most_held(|| checks::did(&text)) < 1_000);
    }
}

#[test]
fn no_other_text_is_a_stamp() {
    cases::hlcs().iter().for_each(|text| run(checks::hlc, text));
}

#[test]
fn no_other_spelling_of_a_token_is_taken() {
    let good = checks::token_of(cases::HEADER.as_bytes(), cases::payload("").as_bytes());
    checks::judge(&checks::record_of(&good)).unwrap();
    for token in cases::tokens() {
        let start: String = token.chars().take(200).collect();
        let judged = checks::judge(&checks::record_of(&token));
        assert!(judged.is_err(), "{start}");
        run(checks::token, token.as_bytes());
    }
    for input in cases::changed(good.as_bytes()) {
        if let Ok(token) = std::str::from_utf8(&input) {
            assert!(checks::judge(&checks::record_of(token)).is_err(), "{token}");
        }
    }
}

#[test]
fn a_large_token_is_refused_before_it_is_read() {
    for token in cases::tokens().iter().filter(|token| token.len() > 64 << 10) {
        let record = checks::record_of(token);
        let held = most_held(|| {
            let refused = parse(&record, &RecordLimits::default()).unwrap_err();
            assert!(matches!(refused, RecordFault::TooLarge { what: "token", .. }), "{refused}");
        });
        assert!(held < 1_000, "{held} bytes held");
    }
}

#[test]
fn no_trick_of_a_header_or_a_claim_is_taken() {
    for (header, payload) in cases::claims() {
        let token = checks::token_of(header.as_bytes(), payload.as_bytes());
        let judged = checks::judge(&checks::record_of(&token));
        assert!(judged.is_err(), "{header} {payload}");
        run(checks::claim, &cases::claim(&header, &payload));
    }
    let good = cases::claim(cases::HEADER, &cases::payload(r#""a":[1,"\ud83d\ude00"],"#));
    run(checks::claim, &good);
    cases::changed(&good).for_each(|input| run(checks::claim, &input));
}

#[test]
#[ignore = "writes the seeds of the fuzz targets"]
fn seeds() {
    let (events, snapshots) = cases::goldens();
    let good = (cases::HEADER.to_owned(), cases::payload(""));
    let token = checks::token_of(good.0.as_bytes(), good.1.as_bytes());
    let record = checks::record_of(&token);
    let mut tokens: Vec<_> = cases::tokens().into_iter().map(String::into_bytes).collect();
    tokens.extend([token.into_bytes(), serde_json::to_vec(&record).unwrap()]);
    tokens.push(encode_value(&record).unwrap());
    let pairs = cases::claims().into_iter().chain([good]);
    let claims = pairs.map(|(header, payload)| cases::claim(&header, &payload)).collect();
    for (target, inputs) in [
        ("claim", claims),
        ("did", cases::dids()),
        ("event", events),
        ("hlc", cases::hlcs()),
        ("snapshot", snapshots),
        ("token", tokens),
    ] {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let folder = root.join("tests/fuzz/corpus").join(target);
        std::fs::create_dir_all(&folder).unwrap();
        let small = inputs.iter().filter(|input| input.len() < 4_096);
        for (index, input) in small.enumerate() {
            std::fs::write(folder.join(format!("seed-{index}")), input).unwrap();
        }
    }
}
