//! The rules of signer.
