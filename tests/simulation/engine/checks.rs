//! Rules that are held against the tables: some all along, the dear ones now and then, all at the end.

use std::rc::Rc;

use super::tamper;
use super::world::World;

/// Everything, once nothing goes wrong any more.
pub async fn at_the_end(world: &Rc<World>) {
    world.stage("all rows are looked at", 0, 1);
    world.audit();
    world.audit.borrow().look(world);
    promises(world);
    world.audit.borrow_mut().erasure.look(world);
    syncs(world);
    whole(world).await;
    if let Some(life) = world.hosts.iter().find_map(|host| host.life()) {
        world.stage("a changed event is looked for", 0, 1);
        tamper::event(world, &life.store).await;
    }
}

/// What was acknowledged is there, also now.
fn promises(world: &World) {
    let audit = world.audit.borrow();
    for (id, what) in world.promises.borrow().done() {
        let is_there =
            audit.has(id) || world.journal.tamper(|tables| tables.commands.contains_key(&id));
        world.hold("acknowledged is durable", is_there, || format!("{what} is gone"));
    }
}

/// How much there was to be held to the rules of syncs.
fn syncs(world: &World) {
    let audit = world.audit.borrow();
    let (checkpoints, committed) = (audit.rows.checkpoints, audit.receipts.committed);
    let (swept, erased) = (audit.deletions.swept, audit.erasure.erased.len());
    world.note(
        "CHECK",
        format_args!(
            "{checkpoints} checkpoints, {committed} receipts, {swept} sweeps, {erased} marks erased"
        ),
    );
}

/// The chains hold, the rows are what the events come to, and rebuilding them changes nothing.
pub async fn whole(world: &Rc<World>) {
    let Some(life) = world.hosts.iter().find_map(|host| host.life()) else { return };
    world.stage("the journal is verified", 0, 1);
    match life.store.verify().await {
        Ok(report) => {
            world.hold("the journal and its rows are sound", report.damages.is_empty(), || {
                format!("{:?}", report.damages)
            })
        }
        Err(error) => world.violate("the journal and its rows are sound", error),
    }
    world.stage("the rows are rebuilt", 0, 1);
    match life.store.rebuild().await {
        Ok(report) => {
            world.hold("rebuilding changes no row", report.written + report.removed == 0, || {
                format!("{report:?}")
            })
        }
        Err(error) => world.violate("rebuilding changes no row", error),
    }
}
