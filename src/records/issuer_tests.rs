//! The rules of issuer.
