//! The rules of decimal values.

use proptest::prelude::*;

use super::Decimal;

#[test]
fn spellings_of_one_value_are_equal() {
    for same in [
        &["0", "-0", "0.0", "-0.0", "0e5", "-0.000E-5", "0e99999999999999999999"][..],
        &["1", "1.0", "1e0", "10e-1", "0.1E+1", "1.000e+00"],
        &["-12.5", "-125e-1", "-0.00125e4"],
        &["1e21", "1000000000000000000000", "1e+21"],
    ] {
        for text in same {
            assert_eq!(Decimal::parse(text), Decimal::parse(same[0]), "{text}");
            assert!(Decimal::parse(text).is_some(), "{text}");
        }
    }
}

#[test]
fn other_values_are_not_equal() {
    let values =
        ["0", "1", "-1", "10", "0.1", "1e21", "1e-21", "9007199254740992", "9007199254740993"];
    for (at, a) in values.iter().enumerate() {
        for b in &values[at + 1..] {
            assert_ne!(Decimal::parse(a), Decimal::parse(b), "{a} {b}");
        }
    }
}

#[test]
fn what_is_no_number_of_json_is_refused() {
    for bad in [
        "", "-", "+1", "01", "-01", "00", "1.", ".1", "1.e1", "1e", "1e+", "1e1.5", "1e1e1",
        "1.2.3", "--1", "1-1", "1e--1", "NaN", "Infinity", "0x10", "1_0", " 1", "1 ", "١",
    ] {
        assert_eq!(Decimal::parse(bad), None, "{bad:?}");
    }
}

#[test]
fn seconds_are_rounded_up_to_milliseconds() {
    for (seconds, ms) in [
        ("0", Some(0)),
        ("-0", Some(0)),
        ("1767225600", Some(1_767_225_600_000)),
        ("1.7672256e9", Some(1_767_225_600_000)),
        ("1767225600.25", Some(1_767_225_600_250)),
        ("1767225600.001", Some(1_767_225_600_001)),
        ("1767225600.0001", Some(1_767_225_600_001)),
        ("0.0005", Some(1)),
        ("1e-300", Some(1)),
        ("9223372036854775.807", Some(i64::MAX)),
        ("9223372036854775.8071", None),
        ("9223372036854775.808", None),
        ("1e16", None),
        ("1e300", None),
        ("-1", None),
        ("-0.0001", None),
    ] {
        let read = Decimal::parse(seconds).unwrap();
        assert_eq!(read.seconds_to_ms(), ms, "{seconds}");
    }
}

proptest! {
    #[test]
    fn a_point_and_an_exponent_are_two_spellings(
        digits in "[1-9][0-9]{0,20}",
        shift in 0_usize..20,
    ) {
        let zeros = "0".repeat(20);
        let padded = format!("{zeros}{digits}");
        let (whole, fraction) = padded.split_at(padded.len() - shift);
        let whole = whole.trim_start_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        let pointed = if shift == 0 { whole.to_owned() } else { format!("{whole}.{fraction}") };
        prop_assert_eq!(Decimal::parse(&pointed), Decimal::parse(&format!("{digits}e-{shift}")));
    }
}
