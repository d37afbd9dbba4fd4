//! Repair obligations, and the order in which they were written.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use connector_store::testing::SimClock;
use connector_store::{
    Clock as _, DocumentId, MemoryJournal, ObservationRepair, Store, StoreBuilder, StreamKey,
    Timestamp, ValueDigest,
};

use crate::common::{did, document, host, host_on, person, stamp};

fn repair(decided_at: i64) -> ObservationRepair {
    ObservationRepair {
        owner: did(&person(1)),
        fetch_hlc: stamp(1),
        decision_hlc: stamp(decided_at),
        present: decided_at % 2 == 0,
        value_digest: (decided_at % 3 == 0).then(|| ValueDigest::new("sha256:ab").unwrap()),
    }
}

#[tokio::test]
async fn a_repair_is_put_replaced_read_and_cleared() {
    let host = host().await;
    let handle = host.store.document(&document("d"));
    let first = handle.put_repair(&repair(2)).await.unwrap().unwrap();
    let second = handle.put_repair(&repair(3)).await.unwrap().unwrap();
    assert!(second > first, "it is written anew");
    assert_eq!(handle.repair().await.unwrap(), Some(repair(3)));
    host.store.document(&document("e")).put_repair(&repair(6)).await.unwrap();
    let asked = ["e", "none", "d", "e"].map(document);
    let found = host.store.repairs(&asked).await.unwrap();
    let names: Vec<&DocumentId> = found.iter().map(|it| &it.document_id).collect();
    assert_eq!(names, [&document("d"), &document("e")], "by document, each once");
    assert_eq!((&found[0].repair, found[0].written_at), (&repair(3), second));
    handle.clear_repair().await.unwrap();
    handle.clear_repair().await.unwrap();
    assert_eq!(handle.repair().await.unwrap(), None);
    assert_eq!(host.store.repairs(&asked).await.unwrap().len(), 1);
    assert_eq!(host.store.repairs(&[]).await.unwrap(), []);
    host.assert_sound().await;
}

#[tokio::test]
async fn many_repairs_are_found_in_one_call_by_document() {
    let host = host().await;
    let names: Vec<DocumentId> = (0..1_203).map(|name| document(format!("d{name:04}"))).collect();
    let keys = names.iter().cloned().map(StreamKey::Document);
    let unit = host.store.unit_of_work(keys).await.unwrap();
    for name in &names {
        unit.document(name).put_repair(&repair(2)).await.unwrap();
    }
    unit.commit().await.unwrap();
    let asked: Vec<DocumentId> = names.iter().rev().cloned().collect();
    let found = host.store.repairs(&asked).await.unwrap();
    assert!(found.iter().map(|it| &it.document_id).eq(&names));
}

#[tokio::test]
async fn a_unit_says_nothing_of_the_time_and_a_repeated_id_says_when_it_stands() {
    let host = host().await;
    let name = document("d");
    let unit = host.store.unit_of_work([StreamKey::Document(name.clone())]).await.unwrap();
    assert_eq!(unit.document(&name).put_repair(&repair(2)).await.unwrap(), None);
    assert_eq!(
        unit.document(&name).repair().await.unwrap(),
        Some(repair(2)),
        "its own reads see it"
    );
    unit.commit().await.unwrap();
    let written = host.store.repairs(std::slice::from_ref(&name)).await.unwrap()[0].written_at;
    let with_id = || host.store.document(&name).with_command_id(uuid::Uuid::from_u128(9));
    let first = with_id().put_repair(&repair(3)).await.unwrap().unwrap();
    assert!(first > written);
    assert_eq!(with_id().put_repair(&repair(3)).await.unwrap(), Some(first), "it is done once");
}

/// Reads on from the last row that was given, to the end.
async fn read_on(
    store: &Store,
    place: &mut Option<(Timestamp, DocumentId)>,
    limit: u32,
) -> Vec<DocumentId> {
    let mut read = Vec::new();
    loop {
        let after = place.as_ref().map(|(at, id)| (*at, id));
        let page = store.repairs_written_since(after, limit).await.unwrap();
        assert!(page.len() <= limit as usize);
        assert!(page.is_sorted_by_key(|it| (it.written_at, it.document_id.clone())));
        let Some(last) = page.last() else { return read };
        *place = Some((last.written_at, last.document_id.clone()));
        read.extend(page.into_iter().map(|it| it.document_id));
    }
}

/// 1,203 rows of one time, pages of 500, while the clock stands: each once, and nothing that comes
/// later is behind the reader.
#[tokio::test]
async fn a_reader_of_equal_times_sees_each_row_once_and_misses_none_that_comes_later() {
    let host = host().await;
    let mut place = None;
    for round in 0..3 {
        let names: BTreeSet<DocumentId> =
            (0..1_203).map(|name| document(format!("d{name:04}"))).collect();
        let unit =
            host.store.unit_of_work(names.iter().cloned().map(StreamKey::Document)).await.unwrap();
        for name in &names {
            unit.document(name).put_repair(&repair(round)).await.unwrap();
        }
        unit.commit().await.unwrap();
        let read = read_on(&host.store, &mut place, 500).await;
        assert_eq!(read.len(), 1_203);
        assert_eq!(BTreeSet::from_iter(read), names);
        // One that sorts before all that was read, in the same millisecond of the clock.
        let early = document(format!("a{round}"));
        host.store.document(&early).put_repair(&repair(2)).await.unwrap();
        assert_eq!(read_on(&host.store, &mut place, 500).await, [early]);
        if round == 1 {
            // A wall clock that steps back changes nothing.
            host.clock.set_wall(Timestamp::from_millis(1));
        }
    }
    assert!(read_on(&host.store, &mut place, 500).await.is_empty());
}

#[tokio::test]
async fn on_a_shared_database_a_reader_misses_no_hosts_write() {
    let time = SimClock::default();
    let wall = time.clone();
    let journal = MemoryJournal::shared(Arc::new(move || wall.wall()));
    let hosts = [
        host_on(&journal, StoreBuilder::accept_foreign_owners).await,
        host_on(&journal, StoreBuilder::accept_foreign_owners).await,
    ];
    // Their own clocks are far apart, and do not matter.
    hosts[0].clock.advance(Duration::from_secs(3_600));
    let (mut place, mut written) = (None, Vec::new());
    for round in 0..20 {
        let name = document(format!("d{:02}", 50 - round));
        let host = &hosts[round % 2];
        let at = host.store.document(&name).put_repair(&repair(2)).await.unwrap().unwrap();
        assert!(written.last().is_none_or(|last| at > *last), "times grow over hosts");
        written.push(at);
        assert_eq!(read_on(&hosts[1].store, &mut place, 3).await, [name]);
        if round % 5 == 0 {
            time.advance(Duration::from_millis(3));
        }
    }
}
