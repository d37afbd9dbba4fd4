//! The hybrid logical clock: stamps whose text order is their clock order, and the clock that
//! gives them.
//!
//! It knows no wall clock: the wall time is an argument.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::{Error, Result};

/// How far a remote stamp may be ahead of the wall clock, unless the host says otherwise: more than
/// the clocks of two hosts that are kept by NTP ever differ.
pub const DEFAULT_MAX_DRIFT: Duration = Duration::from_secs(60);

/// Longest node name: keeps a stamp below 100 bytes.
const MAX_NODE_BYTES: usize = 64;
/// Digits of the milliseconds. Fixed, so that text order is clock order.
const MS_DIGITS: usize = 15;
/// Hex digits of the counter. Fixed for the same reason.
const COUNTER_DIGITS: usize = 8;
/// The last millisecond that has a text: about the year 33658.
const MAX_MS: i64 = 999_999_999_999_999;

/// A clock stamp, `<15 digits of ms>-<8 hex digits of counter>-<node>`.
///
/// Only the canonical text is a stamp, nothing is repaired. Order is that of the clock: ms, counter,
/// node; the order of the texts is the same.
///
/// ```
/// use connector_store::records::Hlc;
///
/// let stamp = Hlc::parse("001767225600000-00000000-node-a").unwrap();
/// assert_eq!(stamp.wall_ms(), 1_767_225_600_000);
/// assert!(Hlc::parse("1767225600000-0-node-a").is_none());
/// ```
// The derived order goes by the fields in this order: of equal ms and counter, text order is node
// order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hlc {
    ms: i64,
    counter: u32,
    text: Arc<str>,
}

impl Hlc {
    /// The stamp of a text, if the text is canonical.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (ms, rest) = text.split_at_checked(MS_DIGITS)?;
        let (counter, node) = rest.strip_prefix('-')?.split_at_checked(COUNTER_DIGITS)?;
        let is_counter_digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        // Checked by hand, because the number parsers take a sign and upper-case digits.
        if !ms.bytes().all(|b| b.is_ascii_digit())
            || !counter.bytes().all(is_counter_digit)
            || !is_node(node.strip_prefix('-')?)
        {
            return None;
        }
        Some(Self {
            ms: ms.parse().ok()?,
            counter: u32::from_str_radix(counter, 16).ok()?,
            text: Arc::from(text),
        })
    }

    fn from_parts(ms: i64, counter: u32, node: &str) -> Self {
        let text = format!("{ms:015}-{counter:08x}-{node}");
        Self { ms, counter, text: text.into() }
    }

    /// The canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The canonical text, shared.
    #[must_use]
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn wall_ms(&self) -> i64 {
        self.ms
    }

    /// Tells stamps of one millisecond apart.
    #[must_use]
    pub const fn counter(&self) -> u32 {
        self.counter
    }

    /// The node that gave the stamp.
    #[must_use]
    pub fn node(&self) -> &str {
        self.text.get(MS_DIGITS + COUNTER_DIGITS + 2..).unwrap_or_default()
    }
}

fn is_node(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'-');
    (1..=MAX_NODE_BYTES).contains(&text.len()) && text.bytes().all(allowed)
}

impl fmt::Display for Hlc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Hlc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hlc({})", self.text)
    }
}

impl TryFrom<String> for Hlc {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
            .ok_or_else(|| Error::invalid("hlc", "expected a canonical hybrid logical clock stamp"))
    }
}

impl From<Hlc> for String {
    fn from(value: Hlc) -> Self {
        value.text.as_ref().to_owned()
    }
}

/// Gives stamps that only grow, whatever the wall clock does.
#[derive(Clone, Debug)]
pub struct HlcClock {
    node: Arc<str>,
    max_drift_ms: i64,
    /// Milliseconds and counter of the greatest stamp given or seen.
    greatest: Option<(i64, u32)>,
}

impl HlcClock {
    /// A clock that has given and seen nothing. See [`DEFAULT_MAX_DRIFT`].
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for the field `node` unless it is 1 to 64 of `[A-Za-z0-9_.:-]`.
    pub fn new(node: &str, max_drift: Duration) -> Result<Self> {
        if !is_node(node) {
            return Err(Error::invalid("node", "expected 1 to 64 of A-Z a-z 0-9 _ . : -"));
        }
        let max_drift_ms = i64::try_from(max_drift.as_millis()).unwrap_or(i64::MAX);
        Ok(Self { node: Arc::from(node), max_drift_ms, greatest: None })
    }

    /// This clock, with every stamp to come above `greatest`: after a restart, the greatest stamp of
    /// the store. It was let in before, so its drift is not asked again.
    #[must_use]
    pub fn starting_above(mut self, greatest: &Hlc) -> Self {
        self.advance(greatest);
        self
    }

    /// The next stamp: greater than all that this clock has given or seen.
    ///
    /// A wall clock that steps back, even to before the epoch, never makes it step back.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for the field `wall_ms` when the time has no canonical text, and when
    /// the clock is at the last stamp there is. The clock is then as it was.
    pub fn now(&mut self, wall_ms: i64) -> Result<Hlc> {
        let wall_ms = checked_wall(wall_ms)?;
        let (ms, counter) = match self.greatest {
            Some((ms, counter)) if wall_ms <= ms => match counter.checked_add(1) {
                Some(counter) => (ms, counter),
                None => (ms + 1, 0),
            },
            _ => (wall_ms, 0),
        };
        if ms > MAX_MS {
            return Err(Error::invalid("wall_ms", "no stamp is left above the greatest one seen"));
        }
        self.greatest = Some((ms, counter));
        Ok(Hlc::from_parts(ms, counter, &self.node))
    }

    /// Takes a remote stamp over, so that every stamp to come is above it.
    ///
    /// # Errors
    /// [`Error::HlcDrift`] when it is more than the allowed drift ahead of the wall clock,
    /// [`Error::InvalidInput`] as [`Self::now`] gives it. The clock is then as it was.
    pub fn observe(&mut self, remote: &Hlc, wall_ms: i64) -> Result<()> {
        let ahead_ms = remote.ms - checked_wall(wall_ms)?;
        if ahead_ms > self.max_drift_ms {
            return Err(Error::HlcDrift { ahead_ms, max_drift_ms: self.max_drift_ms });
        }
        self.advance(remote);
        Ok(())
    }

    /// Refuses when this clock itself runs ahead: its next stamp would be refused by others whose
    /// wall clock shows `wall_ms`. So a node notices that its own clock was wrong.
    ///
    /// # Errors
    /// [`Error::HlcDrift`], or [`Error::InvalidInput`] as [`Self::now`] gives it.
    pub fn check_own_drift(&self, wall_ms: i64) -> Result<()> {
        let wall_ms = checked_wall(wall_ms)?;
        match self.greatest {
            Some((ms, _)) if ms - wall_ms > self.max_drift_ms => {
                Err(Error::HlcDrift { ahead_ms: ms - wall_ms, max_drift_ms: self.max_drift_ms })
            }
            _ => Ok(()),
        }
    }

    fn advance(&mut self, seen: &Hlc) {
        self.greatest = self.greatest.max(Some((seen.ms, seen.counter)));
    }
}

/// A time before the epoch counts as the epoch: it is a wall clock that stepped back. One without a
/// canonical text is refused, for a stamp from it would stand above all honest ones.
fn checked_wall(wall_ms: i64) -> Result<i64> {
    if wall_ms > MAX_MS {
        return Err(Error::invalid("wall_ms", format!("expected at most {MAX_MS}")));
    }
    Ok(wall_ms.max(0))
}

#[cfg(test)]
#[path = "hlc_tests.rs"]
mod tests;
