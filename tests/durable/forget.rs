//! A forgotten connection leaves nothing, wherever a crash interrupts the forgetting.

use std::collections::BTreeSet;
use std::time::Duration;

use connector_store::domain::{Row, Table};
use connector_store::{
    Claim, Error, FeedCursor, FeedItem, Hlc, ObservationRepair, PendingAuthRecord, Secret,
    StreamKey, Timestamp, WatchIdentity, Work,
};

use super::world::{
    Account, SECOND, World, account, document, expectation, holder, json, on_every_storage,
    partition, request, source, state,
};

/// Everything that a connection can have: names and content hold the account's names, so that what
/// is left of them is found.
async fn fill(world: &World, account: &Account) {
    let store = &world.store;
    let (owner, name) = (account.owner.clone(), account.connector.clone());
    let own = |text: &str| format!("{text} {owner} {name}");
    let connector = store.connector(&owner, &name);
    connector.set_sync_state(state(&format!("[\"{}\"]", own("token")))).await.unwrap();
    world.candidates(account, &["kept"]).await;
    let gone: Vec<String> = (0..3).map(|at| own(&format!("gone{at}"))).collect();
    world.candidates(account, &gone.iter().map(String::as_str).collect::<Vec<_>>()).await;
    connector.cursor_lost(&partition()).await.unwrap();
    world.enumerate(account, &[&own("listed")]).await;
    let fields = || json(&format!("[\"{}\"]", own("field")));
    // More documents than one unit of work holds.
    let mut trims = tokio::task::JoinSet::new();
    for at in 0..40 {
        let trimmed = store.document(&document(&own(&format!("trimmed{at}"))));
        let (owner, name, fields) = (owner.clone(), name.clone(), fields());
        trims.spawn(async move { trimmed.set_entity_trim(&owner, &name, fields).await.unwrap() });
    }
    trims.join_all().await;
    let watched = store.document(&document(&own("watched")));
    let stamp = Hlc::parse("000000000000001-00000000-n").unwrap();
    let repair = ObservationRepair {
        owner: owner.clone(),
        fetch_hlc: stamp.clone(),
        decision_hlc: stamp,
        present: false,
        value_digest: None,
    };
    watched.put_repair(&repair).await.unwrap();
    let source_id = source(&own("entity"));
    let identity = WatchIdentity { owner: owner.clone(), connector: name.clone(), source_id };
    watched.arm_watch(&identity, &expectation(30 * SECOND)).await.unwrap();
    for at in 0..2 {
        let claimed = world.claim(account, &own(&format!("op{at}")), &own("written")).await;
        claimed.finalize_committed(&source(&own("new")), Some(&own("etag")), None).await.unwrap();
    }
    world.claim(account, &own("dead"), &own("written")).await.finalize_dead("no").await.unwrap();
    for (at, expires_at) in [(0, 1), (1, i64::MAX)] {
        let record = PendingAuthRecord {
            state: Secret::new(own(&format!("state{at}"))),
            code_verifier: Secret::new(own("verifier")),
            provider: name.to_string(),
            owner: owner.clone(),
            owner_wrappable_did: None,
            controller_wrappable_did: None,
            created_at: Timestamp::from_millis(1),
            redirect_url: "https://host.example/".to_owned(),
            scopes: Vec::new(),
            is_incremental: false,
            expires_at: Timestamp::from_millis(expires_at),
        };
        store.create_pending_auth(record).await.unwrap();
    }
}

/// The connection that is forgotten, and those beside it that must not be touched.
fn accounts() -> (Account, [Account; 2]) {
    (account("a", "folder"), [account("a", "mail"), account("b", "folder")])
}

async fn filled(world: World) -> World {
    let (forgotten, others) = accounts();
    fill(&world, &forgotten).await;
    for other in &others {
        fill(&world, other).await;
    }
    world
}

/// Operations stay; copies and repairs are of an owner and a document, whatever the connector.
const STAYING: [Table; 4] =
    [Table::Operation, Table::OperationId, Table::ObservationRecords, Table::ObservationRepair];

/// A row tells of the account: both its names are in it.
fn tells_of(row: &Row, account: &Account) -> bool {
    if STAYING.contains(&row.table) {
        return false;
    }
    let texts: Vec<&str> = row.values.iter().filter_map(|value| value.as_text()).collect();
    let names = [account.owner.as_str(), account.connector.as_str()];
    names.iter().all(|name| texts.iter().any(|text| text.contains(name)))
}

async fn all_rows(world: &World) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in Table::ALL {
        rows.extend(world.rows(table).await);
    }
    rows
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// No row tells of the account, and no event or snapshot holds what it had.
async fn assert_nothing_is_left(world: &World, account: &Account, others: &[Row]) {
    let rows = all_rows(world).await;
    let left: Vec<&Row> = rows.iter().filter(|row| tells_of(row, account)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(rows.len(), others.len(), "the others are not touched");
    for row in others {
        assert!(rows.contains(row), "{row:?} is as it was");
    }
    let content = format!(" {} {}", account.owner, account.connector);
    let names = [account.owner.as_str(), account.connector.as_str()];
    for record in world.storage.events(0, 100_000).await.unwrap() {
        let is_left = holds(&record.payload, &content) && !record.stream.contains(":written");
        let is_auth = record.stream.starts_with("auth:");
        let is_left = is_left || is_auth && names.iter().all(|name| holds(&record.payload, name));
        assert!(!is_left, "event {} of {}", record.event_type, record.stream);
    }
    let page = world.storage.streams(None, 10_000).await.unwrap();
    for (name, ..) in page.streams {
        // The document that has operations alone is left as it is.
        if name.contains(":written") {
            continue;
        }
        let snapshot = world.storage.load(&name).await.unwrap().snapshot;
        assert!(snapshot.is_none_or(|at| !holds(&at.payload, &content)), "snapshot of {name}");
    }
    assert!(world.store.forgetting(None, 10).await.unwrap().is_empty());
}

async fn rows_of_others(world: &World) -> Vec<Row> {
    let (forgotten, _) = accounts();
    all_rows(world).await.into_iter().filter(|row| !tells_of(row, &forgotten)).collect()
}

#[tokio::test]
async fn everything_of_the_connection_goes_and_nothing_else() {
    on_every_storage(async |world| {
        let world = filled(world).await;
        let (forgotten, _) = accounts();
        let tables: BTreeSet<Table> = all_rows(&world)
            .await
            .iter()
            .filter(|row| tells_of(row, &forgotten))
            .map(|row| row.table)
            .collect();
        let never = [Table::Lease, Table::DocumentSweep, Table::Forgetting];
        let may_go = |table: &Table| !never.contains(table) && !STAYING.contains(table);
        let expected: BTreeSet<Table> = Table::ALL.into_iter().filter(may_go).collect();
        assert_eq!(tables, expected, "the test has something of everything");
        let others = rows_of_others(&world).await;
        world.lease(&forgotten, 10 * SECOND).await;
        let Account { owner, connector } = &forgotten;
        world.store.forget_connection(owner, connector).await.unwrap();
        assert_nothing_is_left(&world, &forgotten, &others).await;
        // Again it changes nothing, and the account may be connected anew.
        world.store.forget_connection(owner, connector).await.unwrap();
        let lease = world.lease(&forgotten, 10 * SECOND).await;
        assert!(lease.token().version > 10, "versions go on");
        let report = world.store.verify().await.unwrap();
        assert!(report.is_sound(), "{report:?}");
        // A replay of a write of the old connection still writes nothing.
        let name = format!("op0 {owner} {connector}");
        let replay = document(&format!("written {owner} {connector}"));
        let replay = world.store.document(&replay);
        let claim = replay.claim_operation(&request(&forgotten, &name), &holder(), SECOND).await;
        assert!(matches!(claim, Ok(Claim::Finished(_))), "{claim:?}");
    })
    .await;
}

/// The output, unless the future is dropped at its `polls`-th await before.
async fn dropped_at<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut left = polls;
    std::future::poll_fn(move |context| {
        use std::task::Poll;
        left = left.saturating_sub(1);
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Drops the call at each of its awaits, with and without the end of the process; another host's
/// start goes on from there.
#[tokio::test]
async fn a_crash_at_any_await_is_gone_on_from() {
    for is_sqlite in [false, true] {
        let (mut marks, mut drops) = (0, 0);
        for polls in 1.. {
            assert!(polls < 1_000, "it does not end");
            let world = if is_sqlite { World::sqlite().await } else { World::memory().await };
            let world = filled(world).await;
            let (forgotten, _) = accounts();
            let others = rows_of_others(&world).await;
            let Account { owner, connector } = &forgotten;
            let call = world.store.forget_connection(owner, connector);
            if let Some(done) = dropped_at(call, polls).await {
                done.unwrap();
                assert_nothing_is_left(&world, &forgotten, &others).await;
                break;
            }
            drops += 1;
            let world = if polls % 2 == 0 { world.reopen().await } else { world };
            let standing = world.store.forgetting(None, 10).await.unwrap();
            marks += standing.len();
            for mark in &standing {
                world.store.resume_forgetting(&mark.owner, &mark.connector).await.unwrap();
                assert_nothing_is_left(&world, &forgotten, &others).await;
            }
            world.store.forget_connection(owner, connector).await.unwrap();
            assert_nothing_is_left(&world, &forgotten, &others).await;
        }
        assert!(marks > 5, "{marks} of {drops} drops were behind the mark");
    }
}

#[tokio::test]
async fn an_unfinished_operation_keeps_the_connection_and_changes_nothing() {
    on_every_storage(async |world| {
        let world = filled(world).await;
        let (forgotten, _) = accounts();
        let Account { owner, connector } = &forgotten;
        let lease = world.lease(&forgotten, 10 * SECOND).await;
        let claimed = world.claim(&forgotten, "unfinished", "d").await;
        claimed.mark_send_started().await.unwrap();
        claimed.record_unknown().await.unwrap();
        let before = all_rows(&world).await;
        let refused = world.store.forget_connection(owner, connector).await.unwrap_err();
        assert!(matches!(
            &refused,
            Error::ForgetUnfinishedOperation { owner: o, connector: c } if (o, c) == (owner, connector)
        ));
        assert_eq!(all_rows(&world).await, before);
        lease.renew(10 * SECOND).await.unwrap();
        claimed.finalize_committed(&source("s"), None, None).await.unwrap();
        world.store.forget_connection(owner, connector).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn the_feed_and_the_due_work_name_it() {
    on_every_storage(async |world| {
        let (forgotten, _) = accounts();
        fill(&world, &forgotten).await;
        let Account { owner, connector } = &forgotten;
        let mut polls = 1;
        while world.store.forgetting(None, 10).await.unwrap().is_empty() {
            let call = world.store.forget_connection(owner, connector);
            assert!(dropped_at(call, polls).await.is_none(), "dropped behind the mark");
            // What was sent is carried out, though nobody waits for it.
            world.store.connector(owner, connector).owed_sweeps().await.ok();
            polls += 1;
        }
        let standing = world.store.forgetting(None, 10).await.unwrap();
        assert_eq!(standing[0].begun_at, world.now());
        assert!(world.store.forgetting(Some((owner, connector)), 10).await.unwrap().is_empty());
        let world = world.reopen().await;
        let mut stream = world.store.due_work();
        let mut found = false;
        while let Some(due) = stream.next_ready().await.unwrap() {
            found |= matches!(due.work, Work::Forgetting { .. });
        }
        assert!(found);
        world.clock.advance(100 * SECOND);
        assert!(!world.store.health(Duration::from_secs(60)).await.unwrap().is_healthy());
        world.store.resume_forgetting(owner, connector).await.unwrap();
        assert!(world.store.health(Duration::from_secs(60)).await.unwrap().is_healthy());
        let key = StreamKey::Connector(owner.clone(), connector.clone());
        let mut feed = world.store.events(FeedCursor::START, Default::default());
        let mut swept = 0;
        while let Some(item) = feed.next_ready().await.unwrap() {
            match item {
                FeedItem::Swept { key: of, .. } => swept += usize::from(of == key),
                FeedItem::Event { key: of, .. } => assert_ne!(of, key, "its events are erased"),
                _ => {}
            }
        }
        assert_eq!(swept, 1);
    })
    .await;
}

/// A mark that another host has ended is not begun anew by a host that only goes on.
#[tokio::test]
async fn resuming_begins_nothing() {
    on_every_storage(async |world| {
        let (forgotten, _) = accounts();
        fill(&world, &forgotten).await;
        let before = all_rows(&world).await;
        let Account { owner, connector } = &forgotten;
        world.store.resume_forgetting(owner, connector).await.unwrap();
        assert_eq!(all_rows(&world).await, before);
    })
    .await;
}
