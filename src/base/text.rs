//! What free text may hold. It knows no field and no length.

use super::error::{Error, Result};

/// Refuses text with NUL: not every database can hold it, and all must answer the same.
///
/// # Errors
/// [`Error::InvalidInput`] that names `field`.
pub(crate) fn check_nul(field: &'static str, text: &str) -> Result<()> {
    if text.contains('\0') {
        Err(Error::invalid(field, "expected no NUL character"))
    } else {
        Ok(())
    }
}
