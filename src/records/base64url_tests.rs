//! The rules of base64url.
