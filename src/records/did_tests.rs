//! The rules of `did:key`.

use proptest::prelude::*;

use super::DidKey;
use crate::base::{Error, OwnerDid};
use crate::records::{PublicKey, SigningKey};

fn did_of(bytes: &[u8]) -> String {
    format!("did:key:z{}", bs58::encode(bytes).into_string())
}

fn ed25519_bytes() -> [u8; 32] {
    match SigningKey::ed25519_from_seed([7; 32]).public_key() {
        PublicKey::Ed25519(key) => key.to_bytes(),
        PublicKey::P256(_) => [0; 32],
    }
}

fn is_refused(text: &str) -> bool {
    matches!(DidKey::parse(text), Err(Error::InvalidInput { field: "did" | "public_key", .. }))
}

#[test]
fn a_did_leads_back_to_its_key() {
    let keys =
        [SigningKey::ed25519_from_seed([7; 32]), SigningKey::p256_from_scalar([7; 32]).unwrap()];
    for key in keys {
        let did = key.did();
        let parsed = DidKey::parse(did.as_str()).unwrap();
        assert_eq!((&parsed, parsed.key()), (&did, &key.public_key()));
        assert!(parsed.key().verifies(b"m", &key.sign(b"m")));
        assert_eq!(OwnerDid::try_from(&did).unwrap().as_str(), did.as_str());
        let json = serde_json::to_string(&did).unwrap();
        assert_eq!(serde_json::from_str::<DidKey>(&json).unwrap(), did);
    }
}

/// The examples of the method's specification.
#[test]
fn dids_of_other_makers_are_read() {
    let cases = [
        ("did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK", "Ed25519"),
        ("did:key:z6MkpTHR8VNsBxYAAWHut2Geadd9jSwuBV8xRoAnwWsdvktH", "Ed25519"),
        ("did:key:zDnaerx9CtbPJ1q36T5Ln5wYt3MQYeGRG5ehnPAmxcf5mDZpv", "P256"),
        ("did:key:zDnaerDaTF5BXEavCrfRZEk316dpbLsfPDZ3WJ5hRTPFU2169", "P256"),
    ];
    for (text, kind) in cases {
        let did = DidKey::parse(text).unwrap();
        assert_eq!(did.to_string(), text);
        assert!(format!("{:?}", did.key()).starts_with(kind), "{text}");
    }
}

#[test]
fn another_codec_or_length_is_refused() {
    let key = ed25519_bytes();
    let with = |codec: &[u8], key: &[u8]| did_of(&[codec, key].concat());
    assert!(!is_refused(&with(&[0xed, 0x01], &key)), "the good form");
    let cases = [
        ("X25519", with(&[0xec, 0x01], &key)),
        ("secp256k1", with(&[0xe7, 0x01], &[&[2], key.as_slice()].concat())),
        ("RSA", with(&[0x85, 0x24], &[0x30; 34])),
        ("Ed25519 of 31 bytes", with(&[0xed, 0x01], &key[..31])),
        ("Ed25519 of 33 bytes", with(&[0xed, 0x01], &[&key[..], &[0]].concat())),
        ("a varint that is not minimal", with(&[0xed, 0x81, 0x00], &key)),
        ("P-256 of 32 bytes", with(&[0x80, 0x24], &key)),
        ("P-256 not compressed", with(&[0x80, 0x24], &[4; 65])),
        ("P-256 that is no point", with(&[0x80, 0x24], &[0xff; 33])),
        ("Ed25519 of small order", with(&[0xed, 0x01], &[0; 32])),
        ("a codec alone", did_of(&[0xed, 0x01])),
        ("one byte", did_of(&[0xed])),
        ("nothing", did_of(&[])),
        ("a zero before the codec", with(&[0, 0xed, 0x01], &key)),
    ];
    for (what, text) in cases {
        assert!(is_refused(&text), "{what}: {text}");
    }
}

#[test]
fn another_spelling_is_refused() {
    let good = did_of(&[&[0xed, 0x01], ed25519_bytes().as_slice()].concat());
    let base58 = &good["did:key:z".len()..];
    let spellings = [
        String::new(),
        format!("did:key:{base58}"),
        format!("did:key:Z{base58}"),
        format!("did:key:m{base58}"),
        format!("DID:KEY:z{base58}"),
        format!("did:web:z{base58}"),
        format!("z{base58}"),
        format!(" {good}"),
        format!("{good} "),
        format!("{good}\n"),
        format!("{good}\0"),
        format!("did:key:z1{base58}"),
        format!("{good}#z{base58}"),
        format!("{good}?versionId=1"),
        format!("{good}/path"),
        format!("{good}ä"),
        "did:key:z".to_owned(),
    ];
    for text in spellings {
        assert!(is_refused(&text), "{text:?}");
    }
    for wrong in ['0', 'O', 'I', 'l'] {
        assert!(is_refused(&format!("did:key:z{wrong}{}", &base58[1..])), "{wrong}");
    }
}

/// Base58 takes time that grows with the square of the length, so length comes first.
#[test]
fn a_long_text_is_refused_by_its_length() {
    for length in [65, 10_000_000] {
        let text = format!("did:key:z{}", "6".repeat(length));
        let Err(Error::InvalidInput { field: "did", reason }) = DidKey::parse(&text) else {
            panic!("{length} characters were taken");
        };
        assert!(reason.contains("at most 64"), "{reason}");
    }
}

#[test]
fn the_issuers_of_the_vectors_are_read() {
    let text = include_str!("../../tests/vectors/signed-records.json");
    let vectors: serde_json::Value = serde_json::from_str(text).unwrap();
    let records = vectors["records"].as_array().unwrap();
    assert!(records.len() > 5);
    for record in records {
        let issuer = record["record"]["issuer"].as_str().unwrap();
        let did = DidKey::parse(issuer).unwrap();
        assert_eq!(did.as_str(), issuer);
        assert_eq!(DidKey::from_key(did.key().clone()), did);
    }
}

proptest! {
    #[test]
    fn any_text_is_refused_or_canonical(text in "(did:key:z)?.{0,70}") {
        prop_assert!(DidKey::parse(&text).map_or(true, |did| did.as_str() == text));
    }

    #[test]
    fn any_bytes_are_refused_or_canonical(
        codec in prop_oneof![Just([0xed, 0x01]), Just([0x80, 0x24]), any::<[u8; 2]>()],
        key in proptest::collection::vec(any::<u8>(), 30..36),
    ) {
        let text = did_of(&[codec.as_slice(), &key].concat());
        prop_assert!(DidKey::parse(&text).map_or(true, |did| did.as_str() == text));
    }
}
