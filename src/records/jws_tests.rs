//! The rules of jws.
