//! The rules, and what breaks them.

use std::collections::BTreeSet;

use crate::words::{without_tests, words};

/// The folders. Each names only those before it.
const ORDER: [&str; 7] = ["base", "records", "domain", "journal", "runtime", "store", "testing"];

/// Longest file, in lines.
const MAX_FILE_LINES: usize = 600;

/// A name, and the places that may use it: folders end in a slash.
struct Place {
    name: &'static str,
    allowed: &'static [&'static str],
}

const SHELL: &[&str] = &["journal/", "runtime/", "store/", "testing/"];

/// Libraries, each followed by a path in code that uses it.
const LIBRARIES: &[Place] = &[
    Place { name: "actix", allowed: &["runtime/"] },
    Place { name: "actix_rt", allowed: &["runtime/"] },
    Place { name: "sqlx", allowed: &["journal/sqlite/", "journal/postgres/"] },
    Place { name: "bincode", allowed: &["journal/codec.rs"] },
    Place { name: "ed25519_dalek", allowed: &["records/keys.rs"] },
    Place { name: "p256", allowed: &["records/keys.rs"] },
    Place { name: "tokio", allowed: SHELL },
    Place { name: "tracing", allowed: SHELL },
    Place { name: "metrics", allowed: SHELL },
    Place { name: "rand", allowed: &[] },
    Place { name: "getrandom", allowed: &[] },
];

/// Words that read a clock or draw by chance, wherever they stand.
const SOURCES_OF_TIME_AND_CHANCE: &[Place] = &[
    Place { name: "SystemTime", allowed: &["runtime/clock.rs"] },
    Place { name: "Instant", allowed: &["runtime/clock.rs"] },
    Place { name: "new_v4", allowed: &["runtime/clock.rs"] },
    Place { name: "new_v7", allowed: &["runtime/clock.rs", "testing/"] },
    Place { name: "now_v7", allowed: &[] },
    Place { name: "RandomState", allowed: &["runtime/directory.rs"] },
    Place { name: "sleep", allowed: &["runtime/", "store/", "testing/"] },
];

/// Libraries whose types no public signature shows.
const HIDDEN: [&str; 7] =
    ["actix", "actix_rt", "bincode", "ed25519_dalek", "metrics", "p256", "sqlx"];

/// A file of `src`.
pub struct Source {
    place: String,
    text: String,
    /// Its words without test code, and the test code's.
    words: Vec<String>,
    tests: Vec<String>,
}

impl Source {
    pub fn new(place: String, text: String) -> Self {
        let (words, tests) = without_tests(&words(&text));
        Self { place, text, words, tests }
    }

    fn folder(&self) -> Option<&str> {
        self.place.split_once('/').map(|(folder, _)| folder)
    }

    /// The path of its module: `["journal", "sqlite", "read"]`.
    fn module(&self) -> Vec<&str> {
        let place = self.place.trim_end_matches(".rs").trim_end_matches("/mod");
        place.split('/').collect()
    }

    fn is_in(&self, places: &[&str]) -> bool {
        places.iter().any(|place| {
            self.place == *place || (place.ends_with('/') && self.place.starts_with(place))
        })
    }
}

/// Every broken rule, as a line each.
pub fn broken(sources: &[Source]) -> Vec<String> {
    let test_files = test_files(sources);
    let mut broken = Vec::new();
    for source in sources {
        let mut say = |what: String| broken.push(format!("{}: {what}", source.place));
        if !source.text.starts_with("//! ") {
            say("begins without //!".to_owned());
        }
        let lines = source.text.lines().count();
        if lines > MAX_FILE_LINES {
            say(format!("has {lines} lines, at most {MAX_FILE_LINES} are allowed"));
        }
        if test_files.contains(&source.place) {
            continue;
        }
        order(source, &mut say);
        places(source, &mut say);
        signatures(source, &mut say);
    }
    broken
}

/// The files that are compiled for tests alone.
fn test_files(sources: &[Source]) -> BTreeSet<String> {
    let mut files: BTreeSet<String> = sources
        .iter()
        .filter(|source| source.place.ends_with("_tests.rs"))
        .map(|source| source.place.clone())
        .collect();
    for source in sources {
        let parent = match source.place.rsplit_once('/') {
            Some((dir, "mod.rs")) => format!("{dir}/"),
            Some(_) => format!("{}/", source.place.trim_end_matches(".rs")),
            None => String::new(),
        };
        for item in source.tests.windows(3).filter(|item| item[0] == "mod" && item[2] == ";") {
            files.insert(format!("{parent}{}.rs", item[1]));
        }
    }
    files
}

/// A folder names only folders above it.
fn order(source: &Source, say: &mut impl FnMut(String)) {
    let Some(folder) = source.folder() else { return };
    let Some(own) = ORDER.iter().position(|name| *name == folder) else {
        return say(format!("the folder {folder} has no place in the order"));
    };
    for named in named_folders(source) {
        match ORDER.iter().position(|name| *name == named) {
            Some(at) if at <= own => {}
            Some(_) => say(format!("{folder} names {named}, which stands below it")),
            // The last folder stands below everything that the root passes on.
            None if own + 1 == ORDER.len() => {}
            None => say(format!("crate::{named} hides the folder that it comes from")),
        }
    }
}

/// The first names behind every path that begins at the crate's root.
fn named_folders(source: &Source) -> BTreeSet<String> {
    let words = &source.words;
    let depth = source.module().len();
    let mut named = BTreeSet::new();
    let mut at = 0;
    while at < words.len() {
        let start = at;
        at += 1;
        let is_path = |at: usize| words.get(at + 1).is_some_and(|word| word == "::");
        let mut next = start;
        match words[start].as_str() {
            "crate" if is_path(start) => next += 2,
            "super" if is_path(start) => {
                let mut steps = 0;
                while words.get(next).is_some_and(|word| word == "super") && is_path(next) {
                    (next, steps) = (next + 2, steps + 1);
                }
                at = next;
                if steps < depth {
                    continue;
                }
            }
            _ => continue,
        }
        at = next;
        first_names(&words[next..], &mut named);
    }
    named
}

/// `a::b` gives a, `{a::b, c::{d, e}}` gives a and c.
fn first_names(words: &[String], named: &mut BTreeSet<String>) {
    if words.first().is_none_or(|word| word != "{") {
        named.extend(words.first().cloned());
        return;
    }
    let mut depth = 0_usize;
    for (before, word) in words.iter().zip(&words[1..]) {
        match before.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return;
        }
        if depth == 1 && (before == "{" || before == ",") && word != "}" {
            named.insert(word.clone());
        }
    }
}

/// Libraries, clocks and chance are named only where they may be.
fn places(source: &Source, say: &mut impl FnMut(String)) {
    let mut said = BTreeSet::new();
    for (at, word) in source.words.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", |at| &source.words[at]);
        let behind = source.words.get(at + 1).map_or("", String::as_str);
        let is_library = before != "::" && (behind == "::" || before == "use");
        let library = LIBRARIES.iter().filter(|_| is_library);
        for place in library.chain(SOURCES_OF_TIME_AND_CHANCE) {
            if place.name == word && !source.is_in(place.allowed) && said.insert(place.name) {
                say(format!("names {word}"));
            }
        }
    }
}

/// No public signature shows a hidden library's type.
fn signatures(source: &Source, say: &mut impl FnMut(String)) {
    let words = &source.words;
    let hidden = hidden_names(words);
    for at in (0..words.len()).filter(|at| words[*at] == "pub") {
        let Some(end) = end_of_signature(words, at + 1) else { continue };
        if let Some(shown) = words[at..end].iter().find(|word| hidden.contains(word.as_str())) {
            say(format!("{shown} is in the public signature of {}", words[at..at + 4].join(" ")));
        }
    }
}

/// The hidden libraries, and what the file takes from them.
fn hidden_names(words: &[String]) -> BTreeSet<&str> {
    let mut names = BTreeSet::from(HIDDEN);
    for at in 0..words.len() {
        let begins =
            words[at] == "use" && words.get(at + 1).is_some_and(|w| HIDDEN.contains(&w.as_str()));
        if begins {
            let tree = words[at + 1..].iter().take_while(|word| *word != ";");
            let types = tree.filter(|word| word.starts_with(char::is_uppercase));
            names.extend(types.map(String::as_str));
        }
    }
    names
}

/// Where the signature behind a `pub` ends; none for what is not public, or shows no type.
fn end_of_signature(words: &[String], at: usize) -> Option<usize> {
    let mut kind = at;
    while ["async", "const", "unsafe"].contains(&words.get(kind)?.as_str()) {
        kind += 1;
    }
    let ends: &[&str] = match words[kind].as_str() {
        // A trait's methods are as public as it is.
        "trait" => {
            let open = (kind..words.len()).find(|at| words[*at] == "{")?;
            return block_end(words, open);
        }
        "fn" => &["{", ";"],
        "type" | "static" => &[";"],
        // `pub const NAME: T = …;`, or a field.
        _ if words.get(kind + 1)? == ":" => &[",", "=", "}"],
        _ => return None,
    };
    (kind..words.len()).find(|at| ends.contains(&words[*at].as_str()))
}

fn block_end(words: &[String], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    (open..words.len()).find(|at| {
        match words[*at].as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        depth == 0
    })
}
