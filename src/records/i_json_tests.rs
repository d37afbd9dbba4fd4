//! The rules of i_json.
