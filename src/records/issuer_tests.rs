//! The rules of issuers and key ids.

use super::Issuer;
use crate::base::limits::MAX_OWNER_BYTES;
use crate::records::SigningKey;

const DID: &str = "did:web:example.org";

#[test]
fn a_did_of_another_method_is_taken_in_its_one_spelling() {
    let longest = format!("did:x:{}", "a".repeat(MAX_OWNER_BYTES - 6));
    for good in [
        DID,
        "did:web:example.org:user:alice",
        "did:web:example.org%3A3000",
        "did:example:123:::a",
        "did:example::a",
        "did:example:A.b-c_9",
        "did:9:1",
        "did:peer:4zQmd8CpeFPci817KDsbSAKWcXAE2mjvCQSasRewvbSF54Bd",
        "did:example:%7E",
        longest.as_str(),
    ] {
        assert_eq!(&**Issuer::parse(good).unwrap().did(), good);
    }
    let too_long = format!("{longest}a");
    for bad in [
        "",
        "did",
        "did:",
        "did:web",
        "did:web:",
        "did::a",
        "did:web:a:",
        "did:Web:a",
        "DID:web:a",
        "did:we-b:a",
        "did:web:a#key",
        "did:web:a?x=1",
        "did:web:a/b",
        "did:web:a b",
        "did:web:ä",
        "did:web:a\n",
        " did:web:a",
        "did:web:a%",
        "did:web:a%3",
        "did:web:%3a",
        "did:web:%zz",
        "did:web:%41",
        "did:web:%2D",
        "did:web:%%3A",
        "did:web:%+3",
        "did:web:a~b",
        "did:web:%éé",
        "did:key:",
        "did:key:zabc",
        "did:key:example",
        too_long.as_str(),
    ] {
        assert!(Issuer::parse(bad).is_none(), "{bad:?}");
    }
}

#[test]
fn a_did_that_is_a_key_has_the_key() {
    let did = SigningKey::ed25519_from_seed([7; 32]).did();
    let issuer = Issuer::parse(did.as_str()).unwrap();
    assert_eq!(issuer.built_in_key(), Some(did.key()));
    assert!(Issuer::parse(DID).unwrap().built_in_key().is_none());
}

#[test]
fn three_spellings_of_a_key_id_are_one() {
    let issuer = Issuer::parse(DID).unwrap();
    for fragment in ["key-0", "z6Mk:a~b=c+d._", "0", &"k".repeat(128)] {
        for kid in [fragment.to_owned(), format!("#{fragment}"), format!("{DID}#{fragment}")] {
            assert_eq!(issuer.key_id(&kid), Some(fragment), "{kid}");
        }
    }
}

#[test]
fn what_is_no_key_id_is_refused_for_every_method() {
    let key = SigningKey::ed25519_from_seed([7; 32]).did();
    for did in [DID, key.as_str()] {
        let issuer = Issuer::parse(did).unwrap();
        let too_long = "k".repeat(129);
        for bad in [
            "",
            "#",
            "##a",
            "#a#b",
            "a b",
            "a\0",
            "a/b",
            "../../dev/null",
            "' OR 1=1 --",
            "1;DROP TABLE keys",
            "a'",
            "a%20",
            "ä",
            "a\n",
            " a",
            "did:web:other.example#key-0",
            "did:web:example.or#key-0",
            "a?b",
            too_long.as_str(),
        ] {
            assert_eq!(issuer.key_id(bad), None, "{bad:?}");
        }
        assert_eq!(issuer.key_id(&format!("{did}#")), None);
    }
}

#[test]
fn a_signer_key_is_the_did_that_is_a_key_else_did_and_key_id() {
    let key = SigningKey::ed25519_from_seed([7; 32]).did();
    let built_in = Issuer::parse(key.as_str()).unwrap();
    assert_eq!(built_in.signer_key(Some("key-0")).as_deref(), Some(key.as_str()));
    assert_eq!(built_in.signer_key(None).as_deref(), Some(key.as_str()));
    let foreign = Issuer::parse(DID).unwrap();
    assert_eq!(foreign.signer_key(Some("key-0")).as_deref(), Some("did:web:example.org#key-0"));
    assert_eq!(foreign.signer_key(None), None);
}
