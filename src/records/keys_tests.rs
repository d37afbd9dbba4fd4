//! The rules of keys and their signatures.

use super::{Ed25519PublicKey, P256PublicKey, PublicKey, SigningKey};

fn keys() -> [SigningKey; 2] {
    [SigningKey::ed25519_from_seed([7; 32]), SigningKey::p256_from_scalar([7; 32]).unwrap()]
}

fn hex<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
    }
    bytes
}

/// RFC 8032, section 7.1, test 2.
#[test]
fn an_ed25519_seed_gives_the_key_and_signature_of_the_standard() {
    let key = SigningKey::ed25519_from_seed(hex(
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
    ));
    let public = hex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
    let signature = hex("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
         085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00");
    assert_eq!(
        key.public_key(),
        PublicKey::Ed25519(Ed25519PublicKey::from_bytes(&public).unwrap())
    );
    assert_eq!(key.sign(&[0x72]), signature);
}

#[test]
fn a_signature_fits_its_key_and_message_alone() {
    let [a, b] = keys();
    for (key, other) in [(&a, &b), (&b, &a)] {
        let signature = key.sign(b"message");
        assert!(key.public_key().verifies(b"message", &signature));
        assert!(!key.public_key().verifies(b"massage", &signature));
        assert!(!other.public_key().verifies(b"message", &signature));
        assert!(!key.public_key().verifies(b"message", &[0; 64]));
        for at in 0..64 {
            let mut changed = signature;
            changed[at] ^= 1;
            assert!(!key.public_key().verifies(b"message", &changed), "{key:?} byte {at}");
        }
    }
}

#[test]
fn the_other_s_of_a_p256_signature_is_refused() {
    let key = &keys()[1];
    for number in 0..8_u8 {
        let signature = p256::ecdsa::Signature::from_slice(&key.sign(&[number])).unwrap();
        let high = p256::ecdsa::Signature::from_scalars(signature.r(), -*signature.s()).unwrap();
        assert!(key.public_key().verifies(&[number], &signature.to_bytes().into()));
        assert!(!key.public_key().verifies(&[number], &high.to_bytes().into()));
    }
}

/// S + L is the same scalar, in a spelling that must not be taken.
#[test]
fn the_other_s_of_an_ed25519_signature_is_refused() {
    const L: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde,
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let key = &keys()[0];
    let mut signature = key.sign(b"message");
    let mut carry = 0;
    for (byte, add) in signature[32..].iter_mut().zip(L) {
        let sum = u16::from(*byte) + u16::from(add) + carry;
        *byte = u8::try_from(sum & 0xff).unwrap();
        carry = sum >> 8;
    }
    assert!(!key.public_key().verifies(b"message", &signature));
}

#[test]
fn points_that_are_no_keys_are_refused() {
    let small_order: [[u8; 32]; 5] = [
        hex("0100000000000000000000000000000000000000000000000000000000000000"),
        hex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
        hex("0000000000000000000000000000000000000000000000000000000000000000"),
        hex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
        hex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    ];
    let not_canonical: [[u8; 32]; 3] = [
        // y = p + 1, that is 1, and y = 1 with a sign that x = 0 has not.
        hex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
        hex("0100000000000000000000000000000000000000000000000000000000000080"),
        // y = p + 4: 4 is the y of a point of full order.
        hex("f1ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    ];
    let not_a_point = hex("0200000000000000000000000000000000000000000000000000000000000000");
    for bytes in small_order.iter().chain(&not_canonical).chain([&not_a_point]) {
        assert!(Ed25519PublicKey::from_bytes(bytes).is_err(), "{bytes:02x?}");
    }
    let four = hex("0400000000000000000000000000000000000000000000000000000000000000");
    assert!(Ed25519PublicKey::from_bytes(&four).is_ok(), "y = 4 is a key in its canonical form");

    let good = p256_bytes();
    assert!(P256PublicKey::from_bytes(&good).is_ok());
    for tag in [0, 1, 4, 5, 6, 7, 0xff] {
        let mut bytes = good;
        bytes[0] = tag;
        assert!(P256PublicKey::from_bytes(&bytes).is_err(), "tag {tag}");
    }
    let mut beyond_the_field = [0xff; 33];
    beyond_the_field[0] = 2;
    assert!(P256PublicKey::from_bytes(&beyond_the_field).is_err());
}

fn p256_bytes() -> [u8; 33] {
    match keys()[1].public_key() {
        PublicKey::P256(key) => key.to_bytes(),
        PublicKey::Ed25519(_) => [0; 33],
    }
}

#[test]
fn a_scalar_out_of_range_is_refused() {
    assert!(SigningKey::p256_from_scalar([0; 32]).is_err());
    assert!(SigningKey::p256_from_scalar([0xff; 32]).is_err());
}

#[test]
fn debug_shows_no_secret() {
    for key in keys() {
        let shown = format!("{key:?} {key:#?}");
        assert!(shown.contains("SigningKey"), "{shown}");
        assert!(!shown.contains("0707") && !shown.contains("7, 7"), "{shown}");
    }
}
