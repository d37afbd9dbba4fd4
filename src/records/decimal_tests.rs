//! The rules of decimal.
