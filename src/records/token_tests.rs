//! The rules of tokens: every trick is refused, with the reason that fits.

use super::super::base64url::encode;
use super::super::given::{
    EDDSA, ES256, HLC, NO_LIMITS, VERSION, claim, did, ed25519, judge, judge_token, p256, payload,
    record_of, replaced, token, token_by, with_header, with_payload,
};
use super::{ParsedRecord, parse, verify};
use crate::base::{Digest, DocumentId, OwnerDid, RecordFault};
use crate::records::{Hlc, PublicKey, RecordLimits, SignedRecord, SigningKey, VerifiedRecord};

#[test]
fn a_verified_record_says_what_the_token_claims() {
    let token = token(EDDSA, &payload());
    let verified = judge_token(&token).unwrap();
    assert_eq!(
        verified,
        VerifiedRecord {
            key: record_of(&token).key,
            hlc: Hlc::parse(HLC).unwrap(),
            version: Hlc::parse(VERSION).unwrap(),
            // The claim above is in its RFC 8785 form.
            claim_digest: Digest::of(claim().as_bytes()),
            payload: None,
            issuer: did().into(),
            signer_key: did().into(),
            op_hash: Digest::of(token.as_bytes()),
            not_before_ms: None,
        }
    );
}

#[test]
fn a_header_that_is_not_taken_is_refused() {
    for bad in [
        r#"{"alg":"none","typ":"JWT"}"#,
        r#"{"alg":"None","typ":"JWT"}"#,
        r#"{"alg":"nOnE","typ":"JWT"}"#,
        r#"{"alg":"HS256","typ":"JWT"}"#,
        r#"{"alg":"eddsa","typ":"JWT"}"#,
        r#"{"alg":"ES256K","typ":"JWT"}"#,
        r#"{"alg":"RS256","typ":"JWT"}"#,
        r#"{"alg":["EdDSA"],"typ":"JWT"}"#,
        r#"{"alg":null,"typ":"JWT"}"#,
        r#"{"alg":"","typ":"JWT"}"#,
        r#"{"typ":"JWT"}"#,
        r#"{"alg":"EdDSA"}"#,
        r#"{"alg":"EdDSA","typ":"jwt"}"#,
        r#"{"alg":"EdDSA","typ":null}"#,
        r#"{"alg":"EdDSA","typ":"JWE"}"#,
        r#"{"alg":"EdDSA","typ":"JWT","crit":["exp"]}"#,
        r#"{"alg":"EdDSA","typ":"JWT","crit":[]}"#,
        r#"{"alg":"EdDSA","typ":"JWT","crit":"x"}"#,
        r#"{"alg":"EdDSA","typ":"JWT","crit":null}"#,
        r#"{"alg":"EdDSA","typ":"JWT","b64":false}"#,
        r#"{"alg":"EdDSA","typ":"JWT","b64":true}"#,
        r#"{"alg":"EdDSA","typ":"JWT","b64":false,"crit":["b64"]}"#,
        r#"{"alg":"EdDSA","typ":"JWT","jwk":{"kty":"OKP","crv":"Ed25519","x":"AA"}}"#,
        r#"{"alg":"EdDSA","typ":"JWT","jku":"https://evil.example/keys"}"#,
        r#"{"alg":"EdDSA","typ":"JWT","x5u":"https://evil.example/cert"}"#,
        r#"{"alg":"EdDSA","typ":"JWT","x5c":["MII"]}"#,
        r#"{"alg":"EdDSA","typ":"JWT","cty":"JWT"}"#,
        r#"{"alg":"EdDSA","typ":"JWT","anything":1}"#,
        r#"{"alg":"EdDSA","typ":"JWT","alg":"EdDSA"}"#,
        r#"{"alg":"none","typ":"JWT","al\u0067":"EdDSA"}"#,
        r#"{"alg":"EdDSA","typ":"JWT","kid":null}"#,
        r#"{"alg":"EdDSA","typ":"JWT","kid":1}"#,
        r#"{"alg":"EdDSA","typ":"JWT","kid":""}"#,
        r#"{"alg":"EdDSA","typ":"JWT","kid":"../../dev/null"}"#,
        r#"{"alg":"EdDSA","typ":"JWT","kid":"' UNION SELECT 'key'; --"}"#,
        r#"{"alg":"EdDSA","typ":"JWT","kid":"did:key:z6Mkother#key-0"}"#,
        r#"{"alg":"EdDSA","typ":"JWT"} "x""#,
        r#"[{"alg":"EdDSA","typ":"JWT"}]"#,
        r#""EdDSA""#,
        "null",
        "",
        "{",
    ] {
        let judged = with_header(bad);
        assert!(matches!(judged, Err(RecordFault::Header { .. })), "{bad}: {judged:?}");
    }
    assert!(with_header(r#" { "typ" : "JWT", "alg" : "EdD\u0053A" } "#).is_ok());
}

#[test]
fn the_key_says_the_algorithm_and_the_token_never() {
    for key in [ed25519(), p256()] {
        let own = payload().replace(&did(), key.did().as_str());
        let owner = OwnerDid::new(key.did().as_str()).unwrap();
        let judge = |header: &str| {
            let mut record = record_of(&token_by(&key, header, &own));
            record.key.owner = owner.clone();
            judge(&record)
        };
        let (right, wrong) = match key.public_key() {
            PublicKey::Ed25519(_) => (EDDSA, ES256),
            PublicKey::P256(_) => (ES256, EDDSA),
        };
        assert!(judge(right).is_ok(), "{key:?}");
        assert_eq!(judge(wrong), Err(RecordFault::Algorithm), "{key:?}");
        let mut record = record_of(&token_by(&key, wrong, &own));
        record.key.owner = owner.clone();
        let parsed = parse(&record, &NO_LIMITS).map(|_| ());
        assert_eq!(parsed, Err(RecordFault::Algorithm), "{key:?}, before a key is asked");
    }
    // An issuer whose key is resolved: what was resolved decides.
    let header = r##"{"alg":"EdDSA","kid":"#k","typ":"JWT"}"##;
    let foreign = replaced(&format!(r#""iss":"{}""#, did()), r#""iss":"did:web:a.example""#);
    let parsed = parse(&record_of(&token(header, &foreign)), &NO_LIMITS).unwrap();
    assert_eq!(verify(&parsed, &p256().public_key()), Err(RecordFault::Algorithm));
    let another = SigningKey::ed25519_from_seed([8; 32]).public_key();
    assert_eq!(verify(&parsed, &another), Err(RecordFault::Signature));
    let verified = verify(&parsed, &ed25519().public_key()).unwrap();
    assert_eq!(
        (&*verified.issuer, &*verified.signer_key),
        ("did:web:a.example", "did:web:a.example#k")
    );
}

#[test]
fn a_token_has_three_parts_of_strict_base64url() {
    let good = token(EDDSA, &payload());
    let parts: Vec<&str> = good.split('.').collect();
    let [header, claims, signature] = parts[..] else { panic!("{} parts", parts.len()) };
    let not_three = [
        String::new(),
        ".".to_owned(),
        format!("{header}.{claims}"),
        format!("{header}.{claims}.{signature}."),
        format!("{good}.{claims}.{signature}"),
        format!(".{good}"),
        ".".repeat(1_000_000),
    ];
    for bad in &not_three {
        let expected = RecordFault::Token { reason: "expected three parts" };
        assert_eq!(judge_token(bad), Err(expected));
    }
    let spelled = |part: &str| {
        let mut spellings = vec![
            format!("{part}="),
            format!("{part}=="),
            format!("{part}\n"),
            format!(" {part}"),
            format!("{part}!"),
            format!("{}={}", &part[..4], &part[4..]),
            format!("{}+{}", &part[..4], &part[5..]),
            format!("{}/{}", &part[..4], &part[5..]),
            format!("{}\r\n{}", &part[..4], &part[4..]),
        ];
        // The last character has spare bits unless it ends a group of four.
        if !part.len().is_multiple_of(4) {
            let (rest, last) = part.split_at(part.len() - 1);
            spellings.push(format!("{rest}{}", char::from(last.as_bytes()[0] + 1)));
        }
        spellings
    };
    for at in 0..3 {
        for part in spelled(parts[at]) {
            let mut parts = parts.clone();
            parts[at] = &part;
            let judged = judge_token(&parts.join("."));
            assert!(matches!(judged, Err(RecordFault::Token { .. })), "{at} {part}: {judged:?}");
        }
    }
    for bad in ["", "AA", &encode(&[0; 63]), &encode(&[0; 64]), &encode(&[0; 65])] {
        let judged = judge_token(&format!("{header}.{claims}.{bad}"));
        assert_eq!(judged, Err(RecordFault::Signature), "{bad}");
    }
    let of_p256 = encode(payload().replace(&did(), p256().did().as_str()).as_bytes());
    let zeros = format!("{}.{of_p256}.{}", encode(ES256.as_bytes()), encode(&[0; 64]));
    let mut record = record_of(&zeros);
    record.key.owner = OwnerDid::new(p256().did().as_str()).unwrap();
    assert_eq!(judge(&record), Err(RecordFault::Signature), "r and s are 0");
}

#[test]
fn a_change_of_any_character_makes_a_token_invalid() {
    for (key, header) in [(ed25519(), EDDSA), (p256(), ES256)] {
        let own = payload().replace(&did(), key.did().as_str());
        let good = token_by(&key, header, &own);
        let mut record = record_of(&good);
        record.key.owner = OwnerDid::new(key.did().as_str()).unwrap();
        assert!(judge(&record).is_ok());
        for at in 0..good.len() {
            for bit in [0, 5] {
                let mut bytes = good.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                record.op_jwt = String::from_utf8(bytes).unwrap().into();
                record.op_hash = Digest::of(record.op_jwt.as_bytes());
                assert!(judge(&record).is_err(), "{key:?}: bit {bit} of byte {at}");
            }
        }
    }
}

#[test]
fn the_first_field_that_differs_is_named() {
    let good = record_of(&token(EDDSA, &payload()));
    type Change = fn(&mut SignedRecord);
    let changes: [(&str, Change); 6] = [
        ("type", |record| record.key.record_type = "connector.other".into()),
        ("owner", |record| record.key.owner = OwnerDid::new("did:web:other").unwrap()),
        ("id", |record| record.key.id = DocumentId::new("doc-2").unwrap()),
        ("hlc", |record| record.hlc = Hlc::parse(VERSION).unwrap()),
        ("op_hash", |record| record.op_hash = Digest::of(b"")),
        ("payload", |record| record.payload = Some(b""[..].into())),
    ];
    for (at, (field, change)) in changes.into_iter().enumerate() {
        let mut record = good.clone();
        change(&mut record);
        assert_eq!(judge(&record), Err(RecordFault::Mismatch { field }));
        // With all later fields wrong, too, it is still the one that is named.
        changes[at..].iter().for_each(|(_, change)| change(&mut record));
        assert_eq!(judge(&record), Err(RecordFault::Mismatch { field }));
    }
    let claimed = replaced("null", &format!(r#""{}""#, Digest::of(b"value").to_hex()));
    let mut record = record_of(&token(EDDSA, &claimed));
    assert_eq!(judge(&record), Err(RecordFault::Mismatch { field: "payload" }));
    record.payload = Some(b"value"[..].into());
    assert!(judge(&record).is_ok());
    record.payload = Some(b"valuf"[..].into());
    assert_eq!(judge(&record), Err(RecordFault::Mismatch { field: "payload" }));
}

#[test]
fn a_size_is_held_before_anything_is_decoded() {
    let good = record_of(&token(EDDSA, &payload()));
    let token_limit = |bytes| RecordLimits { max_token_bytes: bytes, ..RecordLimits::default() };
    assert!(parse(&good, &token_limit(good.op_jwt.len())).is_ok());
    let max_bytes = good.op_jwt.len() - 1;
    let refused = parse(&good, &token_limit(max_bytes)).map(|_| ());
    assert_eq!(refused, Err(RecordFault::TooLarge { what: "token", max_bytes }));

    // Each would fail for another reason if a byte of it were looked at.
    let max_bytes = RecordLimits::default().max_token_bytes;
    for large in [
        "!".repeat(10_000_000),
        ".".repeat(1_000_000),
        format!("{}.e30.", encode(&[b'['; 1_000_000])),
        "A".repeat(max_bytes + 1),
    ] {
        let mut record = record_of("");
        record.op_jwt = large.into();
        let refused = parse(&record, &RecordLimits::default()).map(|_| ());
        assert_eq!(refused, Err(RecordFault::TooLarge { what: "token", max_bytes }));
    }

    let max_bytes = RecordLimits::default().max_payload_bytes;
    for (bytes, expected) in [
        (max_bytes, RecordFault::Token { reason: "expected three parts" }),
        (max_bytes + 1, RecordFault::TooLarge { what: "payload", max_bytes }),
    ] {
        let mut record = record_of("");
        record.payload = Some(vec![0; bytes].into());
        let refused = parse(&record, &RecordLimits::default()).map(|_| ());
        assert_eq!(refused, Err(expected), "{bytes}");
    }
}

#[test]
fn depth_and_breadth_are_refused_without_a_stack() {
    let meta = format!(r#"{{"version":"{VERSION}"}}"#);
    // The value lies in meta, in the claim, in the payload: three levels are taken.
    let nested = |levels: usize| {
        let value = "[".repeat(levels - 3) + &"]".repeat(levels - 3);
        with_payload(&replaced(&meta, &format!(r#"{{"n":{value},"version":"{VERSION}"}}"#)))
    };
    assert!(nested(128).is_ok());
    for levels in [129, 5_000, 1_000_000] {
        let expected = "expected JSON nested at most 128 deep";
        assert_eq!(nested(levels), Err(RecordFault::Claims { reason: expected }), "{levels}");
    }
    let members: Vec<String> = (0..100_000).map(|name| format!(r#""{name}":0"#)).collect();
    let header = format!(r#"{{"alg":"EdDSA","typ":"JWT",{}}}"#, members.join(","));
    let judged = with_header(&header);
    assert!(matches!(judged, Err(RecordFault::Header { .. })), "{judged:?}");
}

#[test]
fn a_kid_names_one_key_in_three_spellings() {
    let parsed = |kid: &str, issuer: &str| {
        let header = format!(r#"{{"alg":"EdDSA","kid":"{kid}","typ":"JWT"}}"#);
        let payload = replaced(&format!(r#""iss":"{}""#, did()), &format!(r#""iss":"{issuer}""#));
        parse(&record_of(&token(&header, &payload)), &NO_LIMITS)
    };
    for issuer in ["did:web:a.example", did().as_str()] {
        for kid in ["key-1", "#key-1", &format!("{issuer}#key-1")] {
            let parsed: ParsedRecord = parsed(kid, issuer).unwrap();
            assert_eq!((parsed.key_id(), &**parsed.issuer()), (Some("key-1"), issuer));
            let is_key = issuer.starts_with("did:key:");
            assert_eq!(parsed.built_in_key().is_some(), is_key);
            let signer_key = &verify(&parsed, &ed25519().public_key()).unwrap().signer_key;
            let named = format!("{issuer}#key-1");
            assert_eq!(&**signer_key, if is_key { issuer } else { named.as_str() });
        }
        for bad in ["", "#", "a/b", "did:web:b.example#key-1", "key 1", "?x"] {
            let refused = parsed(bad, issuer).map(|_| ());
            assert!(matches!(refused, Err(RecordFault::Header { .. })), "{bad}: {refused:?}");
        }
    }
}

#[test]
fn debug_shows_neither_token_nor_payload() {
    let mut record = record_of(&token(
        EDDSA,
        &replaced("null", &format!(r#""{}""#, Digest::of(b"secret").to_hex())),
    ));
    record.payload = Some(b"secret"[..].into());
    let parsed = parse(&record, &NO_LIMITS).unwrap();
    let shown = format!("{record:?} {parsed:?} {parsed:#?}");
    assert!(!shown.contains(&record.op_jwt[..20]) && !shown.contains("115, 101"), "{shown}");
}
