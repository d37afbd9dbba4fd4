//! The rules of a record that is exchanged.

use serde_json::{Value, json};

use crate::base::{DocumentId, OwnerDid};
use crate::records::{Hlc, RecordSigner, SignedRecord, SigningKey};

fn record(payload: Option<&[u8]>) -> SignedRecord {
    let signer = RecordSigner::did_key(SigningKey::ed25519_from_seed([7; 32]));
    let owner = OwnerDid::new(signer.issuer()).unwrap();
    let document = DocumentId::new("doc-\u{e4}").unwrap();
    let stamp = Hlc::parse("001767225600000-00000000-node-a").unwrap();
    signer.sign(&owner, &document, &stamp, &stamp, payload).unwrap()
}

#[test]
fn a_record_is_written_in_json_with_hex_and_base64url() {
    let record = record(Some(&[0xfb, 0xff]));
    let expected = json!({
        "type": "connector.observation",
        "owner": record.key.owner.as_str(),
        "id": "doc-\u{e4}",
        "hlc": "001767225600000-00000000-node-a",
        "op_jwt": &*record.op_jwt,
        "op_hash": record.op_hash.to_hex(),
        "payload": "-_8",
    });
    assert_eq!(serde_json::to_value(&record).unwrap(), expected);
    let text = serde_json::to_string(&record).unwrap();
    assert!(text.starts_with(r#"{"type":"connector.observation","owner":"#), "{text}");
}

#[test]
fn a_record_comes_back_from_text_and_from_bytes() {
    for payload in [None, Some(&b""[..]), Some(b"value")] {
        let record = record(payload);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<SignedRecord>(&text).unwrap(), record);
        let value = serde_json::to_value(&record).unwrap();
        assert_eq!(serde_json::from_value::<SignedRecord>(value).unwrap(), record);
        let config = bincode::config::standard();
        let bytes = bincode::serde::encode_to_vec(&record, config).unwrap();
        let (read, length) =
            bincode::serde::decode_from_slice::<SignedRecord, _>(&bytes, config).unwrap();
        assert_eq!((read, length), (record, bytes.len()));
    }
}

#[test]
fn a_record_in_another_form_is_refused() {
    let good = serde_json::to_value(record(Some(b"value"))).unwrap();
    let is_refused = |value: &Value| serde_json::from_value::<SignedRecord>(value.clone()).is_err();
    assert!(!is_refused(&good));
    for field in ["type", "owner", "id", "hlc", "op_jwt", "op_hash", "payload"] {
        let mut value = good.clone();
        value.as_object_mut().unwrap().remove(field);
        assert!(is_refused(&value), "without {field}");
        value[field] = json!(1);
        assert!(is_refused(&value), "with a number as {field}");
    }
    let hash = good["op_hash"].as_str().unwrap();
    for (field, bad) in [
        ("more", json!(1)),
        ("owner", json!("alice")),
        ("id", json!("")),
        ("hlc", json!("1767225600000-0-a")),
        ("op_hash", json!(hash.to_uppercase())),
        ("op_hash", json!(&hash[..63])),
        ("op_hash", json!(format!(" {hash}"))),
        ("payload", json!("dmFsdWU=")),
        ("payload", json!("dmFsdWV")),
        ("payload", json!("+/8")),
        ("payload", json!([1])),
    ] {
        let mut value = good.clone();
        value[field] = bad.clone();
        assert!(is_refused(&value), "{field}: {bad}");
    }
    let text = good.to_string();
    let twice = text.replacen('{', r#"{"id":"doc-2","#, 1);
    assert!(serde_json::from_str::<SignedRecord>(&twice).is_err());
}
