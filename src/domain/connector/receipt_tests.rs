//! The rules of enumerations, row by row.

use super::super::fixture::*;
use super::super::{ConnectorCommand, keep_content};
use super::*;
use crate::base::{SourceId, Timestamp};
use crate::domain::Table;
use crate::testing::given::{Given, at};

fn begun(input: BeginReceipt) -> ConnectorCommand {
    ConnectorCommand::BeginReceipt(input)
}

fn page(input: ExtendReceipt) -> ConnectorCommand {
    ConnectorCommand::ExtendReceipt(input)
}

fn end(input: CompleteReceipt) -> ConnectorCommand {
    ConnectorCommand::CompleteReceipt(input)
}

/// Receipt 1 of lineage `a` with pages `x y` and `z`.
fn two_pages() -> (Given<Connector>, ReceiptKey) {
    let mut given = fresh();
    given.done(&begun(begin("a")), at(10));
    let key = receipt("a", 1);
    given.done(&page(extend(&key, 0, &["x", "y"])), at(11));
    given.done(&page(extend(&key, 1, &["z"])), at(12));
    (given, key)
}

fn partition_error(error: fn(PartitionId) -> Error) -> Error {
    error(partition())
}

#[test]
fn a_begin_gives_the_first_sequence_of_the_first_era() {
    let facts = ReceiptFacts {
        era: 1,
        sequence: 1,
        begun_version: 1,
        model_id: begin("a").model_id,
        scope: "calendar".to_owned(),
        source_fetch_hlc: hlc(),
        predicate: None,
        kind: ReceiptKind::Full,
        fingerprint: "f".to_owned(),
        created_at: Timestamp::from_millis(10),
    };
    let event = ReceiptBegun {
        partition: partition(),
        provenance: provenance("a"),
        receipt: facts,
        dropped: None,
    };
    fresh()
        .when(&begun(begin("a")), at(10))
        .then(&[ConnectorEvent::ReceiptBegun(event)])
        .replies(ConnectorReply::ReceiptBegun { sequence: 1 });
}

#[test]
fn the_next_begin_of_the_key_takes_the_next_sequence_and_drops_the_receipt_with_its_pages() {
    let (mut given, key) = two_pages();
    let events = given.when(&begun(begin("a")), at(20)).events();
    let [ConnectorEvent::ReceiptBegun(event)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((event.receipt.sequence, event.receipt.era), (2, 1));
    assert_eq!(event.dropped, Some(DroppedReceipt { sequence: 1, pages: 2 }));
    given.done(&begun(begin("a")), at(20));
    given.when(&page(extend(&key, 2, &["w"])), at(21)).refused_with(&superseded(&key));
    given.assert_rows_are_those_of_the_state();
    assert_eq!(given.written_rows().count(), 1);
}

#[test]
fn another_lineage_opens_a_new_era_also_one_that_was_seen_before() {
    let mut given = fresh();
    let mut seen = Vec::new();
    for lineage in ["a", "a", "b", "a", "b"] {
        given.done(&begun(begin(lineage)), at(1));
        let known = &given.state.partitions[&partition()];
        let facts = &known.receipts[&provenance(lineage)].facts;
        seen.push((facts.era, facts.sequence));
    }
    assert_eq!(seen, [(1, 1), (1, 2), (2, 1), (3, 3), (4, 2)]);
}

#[test]
fn a_begin_that_does_not_fit_is_refused_by_its_field() {
    let long = "s".repeat(MAX_RECEIPT_TEXT_BYTES + 1);
    let refused = [
        (BeginReceipt { scope: String::new(), ..begin("a") }, "scope"),
        (BeginReceipt { scope: long.clone(), ..begin("a") }, "scope"),
        (BeginReceipt { fingerprint: String::new(), ..begin("a") }, "fingerprint"),
        (BeginReceipt { fingerprint: long, ..begin("a") }, "fingerprint"),
        (BeginReceipt { predicate: Some(json("{}")), ..begin("a") }, "predicate"),
        (BeginReceipt { kind: ReceiptKind::Predicate, ..begin("a") }, "predicate"),
    ];
    for (input, field) in refused {
        fresh().when(&begun(input), at(1)).refused_input(field);
    }
    let longest = BeginReceipt { scope: "s".repeat(MAX_RECEIPT_TEXT_BYTES), ..begin("a") };
    assert_eq!(fresh().when(&begun(longest), at(1)).events().len(), 1);
}

#[test]
fn a_page_is_added_with_digest_and_count_and_its_ids_are_in_no_event() {
    let mut given = fresh();
    given.done(&begun(begin("a")), at(1));
    let key = receipt("a", 1);
    let event = ReceiptExtended {
        key: key.clone(),
        page: 0,
        ids: 2,
        id_bytes: 5,
        content: content("[\"ä\\\"\",\"b\\\\\"]"),
    };
    let input = page(extend(&key, 0, &["ä\"", "b\\"]));
    given
        .when(&input, at(2))
        .then(&[ConnectorEvent::ReceiptExtended(event)])
        .replies(ConnectorReply::NextPage(1));
    given.done(&input, at(2));
    let row = given.written_rows().find(|row| row.table == Table::ReceiptPage).unwrap();
    let ids = SourceIdList::ids(row.values[SOURCE_IDS_COLUMN].as_text().unwrap()).unwrap();
    assert_eq!(ids, [source("ä\""), source("b\\")]);
}

#[test]
fn pages_are_judged_by_place_and_ids() {
    let (given, key) = two_pages();
    given
        .when(&page(extend(&key, 0, &["x", "y"])), at(20))
        .then_nothing()
        .replies(ConnectorReply::NextPage(2));
    let mismatch = Error::PageMismatch { partition: partition(), page: 0 };
    for other in [&["y", "x"][..], &["x"], &[]] {
        given.when(&page(extend(&key, 0, other)), at(20)).refused_with(&mismatch);
    }
    let gap = Error::PageGap { partition: partition(), expected: 2 };
    for ahead in [3, u32::MAX] {
        given.when(&page(extend(&key, ahead, &["w"])), at(20)).refused_with(&gap);
    }
    assert_eq!(given.when(&page(extend(&key, 2, &[])), at(20)).events().len(), 1);
}

#[test]
fn a_page_of_another_enumeration_is_refused() {
    let (given, key) = two_pages();
    let absent = Error::NotFound { what: "receipt" };
    given.when(&page(extend(&receipt("b", 1), 0, &[])), at(20)).refused_with(&absent);
    for sequence in [0, 2, i64::MAX] {
        let other = receipt("a", sequence);
        given.when(&page(extend(&other, 2, &[])), at(20)).refused_with(&superseded(&other));
    }
    let changed = ExtendReceipt { fingerprint: "g".to_owned(), ..extend(&key, 2, &[]) };
    let refusal = partition_error(|partition| Error::ScopeChanged { partition });
    given.when(&page(changed), at(20)).refused_with(&refusal);
    let changed = ExtendReceipt { fingerprint: "g".to_owned(), ..extend(&key, 0, &["x", "y"]) };
    given.when(&page(changed), at(20)).refused_with(&refusal);
}

/// A receipt that has the counts given, without the work of filling it.
fn filled(ids: u64, id_bytes: u64) -> (Given<Connector>, ReceiptKey) {
    let (mut given, key) = two_pages();
    let known = given.state.partitions.get_mut(&partition()).unwrap();
    let standing = known.receipts.get_mut(&provenance("a")).unwrap();
    standing.ids = ids;
    standing.id_bytes = id_bytes;
    (given, key)
}

#[test]
fn a_receipt_takes_ids_bytes_and_pages_up_to_its_limits() {
    let cases = [
        (MAX_RECEIPT_IDS - 1, 0, true),
        (MAX_RECEIPT_IDS, 0, false),
        (0, MAX_RECEIPT_BYTES - 1, true),
        (0, MAX_RECEIPT_BYTES, false),
    ];
    for (ids, id_bytes, fits) in cases {
        let (mut given, key) = filled(ids, id_bytes);
        let result = given.tried(&page(extend(&key, 2, &["w"])), at(20));
        assert_eq!(result.is_ok(), fits, "{ids} {id_bytes}");
        assert_eq!(is_refused_with(&result, "CONNECTOR_RECEIPT_TOO_LARGE"), !fits);
    }
    let (mut given, key) = two_pages();
    let known = given.state.partitions.get_mut(&partition()).unwrap();
    let standing = known.receipts.get_mut(&provenance("a")).unwrap();
    standing.pages = vec![content("[]"); usize::try_from(MAX_RECEIPT_PAGES).unwrap()];
    let result = given.tried(&page(extend(&key, MAX_RECEIPT_PAGES, &["w"])), at(20));
    assert!(is_refused_with(&result, "CONNECTOR_RECEIPT_TOO_LARGE"));
}

#[test]
fn a_receipt_can_be_read_so_that_a_host_goes_on_at_the_next_page() {
    let read = ConnectorCommand::Receipt { partition: partition(), provenance: provenance("a") };
    fresh().when(&read, at(1)).then_nothing().replies(ConnectorReply::Receipt(None));
    let (given, _) = two_pages();
    let view = given.state.sweep_receipt(&partition(), &provenance("a"));
    given.when(&read, at(1)).then_nothing().replies(ConnectorReply::Receipt(view.clone()));
    let view = view.unwrap();
    assert_eq!((view.sequence, view.next_page, view.ids, view.complete), (1, 2, 3, false));
}

#[test]
fn completion_writes_keep_once_with_each_id_once() {
    let (mut given, key) = two_pages();
    let input = complete(&key, &[&["x", "y"], &["z"]], None);
    let event = ReceiptCompleted {
        key,
        expected_count: None,
        distinct: 3,
        keep: content("[\"x\",\"y\",\"z\"]"),
    };
    given.when(&end(input.clone()), at(20)).then(&[ConnectorEvent::ReceiptCompleted(event)]);
    given.done(&end(input.clone()), at(20));
    given.when(&end(input), at(21)).then_nothing().replies(ConnectorReply::Done);
    given.assert_rows_are_those_of_the_state();
    let (distinct, keep) =
        keep_content(&[vec![source("b"), source("a")], vec![source("a"), source("ä")]]);
    assert_eq!((distinct, keep.as_str()), (3, "[\"a\",\"b\",\"ä\"]"));
}

#[test]
fn what_is_not_whole_is_incomplete_and_stays_open() {
    let (mut given, key) = two_pages();
    let whole: &[&[&str]] = &[&["x", "y"], &["z"]];
    let cases = [
        complete(&key, &whole[..1], None),
        complete(&key, &[whole[0], whole[1], &[]], None),
        complete(&key, whole, Some(2)),
        complete(&key, whole, Some(4)),
        complete(&key, whole, Some(0)),
    ];
    for input in cases {
        let result = given.tried(&end(input), at(20));
        assert!(is_refused_with(&result, "CONNECTOR_RECEIPT_INCOMPLETE"));
    }
    given.done(&page(extend(&key, 2, &["z"])), at(21));
    let pages: &[&[&str]] = &[&["x", "y"], &["z"], &["z"]];
    given.done(&end(complete(&key, pages, Some(3))), at(22));
}

#[test]
fn a_completion_of_another_enumeration_is_refused() {
    let (given, key) = two_pages();
    let pages: &[&[&str]] = &[&["x", "y"], &["z"]];
    let absent = Error::NotFound { what: "receipt" };
    given.when(&end(complete(&receipt("b", 1), pages, None)), at(20)).refused_with(&absent);
    let other = receipt("a", 2);
    given.when(&end(complete(&other, pages, None)), at(20)).refused_with(&superseded(&other));
    let changed = CompleteReceipt { fingerprint: "g".to_owned(), ..complete(&key, pages, None) };
    let refusal = partition_error(|partition| Error::ScopeChanged { partition });
    given.when(&end(changed), at(20)).refused_with(&refusal);
    let stale = complete(&key, &[&["x", "y"], &["w"]], None);
    given.when(&end(stale), at(20)).refused_with(&superseded(&key));
}

#[test]
fn the_provider_can_say_that_a_partition_is_empty() {
    let mut given = fresh();
    given.done(&begun(begin("a")), at(1));
    given.done(&end(complete(&receipt("a", 1), &[], Some(0))), at(2));
    let view = given.state.sweep_receipt(&partition(), &provenance("a")).unwrap();
    assert_eq!((view.complete, view.expected_count), (true, Some(0)));
    let other = complete(&receipt("a", 1), &[], None);
    given.when(&end(other), at(3)).refused_input("expected_count");
}

#[test]
fn a_complete_receipt_takes_no_other_page_but_a_repeated_one_is_fine() {
    let (mut given, key) = two_pages();
    given.done(&end(complete(&key, &[&["x", "y"], &["z"]], None)), at(20));
    let repeat = page(extend(&key, 1, &["z"]));
    given.when(&repeat, at(21)).then_nothing().replies(ConnectorReply::NextPage(2));
    let mismatch = Error::PageMismatch { partition: partition(), page: 1 };
    given.when(&page(extend(&key, 1, &["w"])), at(21)).refused_with(&mismatch);
    for further in [2, 3] {
        given.when(&page(extend(&key, further, &["w"])), at(21)).refused_with(&superseded(&key));
    }
}

#[test]
fn a_list_that_is_none_is_damage() {
    for bad in ["", "{}", "[1]", "[\"\"]", "[\"a\"] ", "[\"a\\u0000\"]"] {
        let ids: Result<Vec<SourceId>> = SourceIdList::ids(bad);
        assert_eq!(ids.is_ok(), bad == "[\"a\"] ", "{bad}");
    }
}

#[test]
fn scope_and_fingerprint_hold_no_nul() {
    let bad = || "a\0b".to_owned();
    for (field, input) in [
        ("scope", BeginReceipt { scope: bad(), ..begin("a") }),
        ("fingerprint", BeginReceipt { fingerprint: bad(), ..begin("a") }),
    ] {
        let refused = Error::invalid(field, "expected no NUL character");
        fresh().when(&begun(input), at(1)).refused_with(&refused);
    }
}
