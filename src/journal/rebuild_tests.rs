//! The read tables come back as they were.
