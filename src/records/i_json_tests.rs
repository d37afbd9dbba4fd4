//! The rules of I-JSON and its canonical form.

use proptest::prelude::*;

use super::{JsonValue, canonical};

fn form(text: &str) -> Result<String, &'static str> {
    JsonValue::read(text.as_bytes()).and_then(|value| canonical(&value))
}

/// RFC 8785, sections 3.2.2 to 3.2.4.
#[test]
fn the_examples_of_the_standard_come_to_its_form() {
    let large = r#"{
        "numbers": [333333333.3333333, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let expected = r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
    assert_eq!(form(large).as_deref(), Ok(expected));
    // The standard's own text has a digit more in its first number, which a float rounds.
    let rounded = large.replace("333333333.3333333,", "333333333.33333329,");
    assert!(rounded != large && form(&rounded).is_err());

    let names = r#"{
        "\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis"
    }"#;
    let expected = "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\"ö\":\"Latin \
                    Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning \
                    Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}";
    assert_eq!(form(names).as_deref(), Ok(expected));
}

/// RFC 8785, appendix B, with the bits of the float.
#[test]
fn numbers_have_the_form_of_the_standard() {
    for (bits, expected) in [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ] {
        let number = JsonValue::Number(f64::from_bits(bits));
        let written = canonical(&number).unwrap();
        let read = JsonValue::read(written.as_bytes());
        assert!(read.as_ref().is_ok_and(|read| *read == number), "{written}");
        assert_eq!(written, expected, "{bits:x}");
    }
}

#[test]
fn a_number_that_a_float_rounds_is_refused() {
    for good in [
        "9007199254740992",
        "9007199254740994",
        "0.1",
        "-0",
        "-0.0",
        "0e999",
        "1.0",
        "100e-2",
        "1E5",
        "5e-324",
        "1.7976931348623157e308",
        "123456789012345680000",
        "0.000000000000000000000000001",
    ] {
        assert!(form(good).is_ok(), "{good}");
    }
    let many_digits = format!("0.1{}1", "0".repeat(400));
    let long = format!("1{}", "0".repeat(40_000));
    for bad in [
        "9007199254740993",
        "-9007199254740993",
        "18446744073709551615",
        "1e400",
        "-1e400",
        "1e309",
        "1e-400",
        "1e-324",
        "0.10000000000000001",
        "333333333.33333329",
        "1.7976931348623159e308",
        "1e99999999999999999999",
        "1e-99999999999999999999",
        "123456789012345678901234567890",
        many_digits.as_str(),
        long.as_str(),
    ] {
        assert_eq!(form(bad), Err("expected JSON without numbers that a 64-bit float rounds"));
    }
    assert_eq!(form("[-0.0,0,1.0,1]").as_deref(), Ok("[0,0,1,1]"));
}

#[test]
fn a_second_member_of_one_name_is_refused_at_every_depth() {
    for bad in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"b":2,"a":3}"#,
        r#"{"al\u0067":1,"alg":2}"#,
        r#"{"x":{"a":1,"a":2}}"#,
        r#"[[{"a":{"b":[{"":0,"":0}]}}]]"#,
        r#"{"\ud83d\ude00":1,"😀":2}"#,
        r#"{"/":1,"\/":2}"#,
    ] {
        assert_eq!(form(bad), Err("expected JSON without a second member of one name"), "{bad}");
    }
    assert!(form(r#"{"a":{"a":{"a":1}},"A":1,"ä":1,"a\u0308":1}"#).is_ok());
}

#[test]
fn bad_unicode_is_refused_and_never_replaced() {
    for bad in [
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ude00\ud83d""#,
        r#""\ud83d""#,
        r#""\ud83dx""#,
        r#""\ud83d\n""#,
        r#""\ud83d\u0041""#,
        r#""\ud83d\ud83d\ude00""#,
        r#"{"\ud800":1}"#,
    ] {
        assert_eq!(form(bad), Err("expected JSON without half a surrogate pair"), "{bad}");
    }
    for bad in
        [&b"\"\xff\""[..], b"\"\xed\xa0\x80\"", b"\"\xc0\x80\"", b"\xff\xfe", b"{\"\xff\":1}"]
    {
        assert!(matches!(JsonValue::read(bad), Err("expected UTF-8")), "{bad:?}");
    }
    for bad in
        ["\"\u{ffff}\"", "\"\\uffff\"", "\"\\ufdd0\"", "\"\\ud83f\\udfff\"", "{\"\u{fffe}\":0}"]
    {
        let expected = "expected JSON without code points that are no characters";
        assert_eq!(form(bad), Err(expected), "{bad}");
    }
    // The replacement character is a character like another.
    assert_eq!(
        form("\"\\ufffd\u{fffd}\\ufdcf\\ufdf0\"").as_deref(),
        Ok("\"\u{fffd}\u{fffd}\u{fdcf}\u{fdf0}\"")
    );
}

#[test]
fn names_are_ordered_by_utf_16() {
    let text = "{\"\u{fb33}\":1,\"😀\":2,\"\u{e000}\":3,\"z\":4,\"\":5,\"a\":6,\"aa\":7,\"A\":8}";
    let expected =
        "{\"\":5,\"A\":8,\"a\":6,\"aa\":7,\"z\":4,\"😀\":2,\"\u{e000}\":3,\"\u{fb33}\":1}";
    assert_eq!(form(text).as_deref(), Ok(expected));
}

#[test]
fn what_is_no_json_is_refused() {
    for bad in [
        "",
        " ",
        "{",
        "}",
        "[",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        "nul",
        "nullx",
        "True",
        "NaN",
        "Infinity",
        "-",
        "01",
        "+1",
        ".5",
        "1.",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\x41\"",
        "\"\\u12\"",
        "\"\\u+123\"",
        "\"\\u12g4\"",
        "\"\\u00e\u{e9}\"",
        "\"\n\"",
        "\"\t\"",
        "\"\0\"",
        "1 2",
        "{} {}",
        "[]]",
        "\u{feff}{}",
        "/**/1",
        "1//",
        "\u{a0}1",
        "\u{c}1",
        "[1}",
        "{\"a\":1]",
        "\"a\" \"b\"",
    ] {
        assert!(form(bad).is_err(), "{bad:?}");
    }
    assert_eq!(
        form(" \t\r\n{ \"a\" :\n[ ] , \"b\" : { } } ").as_deref(),
        Ok("{\"a\":[],\"b\":{}}")
    );
    assert_eq!(
        form("\"\u{7f}\\b\\f\\n\\r\\t\\u0000\"").as_deref(),
        Ok("\"\u{7f}\\b\\f\\n\\r\\t\\u0000\"")
    );
}

#[test]
fn depth_is_bounded_and_needs_no_stack() {
    let expected = "expected JSON nested at most 128 deep";
    let arrays = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let objects = |depth: usize| "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
    for depth in [1, 127, 128] {
        assert!(form(&arrays(depth)).is_ok() && form(&objects(depth)).is_ok(), "{depth}");
    }
    for depth in [129, 5_000, 1_000_000] {
        assert_eq!(form(&arrays(depth)), Err(expected), "{depth}");
        assert_eq!(form(&objects(depth)), Err(expected), "{depth}");
        assert!(form(&"[".repeat(depth)).is_err(), "{depth}");
    }
    // Breadth has no bound of its own.
    let wide = format!("[{}0]", "0,".repeat(100_000));
    assert_eq!(form(&wide).as_deref(), Ok(wide.as_str()));
}

proptest! {
    #[test]
    fn the_canonical_form_is_its_own_canonical_form(text in json()) {
        let once = form(&text);
        if let Ok(once) = once {
            let again = form(&once);
            prop_assert_eq!(again.as_deref(), Ok(once.as_str()));
        }
    }

    #[test]
    fn it_takes_nothing_that_another_reader_refuses(text in "[\\[\\]{}\":,0-9eE.+a\\\\ \n-]{0,20}") {
        if let Ok(canonical) = form(&text) {
            let other: serde_json::Value = serde_json::from_str(&text).unwrap();
            let again: serde_json::Value = serde_json::from_str(&canonical).unwrap();
            prop_assert_eq!(other.is_number(), again.is_number());
            prop_assert_eq!(other.as_f64().map(|n| n + 0.0), again.as_f64());
        }
    }

    #[test]
    fn every_float_comes_back(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        prop_assume!(value.is_finite());
        let written = canonical(&JsonValue::Number(value)).unwrap();
        let read = JsonValue::read(written.as_bytes());
        prop_assert!(read.is_ok_and(|read| read == JsonValue::Number(value)), "{}", written);
    }

    #[test]
    fn every_text_without_noncharacters_comes_back(text in ".{0,20}") {
        let value = JsonValue::Text(text.clone());
        let read = JsonValue::read(canonical(&value).unwrap().as_bytes());
        prop_assert_eq!(read.is_ok_and(|read| read == value), super::is_text(&text));
    }
}

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(|n| format!("{n:e}")),
        "[a-z😀é]{0,3}".prop_map(|text| format!("\"{text}\"")),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let member = ("[a-c\u{fb33}😀]{1,2}", inner.clone());
        prop_oneof![
            proptest::collection::vec(inner, 0..4)
                .prop_map(|items| format!("[{}]", items.join(","))),
            proptest::collection::vec(member, 0..4).prop_map(|members| {
                let members: Vec<_> =
                    members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
                format!("{{ {} }}", members.join(" , "))
            }),
        ]
    })
}
