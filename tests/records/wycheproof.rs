//! The signature tests of Project Wycheproof. Every one is asked; where ours is stricter, it says why.

use connector_store::records::{Ed25519PublicKey, P256PublicKey, PublicKey};
use wycheproof::TestResult;

#[test]
fn ed25519_signatures_are_judged_as_wycheproof_judges_them() {
    let set = wycheproof::eddsa::TestSet::load(wycheproof::eddsa::TestName::Ed25519).unwrap();
    let mut asked = 0;
    for group in &set.test_groups {
        let bytes: [u8; 32] = group.key.pk[..].try_into().unwrap();
        // A key that is refused verifies nothing.
        let key = Ed25519PublicKey::from_bytes(&bytes).ok().map(PublicKey::Ed25519);
        for test in &group.tests {
            // A signature of another length can't be asked for.
            let is_valid = key.as_ref().is_some_and(|key| {
                test.sig[..].try_into().is_ok_and(|sig| key.verifies(&test.msg, sig))
            });
            let expected = matches!(test.result, TestResult::Valid | TestResult::Acceptable);
            assert_eq!(is_valid, expected, "{} {}", test.tc_id, test.comment);
            asked += 1;
        }
    }
    assert_eq!(asked, set.number_of_tests);
    assert!(asked > 100, "{asked}");
}

#[test]
fn p256_signatures_are_judged_as_wycheproof_judges_them_but_for_a_high_s() {
    let name = wycheproof::ecdsa::TestName::EcdsaSecp256r1Sha256P1363;
    let set = wycheproof::ecdsa::TestSet::load(name).unwrap();
    let (mut asked, mut high) = (0, 0);
    for group in &set.test_groups {
        let key = PublicKey::P256(P256PublicKey::from_bytes(&compressed(&group.key.key)).unwrap());
        for test in &group.tests {
            let sig: Option<&[u8; 64]> = test.sig[..].try_into().ok();
            let is_valid = sig.is_some_and(|sig| key.verifies(&test.msg, sig));
            let expected = matches!(test.result, TestResult::Valid | TestResult::Acceptable);
            // Wycheproof takes both s and n - s. One message has one signature here, so the
            // greater of the two is refused, and its twin is taken in its place.
            let is_high = expected && sig.is_some_and(|sig| is_above_half(&sig[32..]));
            let said = (test.tc_id, &test.comment);
            assert_eq!(is_valid, expected && !is_high, "{said:?}");
            if is_high {
                let twin = twin(sig.unwrap());
                assert!(key.verifies(&test.msg, &twin), "{said:?}");
                high += 1;
            }
            asked += 1;
        }
    }
    assert_eq!(asked, set.number_of_tests);
    assert!(asked > 200 && high > 0, "{asked} {high}");
}

/// The order of P-256.
const ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6,
    0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];

fn compressed(uncompressed: &[u8]) -> [u8; 33] {
    assert_eq!((uncompressed.len(), uncompressed[0]), (65, 4));
    let mut bytes = [0; 33];
    bytes[0] = 2 + (uncompressed[64] & 1);
    bytes[1..].copy_from_slice(&uncompressed[1..33]);
    bytes
}

/// n - s.
fn complement(s: &[u8]) -> [u8; 32] {
    let mut result = [0; 32];
    let mut borrow = 0;
    for at in (0..32).rev() {
        let difference = i16::from(ORDER[at]) - i16::from(s[at]) - borrow;
        borrow = i16::from(difference < 0);
        result[at] = u8::try_from(difference.rem_euclid(256)).unwrap();
    }
    result
}

fn is_above_half(s: &[u8]) -> bool {
    s > &complement(s)[..]
}

fn twin(signature: &[u8; 64]) -> [u8; 64] {
    let mut twin = *signature;
    twin[32..].copy_from_slice(&complement(&signature[32..]));
    twin
}
