//! Leases and times over hosts: the database's time decides, and a token that is not current writes
//! nothing, in no key.

use connector_store::{Error, Lease, Secret, Session, StreamKey, Timestamp};

use crate::common::*;
use crate::world::{Host, World};

/// Takes the lease as soon as it has expired.
async fn take(host: &Host, name: &str) -> Lease {
    let handle = connector(&host.store, "o");
    bounded(async {
        loop {
            match handle.acquire_lease(&holder(name), COMMAND_TIMEOUT).await {
                Ok(lease) => return lease,
                Err(error) => assert!(matches!(error, Error::LeaseHeld { .. }), "{error:?}"),
            }
        }
    })
    .await
}

async fn unit_of(session: &Session) -> Result<(), Error> {
    let key = StreamKey::Connector(owner("o"), folder());
    let unit = session.unit_of_work([key, document_key("in-unit")]).await?;
    set_trim(&unit.document(&document("in-unit")), 1).await?;
    unit.commit().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_holder_cannot_write_one_more_row_after_its_lease_was_taken() {
    let Some(world) = World::new() else { return };
    let [a, b] = world.hosts().await;
    let ttl = SECOND / 4;
    let paused = connector(&a.store, "o").acquire_lease(&holder("a"), ttl).await.unwrap();
    let session = paused.session();
    set_trim(&session.document(&document("a")), 1).await.unwrap();
    let taken = take(&b, "b").await;
    assert!(taken.token() > paused.token());
    let stored = world.events();
    // The key of the lease is warm on the paused host, and so is the document.
    let writes = [
        code(set_trim(&session.document(&document("a")), 666).await),
        code(set_trim(&session.document(&document("new")), 666).await),
        code(session.document(&document("a")).sweep_document_rows().await),
        code(session.document(&document("untouched")).clear_entity_trim().await),
        code(session.document(&document("untouched")).entity_trim().await),
        code(count_up(&session.connector()).await),
        code(unit_of(&session).await),
        code(paused.renew(SECOND).await),
        code(paused.release().await),
    ];
    assert_eq!(writes, ["CONNECTOR_LEASE_LOST"; 9]);
    assert_eq!(world.events(), stored);
    assert_eq!(trim(&b.store.document(&document("a"))).await, Some(1));
    set_trim(&taken.session().document(&document("a")), 2).await.unwrap();
    unit_of(&taken.session()).await.unwrap();
    assert_sound(&a.store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_is_judged_in_the_transaction_that_it_guards() {
    let Some(world) = World::new() else { return };
    let (proxy, a) = world.proxied(COMMAND_TIMEOUT).await;
    let b = world.host().await;
    let old = connector(&a.store, "o").acquire_lease(&holder("a"), SECOND / 1_000).await.unwrap();
    set_trim(&old.session().document(&document("a")), 1).await.unwrap();
    proxy.at_commit(crate::proxy::Cut::Hold);
    let late = old.session().document(&document("a"));
    let held = tokio::spawn(async move { set_trim(&late, 2).await });
    bounded(proxy.seen(1)).await;
    // The write has passed the fence, and is not committed: nobody gets the lease before it is.
    let taking = tokio::spawn(async move { take(&b, "b").await });
    settle().await;
    assert!(!taking.is_finished());
    proxy.release();
    bounded(held).await.unwrap().unwrap();
    assert!(bounded(taking).await.unwrap().token() > old.token());
    let late = set_trim(&old.session().document(&document("a")), 3).await;
    assert_eq!(code(late), "CONNECTOR_LEASE_LOST");
    assert_eq!(trim(&a.store.document(&document("a"))).await, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_past_its_expiry_may_finish_while_nobody_took_the_lease() {
    let Some(world) = World::new() else { return };
    let [a, b] = world.hosts().await;
    let handle = connector(&a.store, "o");
    let lease = handle.acquire_lease(&holder("a"), SECOND / 1_000).await.unwrap();
    // Another lease of as long, taken later, has expired.
    let other = b.store.connector(&owner("other"), &folder());
    other.acquire_lease(&holder("x"), SECOND / 1_000).await.unwrap();
    bounded(async { while other.acquire_lease(&holder("y"), SECOND).await.is_err() {} }).await;
    set_trim(&lease.session().document(&document("a")), 1).await.unwrap();
    lease.renew(COMMAND_TIMEOUT).await.unwrap();
    let held = connector(&b.store, "o").acquire_lease(&holder("b"), SECOND).await;
    assert_eq!(code(held), "CONNECTOR_LEASE_HELD");
}

/// The hosts' clocks are ten minutes apart, and years behind the database's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clock_of_the_database_decides_and_not_the_hosts() {
    let Some(world) = World::new() else { return };
    let hosts = world.hosts().await;
    let now = || world.number("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)");
    for (at, other) in [(0, 1), (1, 0)] {
        let before = now();
        let handle = connector(&hosts[at].store, "o");
        let lease = handle.acquire_lease(&holder("a"), COMMAND_TIMEOUT).await.unwrap();
        let granted = lease.expires_at().as_millis() - 30_000;
        assert!((before..=now()).contains(&granted), "{before} {granted}");
        let held = connector(&hosts[other].store, "o").acquire_lease(&holder("b"), SECOND).await;
        assert_eq!(code(held), "CONNECTOR_LEASE_HELD");
        lease.release().await.unwrap();
        let recorded = world.number("SELECT max(recorded_at) FROM connector_journal");
        assert!((before..=now()).contains(&recorded), "{before} {recorded}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expiry_deletes_what_is_before_the_cutoff_and_leaves_no_secret() {
    let Some(world) = World::new() else { return };
    let [a, b] = world.hosts().await;
    for (state, expires_at) in [("before", 999), ("at", 1_000), ("behind", 1_001)] {
        a.store.create_pending_auth(pending_auth(state, expires_at)).await.unwrap();
    }
    let cutoff = Timestamp::from_millis(1_000);
    let hosts = [&a, &b];
    assert_eq!(hosts[1].store.delete_expired_pending_auths(cutoff).await.unwrap(), 1);
    assert_eq!(hosts[0].store.delete_expired_pending_auths(cutoff).await.unwrap(), 0);
    let expected = [("before", "CONNECTOR_NOT_FOUND"), ("at", "ok"), ("behind", "ok")];
    for ((state, answer), host) in expected.into_iter().zip([&a, &b, &a]) {
        let consumed = host.store.consume_pending_auth(&Secret::new(state)).await;
        assert_eq!(code(consumed), answer, "{state}");
    }
    // Whatever is left of them, in any table, tells no verifier and no state.
    let dump = world.dump();
    for secret in ["verifier-of", "behind"] {
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(!dump.contains(secret) && !dump.contains(&hex), "{secret} is in {dump}");
    }
    assert!(dump.contains("connector_journal"));
}
