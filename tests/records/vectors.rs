//! Records in files: what an independent implementation made, and what this one made and the npm
//! package `@kokuin/token` verified.

use base64ct::{Base64, Encoding as _};
use connector_store::base::RecordFault;
use connector_store::records::{
    Hlc, OwnerOnly, RecordKey, RecordLimits, SignedRecord, SignerPolicy, VerifiedRecord, parse,
    verify,
};
use connector_store::{Digest, DocumentId, OwnerDid};
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
