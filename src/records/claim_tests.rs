//! The rules of payloads and claims.

use super::super::base64url::encode;
use super::super::given::{
    EDDSA, HLC, NO_LIMITS, VERSION, claim, did, ed25519, is_claims, judge, judge_token, payload,
    record_of, replaced, token, with_payload,
};
use crate::base::{Digest, OwnerDid, RecordFault};
use crate::records::parse;

#[test]
fn the_digest_is_that_of_the_claim_however_it_is_spelled() {
    let spelled =
        replaced(r#""doc-1""#, r#" "\u0064oc-1" "#).replace(r#","iss""#, r#" , "x":[0], "iss""#);
    let verified = with_payload(&spelled).unwrap();
    assert_eq!(verified.claim_digest, Digest::of(claim().as_bytes()));
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
