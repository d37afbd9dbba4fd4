//! What cannot be mirrored is told and counted, and never taken for deleted.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;

use crate::rows::{graph, mirrored, store};
use crate::world::World;

const HUGE: u64 = 1 << 40;

#[test]
fn a_file_that_becomes_unreadable_in_any_way_is_not_swept() {
    let names = ["pipe", "socket", "dangling", "loop", "link-to-directory", "huge"];
    let paths: Vec<_> = names.iter().map(|name| format!("a/{name}")).collect();
    let mut files: Vec<_> = paths.iter().map(String::as_str).collect();
    files.extend(["a/plain", "b/plain"]);
    let world = World::with(&files);
    world.run(&[]).expect(0, &[("created", 8)]);
    let before = mirrored(&world.host());

    for path in &paths {
        world.remove(path);
    }
    assert!(Command::new("mkfifo").arg(world.file("a/pipe")).status().unwrap().success());
    let _socket = UnixListener::bind(world.file("a/socket")).unwrap();
    symlink("nowhere", world.file("a/dangling")).unwrap();
    symlink("loop", world.file("a/loop")).unwrap();
    symlink("../b", world.file("a/link-to-directory")).unwrap();
    File::create(world.file("a/huge")).unwrap().set_len(HUGE).unwrap();
    let run = world.run(&[]);
    run.expect(0, &[("unchanged", 2), ("skipped", 6)]);
    assert_eq!(mirrored(&world.host()), before);
    let keep = "SELECT keep FROM kubun_connector_sweep_receipt WHERE partition = 'a'";
    let keep = store(&world.host(), keep).concat();
    for name in names {
        assert!(keep.contains(&format!("a/{name}\"")), "{name} is not kept: {keep}");
        assert!(run.stderr.contains(&format!("a/{name}: ")), "{name} is not named: {run:?}");
    }
}

#[test]
fn names_that_no_id_can_hold_are_counted() {
    let world = World::with(&["a/plain"]);
    let odd = |name: &[u8]| world.source().join(OsStr::from_bytes(name));
    fs::write(odd(b"a/\xff.txt"), "not UTF-8").unwrap();
    fs::write(odd(b"a/line\nbreak"), "a control character").unwrap();
    fs::create_dir(odd(b"a/\xfe")).unwrap();
    fs::write(odd(b"a/\xfe/below"), "counted with its directory").unwrap();
    fs::create_dir(odd(b"\xfd")).unwrap();
    symlink("a", odd(b"link")).unwrap();
    for _ in 0..2 {
        let run = world.run(&[]);
        assert_eq!((run.code, &run.summary()["skipped"]), (Some(0), &5.into()), "{run:?}");
    }
    assert_eq!(mirrored(&world.host()), ["a/plain"]);
}

#[test]
fn an_id_too_long_is_counted() {
    let world = World::with(&["a/plain"]);
    let deep = ["x".repeat(200).as_str(); 6].join("/");
    fs::create_dir_all(world.source().join("a").join(deep)).unwrap();
    world.run(&[]).expect(0, &[("created", 1), ("skipped", 1)]);
}

#[test]
fn links_to_files_are_mirrored_and_what_is_no_text_has_no_body() {
    let world = World::with(&["a/plain"]);
    symlink("plain", world.file("a/link")).unwrap();
    fs::write(world.file("a/binary"), [0xff; 30_000]).unwrap();
    world.run(&[]).expect(0, &[("created", 3)]);
    let bodies = graph(&world.host(), "SELECT title, body FROM document");
    assert_eq!(bodies, ["binary | NULL", "link | a/plain", "plain | a/plain"]);
}

#[test]
fn what_lies_behind_a_closed_door_is_not_gone() {
    let world =
        World::with(&["a/1", "a/2", "a/closed/3", "a/closed/4", "b/1", "b/2", "b/3", "c/1"]);
    world.run_unprivileged(&[]).expect(0, &[("created", 8)]);
    let before = mirrored(&world.host());
    let close = |file: &str| {
        fs::set_permissions(world.file(file), Permissions::from_mode(0o000)).unwrap();
    };
    close("a/closed");
    close("b/1");
    close("c");
    // Of a and c there is no telling what is missing; b is whole, so its deletion is one.
    world.remove("a/2");
    world.remove("b/2");
    let run = world.run_unprivileged(&[]);
    run.expect(0, &[("unchanged", 2), ("skipped", 3), ("swept", 1)]);
    let kept: Vec<_> = before.into_iter().filter(|id| id != "b/2").collect();
    assert_eq!(mirrored(&world.host()), kept);

    fs::set_permissions(world.file("c"), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(world.file("a/closed"), Permissions::from_mode(0o755)).unwrap();
    world.run_unprivileged(&[]).expect(0, &[("unchanged", 5), ("skipped", 1), ("swept", 1)]);
}
