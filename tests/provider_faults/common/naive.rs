//! A naive client, as they are often written first: it believes every answer, and what is not in a listing is
//! gone. It has no store.

use std::collections::BTreeMap;

use connector_store::testing::{Change, Cursor, Next, Provider, ProviderError};

use super::{PAGE, home, title};

/// Ids and titles.
#[derive(Default)]
pub struct Naive {
    pub documents: BTreeMap<String, Option<String>>,
    pub cursor: Option<Cursor>,
    /// How many rows it has written: it counts what it mirrors.
    pub rows: usize,
}

impl Naive {
    /// A client that has mirrored all that the provider has.
    pub fn synced(provider: &Provider) -> Self {
        let mut naive = Self::default();
        naive.list(provider).unwrap();
        naive
    }

    /// Lists everything, and deletes what was not in it.
    pub fn list(&mut self, provider: &Provider) -> Result<(), ProviderError> {
        let (mut listed, mut rows, mut cursor) = (BTreeMap::new(), 0, None);
        loop {
            let listing = provider.list(&home(), cursor.as_ref(), PAGE)?;
            for item in listing.items {
                rows += 1;
                // What cannot be read is left out.
                if let Some(title) = title(&item.content) {
                    listed.insert(item.source_id.as_str().to_owned(), Some(title));
                }
            }
            match listing.next {
                Next::Page(next) => cursor = Some(next),
                Next::Last { sync, .. } => {
                    (self.documents, self.rows, self.cursor) = (listed, rows, Some(sync));
                    return Ok(());
                }
            }
        }
    }

    /// Applies the changes, and saves the cursor.
    pub fn follow(&mut self, provider: &Provider) -> Result<(), ProviderError> {
        let changes = provider.changes(&home(), self.cursor.as_ref().unwrap())?;
        self.cursor = Some(changes.sync);
        for change in changes.changes {
            match change {
                Change::Is(item) => {
                    let title = title(&item.content);
                    self.documents.insert(item.source_id.as_str().to_owned(), title);
                }
                Change::Gone(id) => {
                    self.documents.remove(id.as_str());
                }
            }
        }
        Ok(())
    }

    pub fn shown(&self) -> Vec<(String, Option<String>)> {
        self.documents.clone().into_iter().collect()
    }
}
