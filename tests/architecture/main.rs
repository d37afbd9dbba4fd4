//! The house rules that no compiler holds: which folder names which, which library is named where,
//! what a public signature shows, how a file begins and how long it gets.
//!
//! It reads the text of `src`, so it sees code of every feature. Code under `#[cfg(test)]` may name
//! anything.

// A test that cannot go on should stop.
#![allow(clippy::unwrap_used)]

mod rules;
mod samples;
mod words;

use std::path::{Path, PathBuf};

use rules::Source;

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    files(&root, &mut paths);
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let place = path.strip_prefix(&root).unwrap();
            let parts: Vec<_> = place.iter().map(|part| part.to_str().unwrap()).collect();
            Source::new(parts.join("/"), std::fs::read_to_string(path).unwrap())
        })
        .collect()
}

#[test]
fn the_sources_keep_the_rules() {
    let sources = sources();
    assert!(sources.len() > 50, "only {} files were found", sources.len());
    let broken = rules::broken(&sources);
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}
