//! The rules of watches and of read winners one by one.

use super::super::fixture::*;
use super::super::{Document, DocumentCommand, WatchReason};
use super::*;
use crate::domain::{RowKey, Table, Value};
use crate::testing::given::{Given, at};
use crate::{Error, base};

/// Armed at 1,000 for the write of 500, with its deadline at 1,100.
fn armed() -> Given<Document> {
    let mut given = fresh();
    assert_eq!(given.done(&arm(500), at(1_000)), DocumentReply::Armed(ArmOutcome::Armed));
    given
}

fn verify(fetch: i64, observed: Option<&str>) -> DocumentCommand {
    let observed = observed.map(|text| Digest::of(text.as_bytes()));
    DocumentCommand::RecordVerification { fetch_hlc: hlc(fetch), observed }
}

fn outcome(
    given: &mut Given<Document>,
    fetch: i64,
    observed: Option<&str>,
    now: i64,
) -> Verification {
    match given.done(&verify(fetch, observed), at(now)) {
        DocumentReply::Verification(verification) => verification,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_standing_watch_is_replaced_unless_it_is_of_a_newer_write() {
    for (written, expected) in
        [(501, ArmOutcome::Replaced), (500, ArmOutcome::Replaced), (499, ArmOutcome::Kept)]
    {
        let mut given = armed();
        outcome(&mut given, 600, Some("other"), 1_001);
        let before = given.state.watch.clone();
        assert_eq!(given.done(&arm(written), at(2_000)), DocumentReply::Armed(expected));
        let watch = given.state.watch.as_ref().unwrap();
        if expected == ArmOutcome::Kept {
            assert_eq!(Some(watch), before.as_ref());
        } else {
            assert_eq!((watch.written_hlc.clone(), watch.deadline), (hlc(written), time(2_100)));
            assert_eq!((watch.status, watch.mismatches), (WatchStatus::Pending, 0));
            assert_eq!((watch.armed_at, &watch.last_fetch_hlc), (time(2_000), &None));
        }
        given.assert_rows_are_those_of_the_state();
    }
}

#[test]
fn nothing_is_armed_while_the_document_is_swept() {
    let mut given = fresh();
    given.done(&DocumentCommand::BeginDocumentSweep, at(1));
    given.when(&arm(1), at(2)).refused_with(&Error::DocumentBeingSwept { document_id: document() });
    given.done(&DocumentCommand::AbandonDocumentSweep, at(3));
    given.done(&arm(1), at(4));
}

#[test]
fn a_deadline_out_of_bounds_is_refused() {
    for (deadline_ms, is_taken) in [
        (-1, false),
        (0, true),
        (base::limits::MAX_DELAY_MS, true),
        (base::limits::MAX_DELAY_MS + 1, false),
    ] {
        let options = WatchOptions { deadline_ms, ..options(1) };
        let command = DocumentCommand::ArmWatch { identity: identity(), options };
        let given = fresh();
        let then = given.when(&command, at(i64::MAX));
        if is_taken {
            assert_eq!(then.events().len(), 1);
        } else {
            then.refused_input("deadline");
        }
    }
}

#[test]
fn a_fetch_comes_to_what_it_proves() {
    let mismatched = |count| Verification::Mismatched { count };
    // The fetch, what it shows, when it is told, what it comes to, whether the watch stays.
    let cases = [
        (499, Some("written"), 1_050, Verification::Stale, true),
        (499, Some("other"), 1_050, Verification::Stale, true),
        (499, Some("other"), 9_000, Verification::Stale, true),
        (500, Some("written"), 1_050, Verification::Verified, false),
        (501, Some("written"), 1_050, Verification::Verified, false),
        (501, Some("written"), 9_000, Verification::Verified, false),
        (501, Some("other"), 1_099, mismatched(1), true),
        (501, None, 1_099, mismatched(1), true),
        (501, Some("other"), 1_100, Verification::Expired, true),
        (501, None, 9_000, Verification::Expired, true),
    ];
    for (fetch, observed, now, expected, stays) in cases {
        let mut given = armed();
        let case = format!("{fetch} {observed:?} {now}");
        assert_eq!(outcome(&mut given, fetch, observed, now), expected, "{case}");
        assert_eq!(given.state.watch.is_some(), stays, "{case}");
        let status = given.state.watch.as_ref().map(|watch| watch.status);
        let expected_status = match expected {
            Verification::Stale => Some(WatchStatus::Pending),
            Verification::Mismatched { .. } => Some(WatchStatus::Mismatched),
            Verification::Expired => Some(WatchStatus::Expired),
            _ => None,
        };
        assert_eq!(status, expected_status, "{case}");
        given.assert_rows_are_those_of_the_state();
    }
}

#[test]
fn a_watch_may_expect_that_the_entity_is_absent() {
    let mut given = fresh();
    let options = WatchOptions { expected_digest: None, ..options(500) };
    given.done(&DocumentCommand::ArmWatch { identity: identity(), options }, at(1_000));
    assert_eq!(
        outcome(&mut given, 501, Some("written"), 1_001),
        Verification::Mismatched { count: 1 }
    );
    assert_eq!(outcome(&mut given, 502, None, 1_002), Verification::Verified);
}

#[test]
fn mismatches_are_counted_and_the_newest_fetch_is_kept() {
    let mut given = armed();
    for (fetch, count, newest) in [(600, 1, 600), (550, 2, 600), (700, 3, 700)] {
        let found = outcome(&mut given, fetch, Some("other"), 1_010);
        assert_eq!(found, Verification::Mismatched { count });
        let watch = given.state.watch.as_ref().unwrap();
        assert_eq!((watch.mismatches, &watch.last_fetch_hlc), (count, &Some(hlc(newest))));
    }
}

#[test]
fn an_expired_watch_stays_so_until_it_is_verified_disarmed_or_swept() {
    let mut expired = armed();
    assert_eq!(outcome(&mut expired, 600, Some("other"), 1_100), Verification::Expired);
    let version = expired.version;
    assert_eq!(outcome(&mut expired, 600, Some("other"), 1_200), Verification::Expired);
    assert_eq!(expired.version, version, "the same again is no news");
    // A host whose clock was set back.
    assert_eq!(outcome(&mut expired, 601, Some("other"), 1_001), Verification::Expired);
    assert_eq!(expired.state.watch.as_ref().unwrap().status, WatchStatus::Expired);
    let mut verified = expired.clone();
    assert_eq!(outcome(&mut verified, 602, Some("written"), 9_000), Verification::Verified);
    let mut disarmed = expired.clone();
    disarmed.done(&DocumentCommand::DisarmWatch, at(9_000));
    let mut swept = expired.clone();
    swept.done(&DocumentCommand::SweepDocumentRows, at(9_000));
    for given in [&mut verified, &mut disarmed, &mut swept] {
        assert!(given.state.watch.is_none());
        assert_eq!(given.written_rows().count(), 0);
        assert_eq!(outcome(given, 700, Some("written"), 9_001), Verification::NoWatch);
        given.when(&DocumentCommand::DisarmWatch, at(9_002)).then_nothing();
    }
}

#[test]
fn a_watch_is_read_as_it_stands() {
    let given = armed();
    let watch = (**given.state.watch.as_ref().unwrap()).clone();
    assert_eq!((watch.identity.clone(), watch.reason), (identity(), WatchReason::Write));
    let record = super::super::ProjectionWatch { document_id: document(), watch };
    let read = DocumentCommand::WatchByDocument;
    given.when(&read, at(1)).replies(DocumentReply::Watch(Some(Box::new(record))));
    fresh().when(&read, at(1)).replies(DocumentReply::Watch(None));
}

#[test]
fn a_watchs_row_has_the_columns_of_its_table() {
    let mut given = armed();
    outcome(&mut given, 600, Some("other"), 1_010);
    let text = |text: &str| Value::text(text);
    let key = RowKey::new(Table::ProjectionWatch, vec![text("doc-1")]);
    let expected = [
        text("doc-1"),
        text("did:web:o"),
        text("caldav"),
        text("s"),
        text("write"),
        text(&Digest::of(b"written").to_hex()),
        text("000000000000500-00000000-n"),
        Value::Int(1_000),
        Value::Int(1_100),
        text("mismatched"),
        Value::Int(1),
        text("000000000000600-00000000-n"),
    ];
    assert_eq!(given.written(&key).unwrap().values, expected);
}

#[test]
fn a_read_loses_to_an_unfinished_operation_or_a_newer_write() {
    let local = |id: Option<&str>| ReadWinner::LocalWrite { operation_id: id.map(op) };
    let winner = |given: &Given<Document>, fetch| match given
        .when(&read_winner(&owner(), fetch), at(9_000))
        .then_nothing()
        .reply()
    {
        DocumentReply::ReadWinner(winner) => winner,
        other => panic!("{other:?}"),
    };
    assert_eq!(winner(&fresh(), 1), ReadWinner::Source);
    let watched = armed();
    let found = [499, 500, 501].map(|fetch| winner(&watched, fetch));
    assert_eq!(found, [local(None), ReadWinner::Source, ReadWinner::Source]);
    // The oldest unfinished one is named, however new the fetch is.
    let mut given = armed();
    for id in ["z", "a"] {
        given.done(&claim(id, "me"), at(2_000));
    }
    assert_eq!(winner(&given, i64::from(u32::MAX)), local(Some("z")));
    let token = current(&given, "z");
    given.done(&finalize("z", token, dead()), at(2_001));
    assert_eq!(winner(&given, 501), local(Some("a")));
    let token = current(&given, "a");
    given.done(&mark("a", token), at(2_002));
    given.done(&claim("a", "me"), at(2_003));
    assert_eq!(winner(&given, 501), local(Some("a")), "reconcile_only is unfinished");
    let token = current(&given, "a");
    given.done(&finalize("a", token, committed(None)), at(2_004));
    assert_eq!(winner(&given, 501), ReadWinner::Source);
}
