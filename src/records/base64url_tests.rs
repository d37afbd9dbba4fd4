//! The rules of base64url.

use proptest::prelude::*;

use super::{decode, encode};

#[test]
fn a_text_of_the_standard_is_read() {
    for (bytes, text) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg")]
    {
        assert_eq!(encode(bytes.as_bytes()), text);
        assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
    }
    assert_eq!(decode("-_8").as_deref(), Some(&[0xfb, 0xff][..]));
}

#[test]
fn another_spelling_is_refused() {
    for (what, text) in [
        ("spare bits", "Zh"),
        ("spare bits", "Zm9"),
        ("padding", "Zg=="),
        ("padding", "Zm8="),
        ("padding within", "Zg==Zg=="),
        ("the other alphabet", "+/8"),
        ("a newline", "Zm9v\n"),
        ("a newline within", "Zm\n9v"),
        ("white space", " Zm9v"),
        ("white space", "Zm9v "),
        ("junk after", "Zm9v!"),
        ("a NUL", "Zm9v\0"),
        ("a letter beyond ASCII", "Zm9ä"),
        ("a length that no bytes have", "Z"),
        ("a length that no bytes have", "Zm9vZ"),
    ] {
        assert_eq!(decode(text), None, "{what}: {text:?}");
    }
}

proptest! {
    #[test]
    fn bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
    }

    #[test]
    fn any_text_is_refused_or_the_one_text_of_its_bytes(text in "[A-Za-z0-9_=+/-]{0,12}") {
        prop_assert!(decode(&text).is_none_or(|bytes| encode(&bytes) == text));
    }
}
