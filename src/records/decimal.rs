//! The value of a number as it is written in JSON, without rounding.

/// A decimal value: digits times a power of ten. Equal values are equal, however they were written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    is_negative: bool,
    /// Without zeros at either end; empty for zero.
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// The value of a number in the grammar of JSON. An exponent beyond `i64` counts as the last
    /// one: no float comes near either.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent)?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((whole, fraction)) if is_digits(fraction) => (whole, fraction),
            Some(_) => return None,
            None => (mantissa, ""),
        };
        if !is_digits(whole) || (whole.len() > 1 && whole.starts_with('0')) {
            return None;
        }
        let all = format!("{whole}{fraction}");
        let significant = all.trim_end_matches('0');
        let digits = significant.trim_start_matches('0').to_owned();
        if digits.is_empty() {
            return Some(Self { is_negative: false, digits, exponent: 0 });
        }
        let zeros = i64::try_from(all.len() - significant.len()).ok()?;
        let fraction = i64::try_from(fraction.len()).ok()?;
        let exponent = exponent.saturating_add(zeros).saturating_sub(fraction);
        Some(Self { is_negative: text.starts_with('-'), digits, exponent })
    }

    /// A time in whole milliseconds, of one in seconds: not before the epoch, rounded up.
    pub(super) fn seconds_to_ms(&self) -> Option<i64> {
        if self.digits.is_empty() {
            return Some(0);
        }
        let power = self.exponent.checked_add(3)?;
        // The last digit is not zero, so what is cut off is more than nothing.
        let (kept, is_cut, zeros) = if power < 0 {
            let cut = usize::try_from(power.unsigned_abs()).ok()?;
            (self.digits.len().saturating_sub(cut), true, 0)
        } else {
            (self.digits.len(), false, u32::try_from(power).ok()?)
        };
        let whole = match self.digits.get(..kept)? {
            "" => 0,
            digits => digits.parse::<i64>().ok()?,
        };
        let ms = whole.checked_mul(10_i64.checked_pow(zeros)?)?.checked_add(i64::from(is_cut))?;
        (!self.is_negative).then_some(ms)
    }
}

fn parse_exponent(text: &str) -> Option<i64> {
    let is_negative = text.starts_with('-');
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !is_digits(digits) {
        return None;
    }
    let size = digits.parse::<i64>().unwrap_or(i64::MAX);
    Some(if is_negative { -size } else { size })
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
#[path = "decimal_tests.rs"]
mod tests;
