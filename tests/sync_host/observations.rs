//! What the host signs of its documents: one record for each, by its owner, which says what is
//! mirrored.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::time::{SystemTime, UNIX_EPOCH};

use connector_store::records::{Hlc, OBSERVATION_TYPE, RecordDecision, RecordSigner, SigningKey};
use connector_store::{Digest, DocumentId, ObservationRepair, OwnerDid, Store};
use serde_json::{Value, json};

use crate::killed::run_killed_at;
use crate::rows::{graph, store};
use crate::world::World;

const TREE: [&str; 3] = ["a/1.txt", "a/2.txt", "b/1.txt"];
const EDIT: [&str; 2] = ["--edit", "owner-1/a/1.txt=edited"];
const REPAIRS: &str = "SELECT decision_hlc FROM kubun_connector_observation_repair";
/// Below the drift that a store takes.
const AHEAD_MS: i64 = 50_000;

fn mirrored_world() -> World {
    let world = World::with(&TREE);
    let run = world.run(&[]);
    run.expect(0, &[("created", 3)]);
    assert_eq!(run.summary()["signed"], 3, "{run:?}");
    world
}

/// Runs a future on the host's store, which takes what the owner alone has signed.
fn with_store<T>(world: &World, work: impl AsyncFnOnce(&Store) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::builder()
            .sqlite(world.host().join("store.db"))
            .accept_foreign_owners()
            .open()
            .await
            .unwrap();
        let done = work(&store).await;
        store.close().await.unwrap();
        done
    })
}

/// All decisions, by owner and document. Each copy is verified before it counts.
fn decisions(world: &World) -> Vec<RecordDecision> {
    with_store(world, async |store| {
        let page = store.list_observation_decisions(&[OBSERVATION_TYPE], None, 1_000).await;
        page.unwrap().decisions
    })
}

fn payload(decision: &RecordDecision) -> Value {
    serde_json::from_slice(decision.payload.as_deref().unwrap()).unwrap()
}

/// The decisions say what the graph shows, and nothing else.
fn assert_mirrored(world: &World) {
    let told = |decision: &RecordDecision| {
        let (payload, key) = (payload(decision), &decision.key);
        let text = |name: &str| payload[name].as_str().unwrap().to_owned();
        let version = decision.decision_hlc.as_str();
        [key.id.as_str(), key.owner.as_str(), &text("title"), &text("digest"), version].join(" | ")
    };
    let mut told: Vec<_> = decisions(world).iter().map(told).collect();
    told.sort();
    let shown = "SELECT document_id, owner, title, digest, version FROM document";
    assert_eq!(told, graph(&world.host(), shown));
}

/// The document of a file of the first owner, its owner, and the key of that one.
fn document(world: &World, file: &str) -> (DocumentId, OwnerDid, RecordSigner) {
    let sql = format!("SELECT document_id FROM document WHERE source_id = '{file}'");
    let id = DocumentId::new(graph(&world.host(), &sql).remove(0)).unwrap();
    let seed = fs::read(world.host().join("keys/owner-1.seed")).unwrap();
    let signer = RecordSigner::did_key(SigningKey::ed25519_from_seed(seed.try_into().unwrap()));
    (id, OwnerDid::new(signer.issuer()).unwrap(), signer)
}

/// A stamp of another device, so long from now.
#[expect(clippy::disallowed_methods, reason = "the program that is tested has the machine's clock")]
fn stamp(ahead_ms: i64) -> Hlc {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let ms = i64::try_from(now).unwrap() + ahead_ms;
    Hlc::parse(&format!("{ms:015}-00000000-elsewhere")).unwrap()
}

/// The owner says by another device that the document is something else.
fn say_elsewhere(world: &World, file: &str, hlc: &Hlc, version: &Hlc, is_owed: bool) {
    let (id, owner, signer) = document(world, file);
    let said = json!({ "digest": "another", "title": "another" }).to_string();
    let record = signer.sign(&owner, &id, hlc, version, Some(said.as_bytes())).unwrap();
    with_store(world, async |store| {
        let document = store.document(&id);
        document.put_observation_copy(&record).await.unwrap();
        let repair = ObservationRepair {
            owner,
            fetch_hlc: hlc.clone(),
            decision_hlc: version.clone(),
            present: true,
            value_digest: None,
        };
        if is_owed {
            document.put_repair(&repair).await.unwrap();
        }
    });
}

#[test]
fn each_document_has_a_record_of_its_owner_that_says_what_is_mirrored() {
    let world = World::with(&TREE);
    let run = world.run(&["--owners", "2"]);
    assert_eq!(run.summary()["signed"], 6, "{run:?}");
    assert_eq!(decisions(&world).len(), 6);
    assert_mirrored(&world);
}

#[test]
fn what_is_unchanged_is_not_signed_anew_and_what_is_changed_is() {
    let world = mirrored_world();
    let before = decisions(&world);
    let run = world.run(&[]);
    assert_eq!((&run.summary()["signed"], &run.summary()["unchanged"]), (&0.into(), &3.into()));
    assert_eq!(decisions(&world), before);

    world.write("a/1.txt", "changed");
    let run = world.run(&[]);
    assert_eq!((&run.summary()["signed"], &run.summary()["updated"]), (&1.into(), &1.into()));
    assert_mirrored(&world);
    let standing = decisions(&world).iter().filter(|decision| before.contains(decision)).count();
    assert_eq!(standing, 2, "the others are as they were");
    // What it decided itself does not keep the host from taking the next change.
    world.write("a/1.txt", "changed again");
    world.run(&[]).expect(0, &[("updated", 1), ("unchanged", 2)]);
    assert_mirrored(&world);
}

#[test]
fn of_a_swept_document_no_record_is_left() {
    let world = mirrored_world();
    world.remove("a/1.txt");
    let run = world.run(&[]);
    run.expect(0, &[("unchanged", 2), ("swept", 1)]);
    assert_eq!(run.summary()["signed"], 0, "{run:?}");
    assert_eq!(decisions(&world).len(), 2);
    assert_mirrored(&world);
    let rows = "SELECT id FROM kubun_connector_observation_records";
    assert_eq!(store(&world.host(), rows).len(), 2);
}

#[test]
fn an_edit_is_signed_with_its_own_version_while_it_is_in_conflict_too() {
    let world = mirrored_world();
    world.write("a/1.txt", "changed at the source");
    let run = world.run(&EDIT);
    run.expect(0, &[("unchanged", 3), ("deferred", 1), ("conflicts", 1)]);
    assert_eq!(run.summary()["signed"], 1, "{run:?}");
    assert_mirrored(&world);
    let (id, ..) = document(&world, "a/1.txt");
    let decision = decisions(&world).into_iter().find(|decision| decision.key.id == id).unwrap();
    assert_eq!(payload(&decision)["digest"], Digest::of(b"edited").to_hex());
    let version = graph(&world.host(), "SELECT version FROM edit");
    assert_eq!(version, [decision.decision_hlc.as_str()]);
}

#[test]
fn an_edit_is_signed_where_nothing_is_left_to_mirror() {
    let world = World::with(&["a/1.txt"]);
    world.run(&[]).expect(0, &[("created", 1)]);
    world.remove("a/1.txt");
    let run = world.run(&EDIT);
    run.expect(0, &[("deferred", 1), ("conflicts", 1)]);
    assert_eq!(run.summary()["signed"], 1, "{run:?}");
    assert_mirrored(&world);
}

#[test]
fn an_edit_whose_run_was_killed_before_it_was_signed_is_signed_by_the_next() {
    let world = mirrored_world();
    let before = decisions(&world);
    let args = [&["--crash-after", "edit"], &EDIT[..]].concat();
    let output = world.command(&world.host(), &args).output().unwrap();
    assert_eq!(output.status.signal(), Some(9));
    assert_eq!(decisions(&world), before);
    let run = world.run(&[]);
    run.expect(0, &[("unchanged", 3), ("written", 1)]);
    assert_eq!(run.summary()["signed"], 1, "{run:?}");
    assert_mirrored(&world);
    assert_eq!(world.run(&[]).summary()["signed"], 0);
}

#[test]
fn a_run_that_is_killed_between_row_and_record_is_made_whole_by_the_next() {
    const DUE: &str = "SELECT document_id FROM document WHERE sign_due = 1";
    let world = World::with(&TREE);
    // The program goes on until the kill arrives, so it is not always at the step it told last.
    for attempt in 0..50 {
        run_killed_at(&world, &world.host(), 1, "step: 2 documents of a written");
        if !graph(&world.host(), DUE).is_empty() && decisions(&world).is_empty() {
            let run = world.run(&["--owners", "2"]);
            assert_eq!(run.code, Some(0), "{run:?}");
            assert_eq!(decisions(&world).len(), 6, "three files for two owners");
            assert!(graph(&world.host(), DUE).is_empty());
            assert_mirrored(&world);
            return;
        }
        fs::rename(world.host(), world.path(&format!("too-late-{attempt}"))).unwrap();
    }
    panic!("no run was killed between a row and its record");
}

#[test]
fn a_graph_from_before_there_were_records_is_signed_whole() {
    let world = mirrored_world();
    for sql in [
        "DROP INDEX document_sign_due",
        "ALTER TABLE document DROP COLUMN sign_due",
        "UPDATE document SET version = NULL",
    ] {
        graph(&world.host(), sql);
    }
    let run = world.run(&[]);
    run.expect(0, &[("unchanged", 3)]);
    assert_eq!(run.summary()["signed"], 3, "{run:?}");
    assert_mirrored(&world);
    assert_eq!(world.run(&[]).summary()["signed"], 0);
}

#[test]
fn the_clock_starts_above_the_greatest_stamp_of_the_store() {
    let world = mirrored_world();
    let ahead = stamp(AHEAD_MS);
    say_elsewhere(&world, "a/1.txt", &ahead, &ahead, false);
    world.write("a/1.txt", "changed");
    let run = world.run(&[]);
    run.expect(0, &[("updated", 1), ("unchanged", 2)]);
    assert_eq!((&run.summary()["signed"], &run.summary()["decided"]), (&1.into(), &0.into()));
    assert_mirrored(&world);
}

#[test]
fn a_fetch_that_is_newer_than_a_decision_from_elsewhere_pays_the_repair() {
    let world = mirrored_world();
    let now = stamp(0);
    say_elsewhere(&world, "a/1.txt", &now, &now, true);
    assert_eq!(store(&world.host(), REPAIRS), [now.as_str()]);
    // The file is as it was, which is newer knowledge than what was said elsewhere.
    let run = world.run(&[]);
    run.expect(0, &[("unchanged", 3)]);
    assert_eq!(run.summary()["signed"], 1, "{run:?}");
    assert!(store(&world.host(), REPAIRS).is_empty());
    assert_mirrored(&world);
    assert_eq!(world.run(&[]).summary()["signed"], 0);
}

#[test]
fn what_was_decided_after_a_fetch_is_not_overwritten_by_it_and_owes_a_repair() {
    let world = mirrored_world();
    // The device has decided ahead of its own stamp, so the host's clock knows nothing of it.
    let (now, ahead) = (stamp(0), stamp(AHEAD_MS));
    say_elsewhere(&world, "a/1.txt", &now, &ahead, false);
    world.write("a/1.txt", "changed");
    let run = world.run(&[]);
    run.expect(0, &[("unchanged", 3)]);
    assert_eq!((&run.summary()["signed"], &run.summary()["decided"]), (&0.into(), &1.into()));
    let body = graph(&world.host(), "SELECT body FROM document WHERE source_id = 'a/1.txt'");
    assert_eq!(body, ["a/1.txt"]);
    assert_eq!(store(&world.host(), REPAIRS), [ahead.as_str()]);
    // The clock starts above what is owed, so the next fetch is newer than what was decided.
    world.run(&[]).expect(0, &[("updated", 1), ("unchanged", 2)]);
    assert!(store(&world.host(), REPAIRS).is_empty());
    assert_mirrored(&world);
}
