//! Times as the store keeps them: milliseconds since the epoch, and RFC 3339 text.
//!
//! It knows no clock; where `now` comes from is the caller's matter.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::{Error, Result};
use super::limits::MAX_RFC3339_BYTES;

/// Milliseconds since 1970-01-01T00:00:00Z. Arithmetic saturates.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The time this many milliseconds after the epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This time and `millis` more.
    #[must_use]
    pub const fn plus_millis(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// This time and `duration` more.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        self.plus_millis(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
    }
}

/// As RFC 3339 text, for people.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Rfc3339::from_timestamp(*self).as_str())
    }
}

/// A time as RFC 3339 text (`2026-01-31T08:00:00Z`), kept as it was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rfc3339(String);

impl Rfc3339 {
    /// Takes `text` if it is an RFC 3339 date-time.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for the field `last_synced_at` otherwise.
    pub fn parse(text: &str) -> Result<Self> {
        if is_rfc3339(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(Error::invalid(
                "last_synced_at",
                "expected an RFC 3339 date-time such as 2026-01-31T08:00:00Z",
            ))
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The UTC text of `at`, to the millisecond; years outside 0–9999 are held at the nearest end.
    #[must_use]
    pub fn from_timestamp(at: Timestamp) -> Self {
        const YEAR_0: i64 = -62_167_219_200_000;
        const YEAR_9999_END: i64 = 253_402_300_799_999;
        let millis = at.as_millis().clamp(YEAR_0, YEAR_9999_END);
        let (days, in_day) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000));
        let (year, month, day) = civil_from_days(days);
        let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
        let (second, milli) = (in_day / 1_000 % 60, in_day % 1_000);
        Self(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z"))
    }
}

impl TryFrom<String> for Rfc3339 {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<Rfc3339> for String {
    fn from(value: Rfc3339) -> Self {
        value.0
    }
}

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Year, month and day of the proleptic Gregorian calendar, from days since the epoch.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

fn is_rfc3339(text: &str) -> bool {
    let bytes = text.as_bytes();
    if !(20..=MAX_RFC3339_BYTES).contains(&bytes.len()) || !text.is_ascii() {
        return false;
    }
    let number = |from: usize, to: usize| -> Option<u32> {
        let part = text.get(from..to)?;
        part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?
    };
    let punctuation = bytes[4] == b'-'
        && bytes[7] == b'-'
        && matches!(bytes[10], b'T' | b't')
        && bytes[13] == b':'
        && bytes[16] == b':';
    let (Some(year), Some(month), Some(day)) = (number(0, 4), number(5, 7), number(8, 10)) else {
        return false;
    };
    let (Some(hour), Some(minute), Some(second)) = (number(11, 13), number(14, 16), number(17, 19))
    else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    let in_range = (1..=days).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    punctuation && in_range && is_fraction_and_offset(&text[19..])
}

fn is_fraction_and_offset(rest: &str) -> bool {
    let offset = match rest.strip_prefix('.') {
        Some(fraction) => {
            let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 {
                return false;
            }
            &fraction[digits..]
        }
        None => rest,
    };
    if matches!(offset, "Z" | "z") {
        return true;
    }
    let bytes = offset.as_bytes();
    bytes.len() == 6
        && matches!(bytes[0], b'+' | b'-')
        && bytes[3] == b':'
        && offset[1..3].parse::<u32>().is_ok_and(|hour| hour < 24 && bytes[1].is_ascii_digit())
        && offset[4..6].parse::<u32>().is_ok_and(|minute| minute < 60 && bytes[4].is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_is_taken_or_refused() {
        for good in
            ["2026-01-31T08:00:00Z", "2024-02-29T23:59:60+05:30", "0000-01-01t00:00:00.123456z"]
        {
            assert!(Rfc3339::parse(good).is_ok(), "{good}");
        }
        let endless = format!("2026-01-31T08:00:00.{}Z", "1".repeat(MAX_RFC3339_BYTES));
        for bad in [
            endless.as_str(),
            "",
            "2026-01-31",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-31T24:00:00Z",
            "2026-01-31T08:00:00",
            "2026-01-31T08:00:00.Z",
            "2026-01-31T08:00:00+5:30",
            "2026-01-31T08:00:00+-1:30",
            "２026-01-31T08:00:00Z",
            "2026-01-31T08:00:00Zx",
        ] {
            assert!(Rfc3339::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_timestamp_has_its_text() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_772_323_199_999, "2026-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
            (i64::MIN, "0000-01-01T00:00:00.000Z"),
        ];
        for (millis, text) in cases {
            let written = Rfc3339::from_timestamp(Timestamp::from_millis(millis));
            assert_eq!(written.as_str(), text);
            assert!(Rfc3339::parse(text).is_ok(), "{text}");
        }
    }
}
