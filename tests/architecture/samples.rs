//! Bad samples: each rule finds what breaks it, and passes what does not.

use crate::rules::{Source, broken};

fn check(place: &str, code: &str) -> Vec<String> {
    broken(&[Source::new(place.to_owned(), format!("//! A sample.\n{code}"))])
}

#[test]
fn what_breaks_a_rule_is_found() {
    let cases = [
        ("base/a.rs", "use crate::domain::Row;", "base names domain"),
        ("records/a.rs", "use crate::{base::Error, store::Store};", "records names store"),
        ("records/a.rs", "use crate::{base::{Error, Key}, journal::{Head}};", "names journal"),
        ("journal/sqlite/a.rs", "fn f() { crate::runtime::telemetry::x(); }", "names runtime"),
        ("journal/sqlite/a.rs", "use super::super::super::store::X;", "names store"),
        ("domain/mod.rs", "use super::journal::Head;", "names journal"),
        ("domain/a.rs", "use crate::Error;", "hides the folder"),
        ("elsewhere/a.rs", "", "no place in the order"),
        ("domain/a.rs", "use tokio::sync::oneshot;", "names tokio"),
        ("domain/a.rs", "use tracing;", "names tracing"),
        ("records/a.rs", "fn f() { metrics::counter!(\"x\"); }", "names metrics"),
        ("base/a.rs", "fn f() { std::time::SystemTime::now(); }", "names SystemTime"),
        ("journal/a.rs", "use std::time::{Duration, Instant};", "names Instant"),
        ("domain/a.rs", "fn f() -> Uuid { Uuid::new_v4() }", "names new_v4"),
        ("store/a.rs", "use rand::Rng;", "names rand"),
        ("store/a.rs", "use actix::Addr;", "names actix"),
        ("runtime/a.rs", "use sqlx::Row as _;", "names sqlx"),
        ("journal/memory/a.rs", "fn f() { sqlx::query(\"\"); }", "names sqlx"),
        ("journal/port.rs", "use bincode::config;", "names bincode"),
        ("runtime/a.rs", "pub fn f(a: actix::Addr<A>) {}", "public signature"),
        ("runtime/a.rs", "use actix::Addr;\npub async fn f() -> Addr<A> {}", "public signature"),
        ("journal/sqlite/a.rs", "use sqlx::{Row};\npub struct S { pub row: Row }", "signature"),
        ("journal/sqlite/a.rs", "pub trait T { fn f(&self) -> sqlx::Result<()>; }", "signature"),
        ("records/keys.rs", "pub type Key = ed25519_dalek::SigningKey;", "public signature"),
        ("runtime/a.rs", "fn f() { let a = '\"'; }\npub fn g(a: actix::A) {}", "signature"),
    ];
    for (place, code, expected) in cases {
        let found = check(place, code);
        assert!(found.iter().any(|line| line.contains(expected)), "{place}: {code}: {found:?}");
    }
}

#[test]
fn what_keeps_the_rules_passes() {
    let cases = [
        ("domain/connector/a.rs", "use super::super::Row;\nuse crate::base::{Error, Result};"),
        ("domain/a.rs", "// use tokio::sync;\n/* tracing::info /* metrics:: */ sqlx:: */"),
        ("domain/a.rs", "const A: &str = \"tokio::x\"; const B: &str = r#\"sqlx:: \" actix::\"#;"),
        ("domain/a.rs", "fn f<'a>(metrics: &'a Metrics, tokio: u8) { metrics.rand(tokio); }"),
        ("domain/a.rs", "#[cfg(test)]\nmod tests { use tokio::test; use crate::store::Store; }"),
        ("domain/a.rs", "#[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod tests;\nuse crate::base::E;"),
        ("domain/a_tests.rs", "use crate::testing::given;"),
        ("testing/a.rs", "use crate::Store;\nuse crate::store::Store;"),
        ("runtime/a.rs", "use actix::Addr;\npub(super) fn f(a: Addr<A>) {}\nfn g(a: Addr<B>) {}"),
        ("journal/sqlite/a.rs", "use sqlx::Row;\npub fn f(a: u8) { Row::new(a); }"),
        ("lib.rs", "pub mod store;\npub use store::Store;"),
    ];
    for (place, code) in cases {
        assert_eq!(check(place, code), Vec::<String>::new(), "{place}: {code}");
    }
}

#[test]
fn a_module_declared_under_test_is_a_test_file() {
    let files = |mark: &str| {
        broken(&[
            Source::new("domain/mod.rs".to_owned(), format!("//! A.\n{mark}\nmod given;")),
            Source::new("domain/given.rs".to_owned(), "//! B.\nuse crate::store::X;".to_owned()),
        ])
    };
    assert_eq!(files("#[cfg(test)]"), Vec::<String>::new());
    assert_eq!(files("").len(), 1);
}

#[test]
fn a_file_says_what_it_owns_and_stays_short() {
    let file = |text: String| broken(&[Source::new("base/a.rs".to_owned(), text)]);
    assert_eq!(file("use std::fmt;\n".to_owned()).len(), 1);
    assert_eq!(file(format!("//! A.\n{}", "\n".repeat(599))), Vec::<String>::new());
    assert_eq!(file(format!("//! A.\n{}", "\n".repeat(600))).len(), 1);
}
