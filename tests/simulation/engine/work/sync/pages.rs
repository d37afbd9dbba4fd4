//! Pages of a listing, and changes: the rows and the checkpoint that they come to.

use std::collections::{BTreeMap, BTreeSet};

use connector_store::testing::{Change, Item, ProviderError};
use connector_store::{DocumentId, Error, Json, PartitionId, SourceId, StreamKey};

use super::place::Place;
use super::{Step, Stop, Visit, progress};
use crate::engine::audit::erasure::Mark;
use crate::engine::graph::{Entity, Shown};

/// Tries of a unit of work that others outran.
const TRIES: usize = 4;

/// What a page comes to.
struct Page {
    place: Place,
    partition: PartitionId,
    /// What is shown and written.
    items: BTreeMap<Entity, (String, Mark)>,
    /// Whose sweep begins.
    gone: BTreeSet<Entity>,
}

impl Visit<'_> {
    /// Takes the changes since the last pass, where that can be. False where it has to be listed.
    pub(super) async fn changes(&mut self, partition: &PartitionId, remote: &str) -> Step<bool> {
        let place = self.places.get(partition).filter(|place| place.remote == remote).cloned();
        let since = place.as_ref().and_then(Place::sync);
        let Some((place, since)) = place.zip(since).filter(|_| self.drawn(600)) else {
            return Ok(false);
        };
        let owed = self.call("list owed sweeps", self.connector.owed_sweeps()).await?;
        if owed.iter().any(|owed| owed.partition == *partition) {
            return Ok(false);
        }
        self.reach().await;
        let provider = &self.account().provider;
        let changes = match provider.changes(partition, &since) {
            Err(ProviderError::CursorExpired) => {
                self.cursor_lost(partition).await?;
                return Ok(false);
            }
            changes => changes?,
        };
        if provider.account() != remote {
            return Err(Stop::Unusable);
        }
        let place = Place::begin(self.pass(), place.remote).end(&changes.sync);
        let mut page = self.page(partition, place, &[]);
        for change in changes.changes {
            match change {
                Change::Is(item) => self.take(&mut page, &item),
                Change::Gone(source_id) => self.miss(&mut page, &source_id),
            }
        }
        self.apply(page).await?;
        self.finish_begun().await?;
        Ok(true)
    }

    pub(super) async fn cursor_lost(&self, partition: &PartitionId) -> Step {
        let lost = self.connector.cursor_lost(partition);
        self.call(&format!("lose a cursor: {partition}"), lost).await
    }

    /// A number that no other pass has.
    pub(super) fn pass(&self) -> u64 {
        self.world().draw() >> 12
    }

    /// Writes a page's rows, then, or with them, its place.
    pub(super) async fn write(
        &mut self,
        partition: &PartitionId,
        items: &[Item],
        place: Place,
    ) -> Step {
        let page = self.page(partition, place, items);
        self.apply(page).await?;
        self.finish_begun().await
    }

    fn page(&self, partition: &PartitionId, place: Place, items: &[Item]) -> Page {
        let mut page = Page {
            place,
            partition: partition.clone(),
            items: BTreeMap::new(),
            gone: BTreeSet::new(),
        };
        items.iter().for_each(|item| self.take(&mut page, item));
        page
    }

    fn entity(&self, page: &Page, source_id: &SourceId) -> Entity {
        Entity {
            account: self.at,
            partition: page.partition.clone(),
            remote: page.place.remote.clone(),
            source_id: source_id.clone(),
        }
    }

    fn take(&self, page: &mut Page, item: &Item) {
        if let Some(former) = &item.former {
            self.miss(page, former);
        }
        let entity = self.entity(page, &item.source_id);
        let version = &*item.version;
        let is_there = self
            .world()
            .graph
            .borrow()
            .get(&entity)
            .is_some_and(|shown| shown.is_written && shown.version == version);
        page.gone.remove(&entity);
        if !is_there || self.begun.contains(&entity.document()) {
            page.items.insert(entity, (version.to_owned(), Mark::draw(self.world())));
        }
    }

    /// Under this name is nothing any more.
    fn miss(&self, page: &mut Page, source_id: &SourceId) {
        let entity = self.entity(page, source_id);
        if self.world().graph.borrow().get(&entity).is_some() && !page.items.contains_key(&entity) {
            page.gone.insert(entity);
        }
    }

    async fn apply(&mut self, mut page: Page) -> Step {
        let content: BTreeMap<DocumentId, Mark> =
            page.items.iter().map(|(entity, (_, mark))| (entity.document(), *mark)).collect();
        page.place.attempt = {
            let mut audit = self.world().audit.borrow_mut();
            content.iter().for_each(|(document, mark)| audit.erasure.written(document, *mark));
            audit.rows.attempt(self.at, self.token(), content)
        };
        if self.drawn(200) {
            self.keep_for_recovery(&page).await?;
        }
        self.show(&page, false)?;
        let is_one = self.drawn(600);
        self.write_rows(&page, is_one).await?;
        if !is_one {
            let checkpoint = self.checkpoint(&page);
            let update = self
                .connector
                .update_sync_progress(move |_| progress(Some(checkpoint.clone()), None));
            self.call("move progress: checkpoint", update).await?;
        }
        self.show(&page, true)?;
        for entity in page.items.keys() {
            self.begun.remove(&entity.document());
        }
        self.begun.extend(page.gone.iter().map(Entity::document));
        self.places = self.places.with(&page.partition, page.place);
        Ok(())
    }

    fn checkpoint(&self, page: &Page) -> Json {
        self.places.with(&page.partition, page.place.clone()).to_json()
    }

    /// Content that is fetched and not written yet is kept beside the old checkpoint.
    async fn keep_for_recovery(&self, page: &Page) -> Step {
        let content: Vec<_> =
            page.items.values().map(|(version, mark)| mark.content(version).to_value()).collect();
        let recovery = Json::from_value("recovery", &content.into()).unwrap();
        let update = self.connector.update_sync_progress(move |state| {
            let checkpoint = state.and_then(|state| state.checkpoint.clone());
            progress(checkpoint, Some(recovery.clone()))
        });
        self.call("move progress: with recovery", update).await.map(drop)
    }

    fn show(&self, page: &Page, is_written: bool) -> Step {
        let mut graph = self.world().graph.borrow_mut();
        for (entity, (version, _)) in &page.items {
            let shown = Shown { version: version.clone(), is_written };
            if !graph.put(entity, shown, self.token()) {
                return Err(Stop::Late);
            }
            self.world().audit.borrow_mut().deletions.shown(entity);
        }
        Ok(())
    }

    async fn write_rows(&self, page: &Page, with_checkpoint: bool) -> Step {
        if page.items.is_empty() && page.gone.is_empty() && !with_checkpoint {
            return Ok(());
        }
        let what = format!(
            "write a page: {} page {}, {} rows",
            page.partition,
            page.place.page,
            page.items.len()
        );
        for _ in 1..TRIES {
            match self.call(&what, self.unit(page, with_checkpoint)).await {
                Err(Stop::Store(Error::Contention)) => self.world().rest(10, 100).await,
                result => return result,
            }
        }
        self.call(&what, self.unit(page, with_checkpoint)).await
    }

    async fn unit(&self, page: &Page, with_checkpoint: bool) -> connector_store::Result<()> {
        let (owner, connector) = (&self.account().owner, &self.world().accounts.connector);
        let documents = page.items.keys().chain(&page.gone).map(Entity::document);
        let mut keys: Vec<StreamKey> = documents.map(StreamKey::Document).collect();
        keys.extend(
            with_checkpoint.then(|| StreamKey::Connector(owner.clone(), connector.clone())),
        );
        let unit = self.session.unit_of_work(keys).await?;
        for (entity, (version, mark)) in &page.items {
            let document = unit.document(&entity.document());
            if self.begun.contains(document.id()) {
                document.abandon_document_sweep().await?;
            }
            document.set_entity_trim(owner, connector, mark.content(version)).await?;
        }
        for entity in &page.gone {
            unit.document(&entity.document()).begin_document_sweep().await?;
        }
        if with_checkpoint {
            let checkpoint = self.checkpoint(page);
            unit.connector(owner, connector)
                .update_sync_progress(move |_| progress(Some(checkpoint.clone()), None))
                .await?;
        }
        unit.commit().await
    }
}
