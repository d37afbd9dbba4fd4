//! What is mirrored, and what a run says of it.

use crate::rows::{graph, mirrored, store};
use crate::world::{LONG, World};

const TREE: [&str; 5] = ["a/1.txt", "a/2.txt", "a/deep/down/3.txt", "b/1.txt", "b/2.txt"];

#[test]
fn a_first_run_creates_everything_and_a_second_changes_nothing() {
    let world = World::with(&TREE);
    world.write("in-no-partition.txt", "left alone");
    world.run(&[]).expect(0, &[("created", 5)]);
    assert_eq!(mirrored(&world.host()), TREE);
    world.run(&[]).expect(0, &[("unchanged", 5)]);
}

#[test]
fn the_summary_has_its_names_in_their_order() {
    let world = World::with(&TREE);
    let run = world.run(&["--owners", "2", "--page-size", "2"]);
    let line = run.stdout.lines().last().unwrap().to_owned();
    let names = [
        "owners",
        "partitions",
        "entities",
        "created",
        "updated",
        "unchanged",
        "trimmed",
        "swept",
        "skipped",
        "refused",
        "commands",
        "events",
        "batches",
        "seconds",
        "written",
        "reconciled",
        "verified",
        "mismatched",
        "deferred",
        "conflicts",
        "signed",
        "decided",
    ];
    let places: Vec<_> = names.iter().map(|name| line.find(&format!("\"{name}\":"))).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{line}");
    let summary = run.summary();
    assert_eq!(summary.as_object().unwrap().len(), names.len());
    assert_eq!((&summary["owners"], &summary["partitions"]), (&2.into(), &4.into()));
    assert_eq!((&summary["entities"], &summary["created"]), (&10.into(), &10.into()));
    assert!(summary["commands"].as_u64() >= summary["batches"].as_u64());
}

#[test]
fn exactly_the_changed_file_is_updated_and_the_removed_one_swept() {
    let world = World::with(&TREE);
    world.run(&[]).expect(0, &[("created", 5)]);
    world.write("a/1.txt", "changed");
    world.remove("b/2.txt");
    world.run(&[]).expect(0, &[("updated", 1), ("unchanged", 3), ("swept", 1)]);
    assert_eq!(mirrored(&world.host()), TREE[..4]);
    let body = graph(&world.host(), "SELECT body FROM document WHERE source_id = 'a/1.txt'");
    assert_eq!(body, ["changed"]);
    world.run(&[]).expect(0, &[("unchanged", 4)]);
    world.write("b/2.txt", "back");
    world.run(&[]).expect(0, &[("created", 1), ("unchanged", 4)]);
}

#[test]
fn a_body_over_the_cap_is_cut_between_characters_and_the_store_knows_it() {
    let world = World::with(&["a/short.txt"]);
    // One byte, then characters of two: the cap of 16,384 falls into one of them.
    world.write("a/long.txt", &format!("x{}", "ä".repeat(LONG / 2)));
    world.run(&[]).expect(0, &[("created", 2), ("trimmed", 1)]);
    let kept = "SELECT length(CAST(body AS BLOB)), trim_due FROM document WHERE title = 'long.txt'";
    assert_eq!(graph(&world.host(), kept), ["16383 | 0"]);
    let trims = "SELECT trimmed_fields FROM kubun_connector_entity_trim";
    assert_eq!(store(&world.host(), trims), [r#"{"body":{"bytes":20001,"kept":16383}}"#]);

    world.write("a/long.txt", "short now");
    world.run(&[]).expect(0, &[("updated", 1), ("unchanged", 1)]);
    assert!(store(&world.host(), trims).is_empty());
}

#[test]
fn what_is_swept_leaves_no_trim_behind() {
    let world = World::with(&["a/1.txt", "a/2.txt"]);
    world.write("a/long.txt", &"x".repeat(LONG));
    world.run(&[]).expect(0, &[("created", 3), ("trimmed", 1)]);
    world.remove("a/long.txt");
    world.run(&[]).expect(0, &[("unchanged", 2), ("swept", 1)]);
    assert!(store(&world.host(), "SELECT document_id FROM kubun_connector_entity_trim").is_empty());
}

#[test]
fn every_owner_has_a_key_and_documents_of_its_own() {
    let world = World::with(&TREE);
    world.run(&["--owners", "3"]).expect(0, &[("created", 15)]);
    let owners = graph(&world.host(), "SELECT DISTINCT owner FROM document");
    assert_eq!(owners.len(), 3);
    assert!(owners.iter().all(|owner| owner.starts_with("did:key:z6Mk")));
    world.run(&["--owners", "3"]).expect(0, &[("unchanged", 15)]);
    assert_eq!(graph(&world.host(), "SELECT DISTINCT owner FROM document"), owners);
}

#[test]
fn two_spellings_of_one_name_are_two_entities() {
    let world = World::with(&["a/\u{e4}.txt", "a/a\u{308}.txt"]);
    world.run(&[]).expect(0, &[("created", 2)]);
    world.run(&[]).expect(0, &[("unchanged", 2)]);
    world.remove("a/\u{e4}.txt");
    world.run(&[]).expect(0, &[("unchanged", 1), ("swept", 1)]);
    assert_eq!(mirrored(&world.host()), ["a/a\u{308}.txt"]);
}

#[test]
fn a_host_inside_its_source_does_not_mirror_itself() {
    let world = World::with(&TREE);
    let host = world.file("a/host");
    let run = |host| crate::world::Run::of(world.command(host, &[]).output().unwrap());
    run(&host).expect(0, &[("created", 5)]);
    run(&host).expect(0, &[("unchanged", 5)]);
}

#[test]
fn a_file_whose_name_a_directory_takes_is_gone() {
    let world = World::with(&TREE);
    world.run(&[]).expect(0, &[("created", 5)]);
    world.remove("b/1.txt");
    world.write("b/1.txt/inside", "a file below it");
    world.run(&[]).expect(0, &[("created", 1), ("unchanged", 4), ("swept", 1)]);
}
