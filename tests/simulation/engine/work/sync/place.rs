//! Where the sync of an account goes on: what a host keeps as the checkpoint. It knows no store call.

use std::collections::BTreeMap;

use connector_store::testing::Cursor;
use connector_store::{Json, PartitionId};
use serde::{Deserialize, Serialize};

/// Where the sync of a partition goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Which pass over the partition: a listing, or the changes since one.
    pub pass: u64,
    /// Pages of the pass whose rows are written.
    pub page: u32,
    /// The write that this place came with.
    pub attempt: u64,
    /// The account at the provider.
    pub remote: String,
    /// The receipt of the listing that is under way.
    pub receipt: Option<i64>,
    /// The next page of it.
    next: Option<String>,
    /// Behind a whole listing: the changes go on here.
    sync: Option<String>,
}

impl Place {
    /// The begin of a pass.
    pub const fn begin(pass: u64, remote: String) -> Self {
        Self { pass, page: 0, attempt: 0, remote, receipt: None, next: None, sync: None }
    }

    pub fn next(&self) -> Option<Cursor> {
        self.next.as_deref().map(Cursor::new)
    }

    pub fn sync(&self) -> Option<Cursor> {
        self.sync.as_deref().map(Cursor::new)
    }

    /// Behind a page, with another one to come.
    pub fn turn(&self, next: &Cursor) -> Self {
        let (next, page) = (Some(next.as_str().to_owned()), self.page + 1);
        Self { next, page, ..self.clone() }
    }

    /// Behind the last page.
    pub fn end(&self, sync: &Cursor) -> Self {
        let (sync, page) = (Some(sync.as_str().to_owned()), self.page + 1);
        Self { next: None, receipt: None, sync, page, ..self.clone() }
    }
}

/// The places of an account.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Places(pub BTreeMap<String, Place>);

impl Places {
    pub fn parse(checkpoint: Option<&Json>) -> Self {
        checkpoint.map_or_else(Self::default, |json| serde_json::from_str(json.as_str()).unwrap())
    }

    pub fn to_json(&self) -> Json {
        Json::parse("checkpoint", &serde_json::to_string(self).unwrap()).unwrap()
    }

    pub fn get(&self, partition: &PartitionId) -> Option<&Place> {
        self.0.get(partition.as_str())
    }

    /// These, with another place of one partition.
    pub fn with(&self, partition: &PartitionId, place: Place) -> Self {
        let mut places = self.clone();
        places.0.insert(partition.as_str().to_owned(), place);
        places
    }
}
