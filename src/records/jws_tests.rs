//! The examples of the standards. They have no claim, so they are read part by part.

use super::super::base64url::decode;
use super::Jws;
use crate::base::RecordFault;
use crate::records::{P256PublicKey, PublicKey, SigningKey};

fn bytes<const N: usize>(text: &str) -> [u8; N] {
    decode(text).unwrap().try_into().unwrap()
}

fn parts(token: &str) -> (&[u8], [u8; 64]) {
    let (signed, signature) = token.rsplit_once('.').unwrap();
    (signed.as_bytes(), bytes(signature))
}

/// RFC 8037, appendix A.4.
#[test]
fn the_eddsa_example_of_rfc_8037_verifies_and_is_made() {
    let token = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt\
                 7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    let key = SigningKey::ed25519_from_seed(bytes("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"));
    let (signed, signature) = parts(token);
    assert!(key.public_key().verifies(signed, &signature));
    assert_eq!(key.sign(signed), signature);
}

/// RFC 7515, appendix A.3.
#[test]
fn the_es256_example_of_rfc_7515_verifies_with_its_low_s() {
    let signed =
        b"eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFt\
                   cGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let x: [u8; 32] = bytes("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU");
    let y: [u8; 32] = bytes("x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0");
    let point: Vec<u8> = [2 + (y[31] & 1)].into_iter().chain(x).collect();
    let key = P256PublicKey::from_bytes(&point.try_into().unwrap()).map(PublicKey::P256).unwrap();
    let secret = bytes("jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI");
    assert_eq!(SigningKey::p256_from_scalar(secret).unwrap().public_key(), key);

    // The example's s is the greater of the two that fit, so it is refused, and the other is taken.
    let given =
        "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
    let low =
        "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmU69fgrc8OPGycO0lD3tat_FoFp57SETepkeks4eL_QfA";
    assert!(!key.verifies(signed, &bytes(given)));
    assert!(key.verifies(signed, &bytes(low)));
}

#[test]
fn a_header_of_the_examples_names_no_typ_and_is_refused() {
    let token = "eyJhbGciOiJFZERTQSJ9.e30.";
    let fault = Jws::parse(token).map(|_| ());
    assert_eq!(fault, Err(RecordFault::Header { reason: "expected the typ JWT" }));
}
