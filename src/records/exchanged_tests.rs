//! The rules of exchanged.
