//! The rules of tokens: every trick is refused, with the reason that fits.

use super::super::base64url::encode;
use super::{ParsedRecord, parse, verify};
use crate::base::{Digest, DocumentId, OwnerDid, RecordFault};
use crate::records::{
    Hlc, PublicKey, RecordKey, RecordLimits, SignedRecord, SigningKey, VerifiedRecord,
};

const HLC: &str = "001767225600000-00000000-node-a";
const VERSION: &str = "001767225500000-00000001-node-b";
const EDDSA: &str = r#"{"alg":"EdDSA","typ":"JWT"}"#;
const ES256: &str = r#"{"alg":"ES256","typ":"JWT"}"#;
const NO_LIMITS: RecordLimits =
    RecordLimits { max_token_bytes: usize::MAX, max_payload_bytes: usize::MAX };

fn ed25519() -> SigningKey {
    SigningKey::ed25519_from_seed([7; 32])
}

fn p256() -> SigningKey {
    SigningKey::p256_from_scalar([7; 32]).unwrap()
}

fn did() -> String {
    ed25519().did().to_string()
}

fn claim() -> String {
    let owner = did();
    format!(
        r#"{{"hlc":"{HLC}","key":{{"id":"doc-1","owner":"{owner}","type":"connector.observation"}},"meta":{{"version":"{VERSION}"}},"payload":null}}"#
    )
}

fn payload() -> String {
    format!(r#"{{"claim":{},"iss":"{}"}}"#, claim(), did())
}

/// The record of a token, with the fields that [`claim`] names.
fn record_of(token: &str) -> SignedRecord {
    SignedRecord {
        key: RecordKey::observation(
            &OwnerDid::new(did()).unwrap(),
            &DocumentId::new("doc-1").unwrap(),
        ),
        hlc: Hlc::parse(HLC).unwrap(),
        op_jwt: token.into(),
        op_hash: Digest::of(token.as_bytes()),
        payload: None,
    }
}

fn token_by(key: &SigningKey, header: &str, payload: &str) -> String {
    let signed = format!("{}.{}", encode(header.as_bytes()), encode(payload.as_bytes()));
    format!("{signed}.{}", encode(&key.sign(signed.as_bytes())))
}

/// A token whose signature is right.
fn token(header: &str, payload: &str) -> String {
    token_by(&ed25519(), header, payload)
}

fn judge(record: &SignedRecord) -> Result<VerifiedRecord, RecordFault> {
    let parsed = parse(record, &NO_LIMITS)?;
    verify(&parsed, parsed.built_in_key().unwrap())
}

fn judge_token(token: &str) -> Result<VerifiedRecord, RecordFault> {
    judge(&record_of(token))
}

fn with_header(header: &str) -> Result<VerifiedRecord, RecordFault> {
    judge_token(&token(header, &payload()))
}

fn with_payload(payload: &str) -> Result<VerifiedRecord, RecordFault> {
    judge_token(&token(EDDSA, payload))
}

/// The good payload with `part` replaced.
fn replaced(part: &str, by: &str) -> String {
    let good = payload();
    assert!(good.contains(part), "{part}");
    good.replacen(part, by, 1)
}

fn is_claims<T: std::fmt::Debug>(judged: &Result<T, RecordFault>) -> bool {
    matches!(judged, Err(RecordFault::Claims { .. }))
}

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
fn the_digest_is_that_of_the_claim_however_it_is_spelled() {
    let spelled =
        replaced(r#""doc-1""#, r#" "\u0064oc-1" "#).replace(r#","iss""#, r#" , "x":[0], "iss""#);
    let verified = with_payload(&spelled).unwrap();
    assert_eq!(verified.claim_digest, Digest::of(claim().as_bytes()));
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
fn a_second_member_of_one_name_is_refused_wherever_it_stands() {
    let second = |part: &str| replaced(part, &format!("{part},{part}"));
    for bad in [
        second(&format!(r#""iss":"{}""#, did())),
        second(&format!(r#""hlc":"{HLC}""#)),
        second(r#""id":"doc-1""#),
        second(&format!(r#""version":"{VERSION}""#)),
        second(r#""payload":null"#),
        replaced(r#""payload":null"#, r#""payload":null,"pa\u0079load":null"#),
        replaced(r#"{"version""#, r#"{"x":[{"y":{"a":1,"a":1}}],"version""#),
        replaced(r#","iss""#, r#","other":{"a":1,"\u0061":1},"iss""#),
    ] {
        let expected = "expected JSON without a second member of one name";
        assert_eq!(with_payload(&bad), Err(RecordFault::Claims { reason: expected }), "{bad}");
    }
}

#[test]
fn a_payload_that_is_not_taken_is_refused() {
    let (own, null) = (claim(), r#""payload":null"#);
    let digest = "a".repeat(64);
    for bad in [
        "null".to_owned(),
        format!("[{}]", payload()),
        payload() + "{}",
        replaced(r#","iss""#, r#","exp":99999999999,"iss""#),
        replaced(r#","iss""#, r#","exp":null,"iss""#),
        replaced(r#","iss""#, r#","iat":"1767225600","iss""#),
        replaced(r#","iss""#, r#","iat":null,"iss""#),
        replaced(r#","iss""#, r#","nbf":true,"iss""#),
        replaced(r#","iss""#, r#","nbf":-1,"iss""#),
        replaced(r#","iss""#, r#","nbf":1e300,"iss""#),
        format!(r#"{{"iss":"{}"}}"#, did()),
        replaced(&own, "null"),
        replaced(&own, "[]"),
        replaced(&format!(r#""hlc":"{HLC}","#), ""),
        replaced(HLC, "1767225600000-0-node-a"),
        replaced(HLC, "001767225600000-0000000A-node-a"),
        replaced(&format!(r#""{HLC}""#), "1767225600000"),
        replaced(VERSION, "latest"),
        replaced(&format!(r#""version":"{VERSION}""#), ""),
        replaced(&format!(r#"{{"version":"{VERSION}"}}"#), "null"),
        replaced(r#""type":"connector.observation""#, r#""kind":"connector.observation""#),
        replaced(r#""type":"connector.observation""#, r#""type":"connector.observation","x":1"#),
        replaced(r#""doc-1""#, "1"),
        replaced(r#""doc-1""#, r#""""#),
        replaced(r#""doc-1""#, r#""a\u0000b""#),
        replaced(&format!(r#""owner":"{}""#, did()), r#""owner":"alice""#),
        replaced(&format!(r#""owner":"{}""#, did()), r#""owner":"did:web:a/b""#),
        replaced(null, r#""payload":false"#),
        replaced(null, r#""payload":"""#),
        replaced(null, &format!(r#""payload":"{}""#, digest.to_uppercase())),
        replaced(null, &format!(r#""payload":"{digest}0""#)),
        replaced(&format!(",{null}"), ""),
        replaced(null, r#""payload":null,"more":1"#),
    ] {
        let judged = with_payload(&bad);
        assert!(is_claims(&judged), "{bad}: {judged:?}");
    }
    let owner = format!(r#""owner":"{}""#, did());
    let mut record = record_of(&token(EDDSA, &replaced(&owner, r#""owner":"did:web:b.example""#)));
    record.key.owner = OwnerDid::new("did:web:b.example").unwrap();
    assert!(judge(&record).is_ok(), "the policy says who signs for whom, not the token");
    let more = r#""iat":1767225600,"sub":"s","aud":"a","cap":["x"],"jti":null,"iss""#;
    assert!(with_payload(&replaced(r#""iss""#, more)).is_ok(), "members of others are ignored");
    let meta = format!(r#"{{"version":"{VERSION}","n":1,"z":{{"version":[]}}}}"#);
    let judged = with_payload(&replaced(&format!(r#"{{"version":"{VERSION}"}}"#), &meta));
    assert!(judged.is_ok(), "meta may hold more: {judged:?}");
}

#[test]
fn an_issuer_that_is_no_canonical_did_is_refused() {
    let iss = format!(r#""iss":"{}""#, did());
    for bad in [
        r#""x":1"#.to_owned(),
        r#""iss":null"#.to_owned(),
        r#""iss":["did:web:a.example"]"#.to_owned(),
        r#""iss":"""#.to_owned(),
        r#""iss":"alice""#.to_owned(),
        format!(r#""iss":"{} ""#, did()),
        format!(r##""iss":"{}#{}""##, did(), "key-0"),
        format!(r#""iss":"{}""#, did().replace("did:key:z", "did:key:")),
        format!(r#""iss":"did:key:z{}""#, "6".repeat(65)),
        r#""iss":"did:web:a.example/path""#.to_owned(),
        r#""iss":"did:web:a.example#k""#.to_owned(),
        r#""iss":"did:web:A%3a""#.to_owned(),
        // Nothing says which of its keys signed.
        r#""iss":"did:web:a.example""#.to_owned(),
    ] {
        let judged = parse(&record_of(&token(EDDSA, &replaced(&iss, &bad))), &NO_LIMITS);
        assert!(matches!(judged, Err(RecordFault::Issuer { .. })), "{bad}: {judged:?}");
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
fn two_claims_never_share_a_digest() {
    let with = |value: &str| {
        let meta = format!(r#"{{"n":{value},"version":"{VERSION}"}}"#);
        with_payload(&replaced(&format!(r#"{{"version":"{VERSION}"}}"#), &meta))
    };
    for bad in [
        "9007199254740993",
        "1e400",
        "-1e400",
        "0.10000000000000001",
        "1e-400",
        "1.00000000000000001",
        "18446744073709551615",
        r#""\ud800""#,
        r#""\ude00\ud83d""#,
        "[[9007199254740993]]",
        r#"{"x":1e400}"#,
    ] {
        let judged = with(bad);
        assert!(is_claims(&judged), "{bad}: {judged:?}");
    }
    let digest = |value: &str| with(value).unwrap().claim_digest;
    for same in
        [&["0", "-0", "-0.0", "0e5"][..], &["1", "1.0", "10e-1"], &[r#""a""#, r#""\u0061""#]]
    {
        assert!(same.iter().all(|value| digest(value) == digest(same[0])), "{same:?}");
    }
    assert_ne!(digest("9007199254740992"), digest("9007199254740994"));
    assert_ne!(digest(r#""9007199254740992""#), digest("9007199254740992"));
    assert_ne!(digest("\"\u{e4}\""), digest("\"a\u{308}\""));
    let not_utf_8 = [payload().as_bytes(), b"\xff"].concat();
    let signed = format!("{}.{}", encode(EDDSA.as_bytes()), encode(&not_utf_8));
    let token = format!("{signed}.{}", encode(&ed25519().sign(signed.as_bytes())));
    assert_eq!(judge_token(&token), Err(RecordFault::Claims { reason: "expected UTF-8" }));
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
fn nbf_is_told_in_milliseconds_and_not_judged() {
    for (nbf, ms) in [
        ("0", 0),
        ("1767225600", 1_767_225_600_000),
        ("1767225600.5", 1_767_225_600_500),
        ("1767225600.0001", 1_767_225_600_001),
        ("1.7672256e9", 1_767_225_600_000),
        ("99999999999", 99_999_999_999_000),
    ] {
        let verified = with_payload(&replaced(r#","iss""#, &format!(r#","nbf":{nbf},"iss""#)));
        assert_eq!(verified.unwrap().not_before_ms, Some(ms), "{nbf}");
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
