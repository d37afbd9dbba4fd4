//! The mass-delete guard: what is refused, and that nothing is lost by it.

use std::fs;
use std::path::Path;

use crate::rows::{mirrored, state};
use crate::world::World;

const TREE: [&str; 5] = ["a/1.txt", "a/2.txt", "a/3.txt", "b/1.txt", "b/2.txt"];

fn empty_files(source: &Path) {
    for directory in ["a", "b"] {
        fs::remove_dir_all(source.join(directory)).unwrap();
        fs::create_dir(source.join(directory)).unwrap();
    }
}

fn empty_directories(source: &Path) {
    for directory in ["a", "b"] {
        fs::remove_dir_all(source.join(directory)).unwrap();
    }
}

#[test]
fn an_emptied_source_deletes_nothing_unless_the_user_says_so() {
    for emptied in [empty_files, empty_directories] {
        let world = World::with(&TREE);
        world.run(&[]).expect(0, &[("created", 5)]);
        emptied(&world.source());
        for _ in 0..2 {
            let run = world.run(&[]);
            run.expect(3, &[("refused", 2)]);
            assert!(run.stderr.contains("refused"), "{run:?}");
            assert_eq!(mirrored(&world.host()), TREE);
        }
        world.run(&["--allow-mass-delete"]).expect(0, &[("swept", 5)]);
        assert!(mirrored(&world.host()).is_empty());
        world.run(&[]).expect(0, &[]);
    }
}

#[test]
fn a_refused_source_that_comes_back_is_as_before() {
    let world = World::with(&TREE);
    world.run(&[]).expect(0, &[("created", 5)]);
    world.run(&[]).expect(0, &[("unchanged", 5)]);
    let before = state(&world.host());
    fs::rename(world.source(), world.path("away")).unwrap();
    fs::create_dir(world.source()).unwrap();
    world.run(&[]).expect(3, &[("refused", 2)]);
    fs::remove_dir(world.source()).unwrap();
    fs::rename(world.path("away"), world.source()).unwrap();
    world.run(&[]).expect(0, &[("unchanged", 5)]);
    assert_eq!(state(&world.host()), before);
}

#[test]
fn the_last_file_of_a_partition_is_kept_while_the_others_go_on() {
    let world = World::with(&["a/only.txt", "b/1.txt", "b/2.txt"]);
    world.run(&[]).expect(0, &[("created", 3)]);
    world.remove("a/only.txt");
    world.remove("b/1.txt");
    world.write("b/2.txt", "changed");
    world.run(&[]).expect(3, &[("updated", 1), ("swept", 1), ("refused", 1)]);
    assert_eq!(mirrored(&world.host()), ["a/only.txt", "b/2.txt"]);
}

#[test]
fn most_of_a_large_partition_is_not_swept_but_the_rest_is_mirrored() {
    let files: Vec<_> = (0..60).map(|number| format!("a/{number:02}.txt")).collect();
    let world = World::with(&files.iter().map(String::as_str).collect::<Vec<_>>());
    world.run(&["--page-size", "7"]).expect(0, &[("created", 60)]);
    for file in &files[..31] {
        world.remove(file);
    }
    world.write("a/new.txt", "new");
    world.run(&[]).expect(3, &[("created", 1), ("unchanged", 29), ("refused", 1)]);
    world.write(&files[0], &files[0]);
    world.run(&[]).expect(0, &[("unchanged", 31), ("swept", 30)]);
}

#[test]
fn the_difference_of_two_sources_is_no_deletion() {
    let world = World::with(&TREE);
    world.run(&[]).expect(0, &[("created", 5)]);
    fs::rename(world.source(), world.path("first")).unwrap();
    fs::create_dir(world.source()).unwrap();
    fs::rename(world.source(), world.path("second")).unwrap();
    // The same name leads to another folder: only the path of a link's end tells them apart.
    std::os::unix::fs::symlink(world.path("second"), world.source()).unwrap();
    world.write("a/1.txt", "a/1.txt");
    world.write("b/1.txt", "b/1.txt");
    world.write("b/2.txt", "b/2.txt");
    world.run(&[]).expect(3, &[("unchanged", 3), ("refused", 1)]);
    assert_eq!(mirrored(&world.host()), TREE);
    // The second folder's own deletions count as ever, once it was seen whole.
    world.remove("b/2.txt");
    world.run(&[]).expect(3, &[("unchanged", 2), ("swept", 1), ("refused", 1)]);
}

#[test]
fn a_missing_source_is_an_error_and_deletes_nothing() {
    let world = World::with(&TREE);
    world.run(&[]).expect(0, &[("created", 5)]);
    fs::remove_dir_all(world.source()).unwrap();
    assert_eq!(world.run(&[]).code, Some(1));
    assert_eq!(mirrored(&world.host()), TREE);
}
