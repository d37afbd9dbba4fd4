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

/// Made for these tests with the secret scalar SHA-256("edge"): each satisfies the equation of
/// verification, with or without the cofactor.
#[test]
fn an_ed25519_signature_with_a_point_of_small_order_is_refused() {
    let key = "ecca903340f79636716a49e9b77e754613e08d67f83455d1cea5b947b32e82c6";
    let mixed_key = "a3327aceb7160937843fc4ad6b0673ef0479431515ea3f02f3274aabff831767";
    let verifies = |key: &str, signature: &str| {
        let key = PublicKey::Ed25519(Ed25519PublicKey::from_bytes(&hex(key)).unwrap());
        key.verifies(b"message", &hex(signature))
    };
    for (what, key, signature) in [
        (
            "R is the neutral point: it holds without the cofactor",
            key,
            "01000000000000000000000000000000000000000000000000000000000000002ce1465ca3ac0fe9\
             725de3fbbc6afccfe1a36c390352d08274ba36486f0bed06",
        ),
        (
            "R is the neutral point, y written as p + 1",
            key,
            "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7ff80fcbf4a4951325\
             e90ee17c5431e8ebbaf3e55e591ccf30e5916bbec449a30d",
        ),
        (
            "R is the neutral point, with a sign that 0 has not",
            key,
            "01000000000000000000000000000000000000000000000000000000000000808758daa9ac68fa5d\
             6b19e9c24dc5eb317a54f0a111729ef8ed9ccedec5af3307",
        ),
        (
            "R is of order 2",
            key,
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7fb1c34aad05f02e86\
             f562b7ea57660ec213a965d009a727ff30073ae065b9f907",
        ),
        (
            "R is of order 4",
            key,
            "00000000000000000000000000000000000000000000000000000000000000805d7f462cef4dffce\
             66eda567d88e7476a645839ab0e66c2913386a89ed768608",
        ),
        (
            "R is of order 8",
            key,
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a2c6e7e6532ad2d8d\
             1b71e4f9b62bd16a2b25ab2c9a23655c697f25230aab280c",
        ),
        (
            "the key has a part of small order, and it holds with the cofactor alone",
            mixed_key,
            "1d84c09c915b1e355f4130b3950f6754270b37696f36f1b6ca5d4a9b4cf48860aba91627ff29fbea\
             85f6332f205904024da7b0bdc10488cd33ab1eb150fd690b",
        ),
    ] {
        assert!(!verifies(key, signature), "{what}");
    }
    // Key and R have parts of small order that cancel out: the equation holds as it is written, and
    // neither point is itself of small order.
    assert!(verifies(
        mixed_key,
        "3f1cd3ec12319bbe09dc4f55283b4a6d920ecbc57968915891c872b2fcc04418a3a9e7058c8c009ce4be0d61\
         8d5ccd7e3c55b5ecba89807693afc9b5f0fb8f03"
    ));
}
