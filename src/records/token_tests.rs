//! The rules of token.
