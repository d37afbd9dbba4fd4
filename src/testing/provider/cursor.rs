//! What is in a cursor. Connectors see its text alone.

use super::wire::Cursor;
use crate::base::SourceId;

/// What a cursor is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    List,
    Sync,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) purpose: Purpose,
    /// Which account's.
    pub(super) account: usize,
    /// The partition's generation when it was given.
    pub(super) generation: u64,
    /// The last change before it: of a listing, when that began.
    pub(super) change: u64,
    /// Entities that the listing has shown and that are not in the partition.
    pub(super) extra: u64,
    /// The last entity that was shown.
    pub(super) after: Option<SourceId>,
}

impl Place {
    pub(super) fn cursor(&self) -> Cursor {
        let Self { account, generation, change, extra, .. } = self;
        let purpose = if self.purpose == Purpose::List { "list" } else { "sync" };
        // Last, because it may have the mark between the fields in it. No id is empty.
        let after = self.after.as_ref().map_or("", SourceId::as_str);
        Cursor::new(&format!("{purpose}/{account}/{generation}/{change}/{extra}/{after}"))
    }

    pub(super) fn of(cursor: &Cursor) -> Option<Self> {
        let mut fields = cursor.as_str().splitn(6, '/');
        let purpose = match fields.next()? {
            "list" => Purpose::List,
            "sync" => Purpose::Sync,
            _ => return None,
        };
        let account = fields.next()?.parse().ok()?;
        let mut number = || fields.next()?.parse().ok();
        let (generation, change, extra) = (number()?, number()?, number()?);
        let after = match fields.next()? {
            "" => None,
            id => Some(SourceId::new(id).ok()?),
        };
        Some(Self { purpose, account, generation, change, extra, after })
    }
}
