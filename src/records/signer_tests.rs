//! The rules of the signer: what it makes is taken here, in one form.

use proptest::prelude::*;

use super::super::base64url::decode;
use super::RecordSigner;
use crate::base::{Digest, DocumentId, Error, Json, OwnerDid, Result};
use crate::records::{Hlc, RecordLimits, SignedRecord, SigningKey, VerifiedRecord, parse, verify};

const STAMP: &str = "001767225600000-00000000-node-a";

fn signers() -> [RecordSigner; 2] {
    [
        RecordSigner::did_key(SigningKey::ed25519_from_seed([7; 32])),
        RecordSigner::did_key(SigningKey::p256_from_scalar([7; 32]).unwrap()),
    ]
}

fn foreign(key: SigningKey) -> Result<RecordSigner> {
    RecordSigner::with_key_id(key, "did:web:a.example", "key-0")
}

fn stamp() -> Hlc {
    Hlc::parse(STAMP).unwrap()
}

fn sign(signer: &RecordSigner, document: &str, payload: Option<&[u8]>) -> Result<SignedRecord> {
    let owner = OwnerDid::new(signer.issuer())?;
    signer.sign(&owner, &DocumentId::new(document)?, &stamp(), &stamp(), payload)
}

fn verified(record: &SignedRecord) -> VerifiedRecord {
    let parsed = parse(record, &RecordLimits::default()).unwrap();
    verify(&parsed, parsed.built_in_key().unwrap()).unwrap()
}

fn part(record: &SignedRecord, at: usize) -> String {
    let part = record.op_jwt.split('.').nth(at).unwrap();
    String::from_utf8(decode(part).unwrap()).unwrap()
}

#[test]
fn a_token_is_written_in_the_order_of_rfc_8785() {
    let [signer, _] = signers();
    let record = sign(&signer, "d\u{e4}\"", Some(b"value")).unwrap();
    assert_eq!(part(&record, 0), r#"{"alg":"EdDSA","typ":"JWT"}"#);
    let (did, digest) = (signer.issuer(), Digest::of(b"value").to_hex());
    let claim = format!(
        r#"{{"hlc":"{STAMP}","key":{{"id":"dä\"","owner":"{did}","type":"connector.observation"}},"meta":{{"version":"{STAMP}"}},"payload":"{digest}"}}"#
    );
    assert_eq!(part(&record, 1), format!(r#"{{"claim":{claim},"iss":"{did}"}}"#));
    assert_eq!(verified(&record).claim_digest, Digest::of(claim.as_bytes()));
    assert_eq!(record, sign(&signer, "d\u{e4}\"", Some(b"value")).unwrap(), "made the same again");
}

#[test]
fn an_absent_value_and_an_empty_one_are_two() {
    for signer in signers() {
        let absent = sign(&signer, "d", None).unwrap();
        let empty = sign(&signer, "d", Some(b"")).unwrap();
        assert_eq!((absent.payload.as_deref(), empty.payload.as_deref()), (None, Some(&b""[..])));
        assert_eq!(verified(&absent).payload, None);
        assert_eq!(verified(&empty).payload, Some(Digest::of(b"")));
    }
}

#[test]
fn a_foreign_did_signs_with_its_key_id() {
    let key = || SigningKey::ed25519_from_seed([7; 32]);
    let signer = foreign(key()).unwrap();
    let record = sign(&signer, "d", None).unwrap();
    assert_eq!(part(&record, 0), r##"{"alg":"EdDSA","kid":"#key-0","typ":"JWT"}"##);
    let parsed = parse(&record, &RecordLimits::default()).unwrap();
    let verified = verify(&parsed, &key().public_key()).unwrap();
    assert_eq!(
        (parsed.key_id(), &*verified.signer_key),
        (Some("key-0"), "did:web:a.example#key-0")
    );

    for (did, key_id, field) in [
        ("web:a.example", "key-0", "did"),
        ("did:web:a.example#key-0", "key-0", "did"),
        (key().did().as_str(), "key-0", "did"),
        ("did:web:a.example", "", "key_id"),
        ("did:web:a.example", "#key-0", "key_id"),
        ("did:web:a.example", "did:web:a.example#key-0", "key_id"),
        ("did:web:a.example", "key 0", "key_id"),
    ] {
        let refused = RecordSigner::with_key_id(key(), did, key_id);
        assert!(
            matches!(&refused, Err(Error::InvalidInput { field: named, .. }) if *named == field),
            "{did} {key_id}: {refused:?}"
        );
    }
}

#[test]
fn further_members_of_meta_are_signed_too() {
    let [signer, _] = signers();
    let owner = OwnerDid::new(signer.issuer()).unwrap();
    let document = DocumentId::new("d").unwrap();
    let sign = |meta: &str| {
        let meta = Json::parse("meta", meta).unwrap();
        signer.sign_with_meta(&owner, &document, &stamp(), &stamp(), None, &meta)
    };
    let record = sign(r#"{"source":"caldav","n":1.50}"#).unwrap();
    let expected = format!(r#""meta":{{"n":1.5,"source":"caldav","version":"{STAMP}"}}"#);
    assert!(part(&record, 1).contains(&expected), "{}", part(&record, 1));
    let plain = signer.sign(&owner, &document, &stamp(), &stamp(), None).unwrap();
    assert_eq!(sign("{}").unwrap(), plain);
    assert_ne!(verified(&record).claim_digest, verified(&plain).claim_digest);
    for bad in ["[]", "null", r#"{"a":1,"a":2}"#, r#"{"n":9007199254740993}"#, r#"{"version":"x"}"#]
    {
        let refused = sign(bad);
        assert!(matches!(refused, Err(Error::InvalidInput { field: "meta", .. })), "{refused:?}");
    }
}

#[test]
fn nothing_is_signed_that_would_be_refused() {
    let [signer, _] = signers();
    let document = DocumentId::new("d").unwrap();
    let owner = OwnerDid::new("did:web:a b").unwrap();
    let refused = signer.sign(&owner, &document, &stamp(), &stamp(), None);
    assert!(matches!(refused, Err(Error::InvalidObservationRecord { .. })), "{refused:?}");
    let refused = sign(&signer, "d\u{ffff}", None);
    assert!(
        matches!(refused, Err(Error::InvalidInput { field: "document_id", .. })),
        "{refused:?}"
    );
    // Two levels fewer than are read: meta lies in the claim.
    let owner = OwnerDid::new(signer.issuer()).unwrap();
    let deep = format!(r#"{{"n":{}{}}}"#, "[".repeat(126), "]".repeat(126));
    let deep = Json::parse("meta", &deep).unwrap();
    let refused = signer.sign_with_meta(&owner, &document, &stamp(), &stamp(), None, &deep);
    assert!(matches!(refused, Err(Error::InvalidObservationRecord { .. })), "{refused:?}");
}

#[test]
fn debug_shows_no_secret() {
    let shown = format!("{:?}", signers());
    assert!(shown.contains("did:key:z") && !shown.contains("7, 7"), "{shown}");
}

fn document_ids() -> impl Strategy<Value = String> {
    let odd = "[\u{300}\u{e9}\u{202e}\u{fb33}\u{1f600}\u{fffd}\u{10fffd}\"\\\\/ .{}\u{e000}]{1,40}";
    prop_oneof![odd, "\\PC{1,60}"].prop_filter("an id that JSON can hold", |id| {
        DocumentId::new(id).is_ok() && super::i_json::is_text(id)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_signed_verifies(
        id in document_ids(),
        payload in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..50)),
        ms in 0_i64..999_999_999_999_999,
        counter in any::<u32>(),
    ) {
        let version = Hlc::parse(&format!("{ms:015}-{counter:08x}-n")).unwrap();
        for signer in signers() {
            let owner = OwnerDid::new(signer.issuer()).unwrap();
            let document = DocumentId::new(&id).unwrap();
            let record =
                signer.sign(&owner, &document, &stamp(), &version, payload.as_deref()).unwrap();
            let verified = verified(&record);
            prop_assert_eq!(&verified.key, &record.key);
            prop_assert_eq!(&verified.version, &version);
            prop_assert_eq!(verified.payload, payload.as_deref().map(Digest::of));
            prop_assert_eq!(&*verified.signer_key, signer.issuer());

            let mut other = record.clone();
            other.key.id = DocumentId::new(format!("{id}x")).unwrap();
            prop_assert!(parse(&other, &RecordLimits::default()).is_err());
        }
    }
}
