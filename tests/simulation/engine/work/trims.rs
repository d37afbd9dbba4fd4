//! Entity trims: documents that everybody writes and reads, one or two at once.

use connector_store::{DocumentId, Error, Json, Result, StreamKey};

use super::Worker;

/// Documents that are nobody's in particular.
const DOCUMENTS: usize = 5;

pub async fn work(worker: &Worker) {
    let (world, host) = (&*worker.world, &*worker.host);
    let (at, other, action) =
        world.chance(|chance| (chance.below(DOCUMENTS), chance.below(DOCUMENTS), chance.below(10)));
    let _ = match action {
        0..4 => set(worker, at).await,
        4 => {
            let handle = worker.store.document(&document(at));
            let clear = |id| {
                let handle = handle.with_command_id(id);
                async move { handle.clear_entity_trim().await }
            };
            world.command(host, &format!("clear a trim: d{at}"), clear).await
        }
        5 if at != other => pair(worker, at, other).await,
        6 => overtake(worker, at).await,
        _ => read(worker, at).await,
    };
}

fn document(at: usize) -> DocumentId {
    DocumentId::new(format!("d{at}")).unwrap()
}

fn numbered(number: u64) -> Json {
    Json::parse("trimmed_fields", &number.to_string()).unwrap()
}

async fn set(worker: &Worker, at: usize) -> Result<()> {
    let (world, host, document) = (&*worker.world, &*worker.host, document(at));
    let number = world.draw() >> 12;
    let (owner, connector) = (&world.accounts.all[0].owner, &world.accounts.connector);
    let floor = world.audit.borrow().registers.floor(&document);
    let handle = worker.store.document(&document);
    let set = |id| {
        let (handle, owner, connector) =
            (handle.with_command_id(id), owner.clone(), connector.clone());
        async move { handle.set_entity_trim(&owner, &connector, numbered(number)).await }
    };
    world.command(host, &format!("set a trim: {document} to {number}"), set).await?;
    world.audit.borrow_mut().registers.told(world, &document, number, floor);
    Ok(())
}

async fn read(worker: &Worker, at: usize) -> Result<()> {
    let (world, host, document) = (&*worker.world, &*worker.host, document(at));
    // What is told before the call begins; a pause before it only makes more known.
    host.unpaused().await;
    let floor = world.audit.borrow().registers.floor(&document);
    let handle = worker.store.document(&document);
    let trim = world.call(host, &format!("read a trim: {document}"), handle.entity_trim()).await?;
    let number = trim.map_or(0, |trim| trim.trimmed_fields.as_str().parse().unwrap());
    world.audit.borrow_mut().registers.told(world, &document, number, floor);
    Ok(())
}

/// A read on the heels of a write that is not answered yet.
async fn overtake(worker: &Worker, at: usize) -> Result<()> {
    let (set, read) = tokio::join!(set(worker, at), read(worker, at));
    set.and(read)
}

/// Two documents get one number, or neither does.
async fn pair(worker: &Worker, first: usize, second: usize) -> Result<()> {
    let (world, host) = (&*worker.world, &*worker.host);
    let number = world.draw() >> 12;
    let documents = [document(first), document(second)];
    let keys = documents.clone().map(StreamKey::Document);
    let (owner, connector) = (&world.accounts.all[0].owner, &world.accounts.connector);
    let both = async {
        let unit = worker.store.unit_of_work(keys).await?;
        for document in &documents {
            unit.document(document).set_entity_trim(owner, connector, numbered(number)).await?;
        }
        unit.commit().await
    };
    let result =
        world.call(host, &format!("set two trims: d{first} and d{second} to {number}"), both).await;
    let seen = documents
        .each_ref()
        .map(|document| world.audit.borrow().registers.position(document, number).is_some());
    match &result {
        Err(Error::OutcomeUnknown { .. }) => {}
        _ => world.hold("a unit of work is whole", seen == [result.is_ok(); 2], || {
            format!("{result:?}, and written: {seen:?}")
        }),
    }
    result
}
