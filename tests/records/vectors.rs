//! Records in files: what an independent implementation made, and what this one made and the npm
//! package `@kokuin/token` verified.

use base64ct::{Base64, Encoding as _};
use connector_store::base::RecordFault;
use connector_store::records::{
    Hlc, OwnerOnly, RecordKey, RecordLimits, RecordSigner, SignedRecord, SignerPolicy, SigningKey,
    VerifiedRecord, parse, verify,
};
use connector_store::{Digest, DocumentId, Json, OwnerDid};
use serde_json::Value;

fn text<'a>(record: &'a Value, field: &str) -> &'a str {
    record[field].as_str().unwrap()
}

fn record_of(value: &Value) -> SignedRecord {
    SignedRecord {
        key: RecordKey {
            record_type: text(value, "type").into(),
            owner: OwnerDid::new(text(value, "owner")).unwrap(),
            id: DocumentId::new(text(value, "id")).unwrap(),
        },
        hlc: Hlc::parse(text(value, "hlc")).unwrap(),
        op_jwt: text(value, "op_jwt").into(),
        op_hash: Digest::from_hex(text(value, "op_hash")).unwrap(),
        payload: value["payload_b64"].as_str().map(|b64| Base64::decode_vec(b64).unwrap().into()),
    }
}

fn judge(record: &SignedRecord) -> Result<VerifiedRecord, RecordFault> {
    let parsed = parse(record, &RecordLimits::default())?;
    let verified = verify(&parsed, parsed.built_in_key().unwrap())?;
    if OwnerOnly.allows(&verified.issuer, &verified.key.owner) {
        Ok(verified)
    } else {
        Err(RecordFault::SignerNotAllowed)
    }
}

#[test]
fn records_of_an_independent_maker_are_judged_as_it_judges_them() {
    let text_of_file = include_str!("../vectors/signed-records.json");
    let vectors: Value = serde_json::from_str(text_of_file).unwrap();
    let expected = |name: &str| match name {
        "es256 high-s" | "one bit of the signature flipped" => RecordFault::Signature,
        "payload does not match the claim" => RecordFault::Mismatch { field: "payload" },
        "signed by another than the owner (policy OwnerOnly)" => RecordFault::SignerNotAllowed,
        other => panic!("no fault is expected of {other}"),
    };
    let (mut valid, mut invalid) = (0, 0);
    for vector in vectors["records"].as_array().unwrap() {
        let name = text(vector, "name");
        let record = record_of(&vector["record"]);
        let judged = judge(&record);
        if text(vector, "expect") == "valid" {
            let verified = judged.unwrap_or_else(|fault| panic!("{name}: {fault}"));
            assert_eq!(&*verified.signer_key, text(&vector["record"], "issuer"), "{name}");
            assert_eq!(verified.version, record.hlc, "{name}");
            assert_eq!(verified.not_before_ms, None, "{name}");
            valid += 1;
        } else {
            assert_eq!(judged, Err(expected(name)), "{name}");
            invalid += 1;
        }
    }
    assert_eq!((valid, invalid), (5, 4));
}

/// The signer of a vector's secret.
fn signer(algorithm: &str, letter: &str) -> RecordSigner {
    let secret = *Digest::of(format!("connector-store vector {letter}").as_bytes()).as_bytes();
    RecordSigner::did_key(match algorithm {
        "EdDSA" => SigningKey::ed25519_from_seed(secret),
        "ES256" => SigningKey::p256_from_scalar(secret).unwrap(),
        other => panic!("no key of {other}"),
    })
}

fn signed_again(
    record: &SignedRecord,
    signer: &RecordSigner,
    version: &Hlc,
    meta: &str,
) -> SignedRecord {
    let SignedRecord { key, hlc, payload, .. } = record;
    let meta = Json::parse("meta", meta).unwrap();
    signer.sign_with_meta(&key.owner, &key.id, hlc, version, payload.as_deref(), &meta).unwrap()
}

#[test]
fn the_signer_makes_the_very_tokens_of_the_independent_maker() {
    let text_of_file = include_str!("../vectors/signed-records.json");
    let vectors: Value = serde_json::from_str(text_of_file).unwrap();
    let meta = r#"{"source":"caldav","n":"9007199254740993"}"#;
    for (at, letter, meta) in [(0, "a", "{}"), (1, "a", "{}"), (2, "b", meta)] {
        let record = record_of(&vectors["records"][at]["record"]);
        let again = signed_again(&record, &signer("EdDSA", letter), &record.hlc, meta);
        assert_eq!(again, record, "{at}");
    }
}

#[test]
fn our_records_are_made_the_same_again_and_verify() {
    let text_of_file = include_str!("../vectors/ours.json");
    let vectors: Value = serde_json::from_str(text_of_file).unwrap();
    let vectors = vectors["records"].as_array().unwrap();
    assert_eq!(vectors.len(), 6);
    for vector in vectors {
        let name = text(vector, "name");
        let record: SignedRecord = serde_json::from_value(vector["record"].clone()).unwrap();
        let version = Hlc::parse(text(vector, "version")).unwrap();
        let verified = judge(&record).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!(verified.version, version, "{name}");
        assert_eq!(verified.claim_digest.to_hex(), text(vector, "claim_digest"), "{name}");
        let signer = signer(text(vector, "alg"), text(vector, "secret_letter"));
        assert_eq!(
            signed_again(&record, &signer, &version, text(vector, "meta")),
            record,
            "{name}"
        );
        let exchanged = serde_json::to_value(&record).unwrap();
        assert_eq!(exchanged, vector["record"], "{name}");
    }
}
