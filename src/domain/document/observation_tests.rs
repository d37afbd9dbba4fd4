//! The rules of observation copies on a document one by one.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::fixture::*;
use super::super::{DocumentCommand, DocumentConnectionForgotten};
use super::*;
use crate::domain::Aggregate;
use crate::journal::{decode_value, encode_snapshot, encode_value};
use crate::testing::given::{Given, at};
use DocumentCommand as Do;

/// A time under an epoch of keys and signers.
fn under(epoch: u64) -> Context {
    Context { records_epoch: epoch, ..at(1) }
}

/// A document that these copies were put on.
fn with(copies: &[&PutObservationCopy]) -> Given<Document> {
    let mut given = fresh();
    for copy in copies {
        assert_eq!(given.done(&put_copy(copy), at(1)), DocumentReply::Done);
        given.assert_rows_are_those_of_the_state();
    }
    given
}

fn row_key(copy: &PutObservationCopy) -> RowKey {
    copy_key(&copy.owner, &document(), copy.copy.op_hash)
}

/// The event of a copy that came to stand.
fn put_event(copy: &PutObservationCopy, dropped: &[&PutObservationCopy]) -> DocumentEvent {
    DocumentEvent::ObservationCopyPut(Box::new(ObservationCopyPut {
        owner: copy.owner.clone(),
        copy: copy.copy.clone(),
        payload: copy.payload.as_deref().map(ContentRef::of_bytes),
        dropped: dropped.iter().map(|copy| copy.copy.op_hash).collect(),
        token: None,
    }))
}

fn dropped_event(owner: &OwnerDid, dropped: &[&PutObservationCopy]) -> DocumentEvent {
    DocumentEvent::ObservationCopiesDropped(ObservationCopiesDropped {
        owner: owner.clone(),
        dropped: dropped.iter().map(|copy| copy.copy.op_hash).collect(),
    })
}

fn records(copies: &[&PutObservationCopy]) -> Vec<SignedRecord> {
    copies.iter().map(|copy| copy.record(&document())).collect()
}

/// The copies that an answer wants to have verified.
fn asked(reply: DocumentReply) -> Vec<UnverifiedCopy> {
    match reply {
        DocumentReply::Unverified(copies) => copies,
        other => panic!("{other:?}"),
    }
}

/// Verifies what stands on a document that was loaded anew, all of it with the same outcome.
fn verify(given: &Given<Document>, owner: &OwnerDid, is_valid: bool) {
    let reply = given.when(&read_decision(owner), at(1)).then_nothing().reply();
    asked(reply).iter().for_each(|copy| copy.token.note(0, is_valid));
}

#[test]
fn a_copys_row_has_its_token_and_value_and_its_event_has_their_digests() {
    let copy = copy_of(&owner(), 5, "a");
    let mut given = fresh();
    given.when(&put_copy(&copy), at(1)).then(&[put_event(&copy, &[])]).replies(DocumentReply::Done);
    given.done(&put_copy(&copy), at(1));
    let expected = [
        Value::text("connector.observation"),
        Value::text("did:web:o"),
        Value::text("doc-1"),
        Value::text(copy.copy.op_hash.to_hex()),
        Value::text(hlc(6).as_str()),
        Value::text("TOKEN 5 a did:web:o"),
        Value::Blob(Arc::from(&b"PAYLOAD 5"[..])),
    ];
    assert_eq!(given.written(&row_key(&copy)).unwrap().values, expected);
    given.assert_rows_are_those_of_the_state();
}

#[test]
fn a_copy_may_claim_that_the_value_is_absent() {
    let copy = PutObservationCopy { payload: None, ..copy_of(&owner(), 5, "a") };
    let mut given = with(&[&copy]);
    assert_eq!(given.written(&row_key(&copy)).unwrap().values[PAYLOAD_COLUMN], Value::Null);
    given.reload();
    verify(&given, &owner(), true);
    let decided = decision(&given, &owner()).unwrap();
    assert_eq!((decided.payload, decided.copies), (None, records(&[&copy])));
    // An empty value is no absent one.
    let empty = PutObservationCopy { payload: Some(Arc::from([])), ..copy_of(&owner(), 6, "a") };
    let given = with(&[&copy, &empty]);
    assert_eq!(decision(&given, &owner()).unwrap().payload.as_deref(), Some(&[][..]));
}

#[test]
fn a_lower_copy_does_nothing_a_higher_one_stands_alone_an_equal_one_beside() {
    let [a, b, lower, higher] = [(5, "a"), (5, "b"), (4, "c"), (6, "d")]
        .map(|(version, signer)| copy_of(&owner(), version, signer));
    let given = with(&[&a, &b]);
    for known in [&a, &b, &lower] {
        given.when(&put_copy(known), at(1)).then_nothing().replies(DocumentReply::Done);
    }
    let mut given = with(&[&b, &a]);
    assert_eq!(decision(&given, &owner()).unwrap().copies, records(&[&a, &b]));
    given.when(&put_copy(&higher), at(1)).then(&[put_event(&higher, &[&a, &b])]);
    given.done(&put_copy(&higher), at(1));
    given.assert_rows_are_those_of_the_state();
    assert_eq!(given.written_rows().count(), 1);
    assert_eq!(decision(&given, &owner()).unwrap().copies, records(&[&higher]));
}

#[test]
fn a_decision_is_what_the_valid_copies_come_to() {
    assert_eq!(decision(&fresh(), &owner()), None);
    let (a, b) = (copy_of(&owner(), 5, "a"), copy_of(&owner(), 5, "b"));
    let expected = RecordDecision {
        key: RecordKey::observation(&owner(), &document()),
        decision_hlc: hlc(5),
        content_digest: a.copy.claim_digest,
        payload: a.payload.clone(),
        copies: records(&[&a, &b]),
    };
    let given = with(&[&a, &b]);
    assert_eq!(decision(&given, &owner()), Some(expected.clone()));
    a.token.note(0, false);
    let of_b = RecordDecision { copies: records(&[&b]), ..expected };
    assert_eq!(decision(&given, &owner()), Some(of_b));
    b.token.note(0, false);
    assert_eq!(decision(&given, &owner()), None);
}

#[test]
fn a_prune_drops_an_issuers_copies_only_if_a_valid_one_of_another_issuer_stays() {
    let [a, b, c] = ["a", "b", "c"].map(|signer| copy_of(&owner(), 5, signer));
    let mut given = with(&[&a, &b]);
    for unknown in [prune(&owner(), "c"), prune(&other_owner(), "a")] {
        given.when(&unknown, at(1)).then_nothing().replies(DocumentReply::Done);
    }
    let decided = decision(&given, &owner()).map(|decided| decided.decision_hlc);
    given.when(&prune(&owner(), "a"), at(1)).then(&[dropped_event(&owner(), &[&a])]);
    assert!(given.state.decide(&key(), &prune(&owner(), "a"), &at(1)).unwrap().retracts);
    given.done(&prune(&owner(), "a"), at(1));
    given.assert_rows_are_those_of_the_state();
    assert_eq!(decision(&given, &owner()).map(|decided| decided.decision_hlc), decided);
    given.when(&prune(&owner(), "b"), at(1)).then_nothing();
    // One that is not valid is no other copy, and goes with the next prune that drops anything.
    let given = with(&[&a, &b, &c]);
    c.token.note(0, false);
    given.when(&prune(&owner(), "b"), at(1)).then(&[dropped_event(&owner(), &[&b, &c])]);
    a.token.note(0, false);
    given.when(&prune(&owner(), "b"), at(1)).then_nothing();
}

#[test]
fn a_read_loses_to_the_owners_own_newer_decision_and_to_no_other_owners() {
    let winner = |given: &Given<Document>, owner: &OwnerDid, fetch| match given
        .when(&read_winner(owner, fetch), at(1))
        .then_nothing()
        .reply()
    {
        DocumentReply::ReadWinner(winner) => winner,
        other => panic!("{other:?}"),
    };
    let (mine, theirs) = (copy_of(&owner(), 500, "a"), copy_of(&other_owner(), 900, "b"));
    let mut given = with(&[&mine, &theirs]);
    let decided = ReadWinner::Decision { hlc: hlc(500) };
    let found = [499, 500, 501].map(|fetch| winner(&given, &owner(), fetch));
    assert_eq!(found, [decided.clone(), ReadWinner::Source, ReadWinner::Source]);
    assert_eq!(winner(&given, &other_owner(), 501), ReadWinner::Decision { hlc: hlc(900) });
    let nobody = OwnerDid::new("did:web:q").unwrap();
    assert_eq!(winner(&given, &nobody, 1), ReadWinner::Source);
    // Local intent comes first, and asks nobody to verify.
    given.done(&arm(500), at(1));
    given.reload();
    assert_eq!(winner(&given, &owner(), 499), ReadWinner::LocalWrite { operation_id: None });
    given.done(&claim("op-1", "me"), at(1));
    let local = ReadWinner::LocalWrite { operation_id: Some(op("op-1")) };
    assert_eq!(winner(&given, &owner(), 501), local);
    // What is not valid decides nothing.
    let given = with(&[&mine]);
    mine.token.note(0, false);
    assert_eq!(winner(&given, &owner(), 499), ReadWinner::Source);
}

#[test]
fn nothing_is_said_of_copies_before_they_are_verified() {
    let [a, b, c] = ["a", "b", "c"].map(|signer| copy_of(&owner(), 5, signer));
    let theirs = copy_of(&other_owner(), 5, "a");
    let mut given = with(&[&a, &b, &theirs]);
    given.reload();
    for command in [
        put_copy(&c),
        put_copy(&copy_of(&owner(), 4, "c")),
        put_copy(&copy_of(&owner(), 6, "c")),
        prune(&owner(), "a"),
        read_decision(&owner()),
        read_winner(&owner(), 4),
    ] {
        let copies = asked(given.when(&command, at(1)).then_nothing().reply());
        let named: Vec<_> = copies.iter().map(|copy| copy.record.clone()).collect();
        assert_eq!(named, records(&[&a, &b]), "{command:?}");
        assert!(copies.iter().all(|copy| copy.token.text() == &copy.record.op_jwt));
    }
    // A decision that is not newer than the fetch says nothing, whether it is valid or not.
    let source = DocumentReply::ReadWinner(ReadWinner::Source);
    given.when(&read_winner(&owner(), 5), at(1)).replies(source);
    for command in [set_trim(), put_repair(1), claim("op-1", "me"), arm(1), Do::HasWork] {
        let reply = given.when(&command, at(1)).reply();
        assert!(!matches!(reply, DocumentReply::Unverified(_)), "{command:?}");
    }
    // Only those that lack a verdict are named; those that have one are not verified again.
    let copies = asked(given.when(&put_copy(&c), at(1)).reply());
    copies[0].token.note(0, false);
    let named = asked(given.when(&put_copy(&c), at(1)).reply());
    assert_eq!(named, copies[1..]);
    copies[1].token.note(0, true);
    given.when(&put_copy(&c), at(1)).then(&[put_event(&c, &[&a])]);
}

#[test]
fn a_copy_is_put_only_while_it_is_valid_under_the_present_epoch() {
    let (standing, copy) = (copy_of(&owner(), 5, "a"), copy_of(&owner(), 6, "b"));
    let given = with(&[&standing]);
    standing.token.note(1, true);
    let unverified = |given: &Given<Document>| {
        let copies = asked(given.when(&put_copy(&copy), under(1)).then_nothing().reply());
        assert_eq!(copies.len(), 1);
        assert_eq!(copies[0].record, copy.record(&document()));
        assert!(Arc::ptr_eq(&copies[0].token, &copy.token));
    };
    unverified(&given);
    copy.token.note(1, false);
    unverified(&given);
    copy.token.note(1, true);
    given.when(&put_copy(&copy), under(1)).then(&[put_event(&copy, &[&standing])]);
}

#[test]
fn a_verdict_holds_while_the_epoch_stands() {
    let copy = copy_of(&owner(), 5, "a");
    let given = with(&[&copy]);
    let is_decided = |epoch| {
        let reply = given.when(&read_decision(&owner()), under(epoch)).then_nothing().reply();
        match reply {
            DocumentReply::Decision(decision) => Some(decision.is_some()),
            DocumentReply::Unverified(_) => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([is_decided(0), is_decided(1)], [Some(true), None]);
    copy.token.note(1, false);
    assert_eq!([is_decided(1), is_decided(2)], [Some(false), None]);
    copy.token.note(2, true);
    assert_eq!(is_decided(2), Some(true));
}

#[test]
fn copies_that_are_not_valid_go_with_an_accepted_put_and_stay_with_a_lower_one() {
    let [a, b, c] = ["a", "b", "c"].map(|signer| copy_of(&owner(), 5, signer));
    let lower = copy_of(&owner(), 4, "d");
    let given = with(&[&a, &b]);
    a.token.note(0, false);
    given.when(&put_copy(&lower), at(1)).then_nothing();
    given.when(&put_copy(&c), at(1)).then(&[put_event(&c, &[&a])]);
    // The put brings nothing new and is accepted.
    let mut dropping = given.clone();
    dropping.when(&put_copy(&b), at(1)).then(&[dropped_event(&owner(), &[&a])]);
    dropping.done(&put_copy(&b), at(1));
    dropping.assert_rows_are_those_of_the_state();
    b.token.note(0, false);
    given.when(&put_copy(&lower), at(1)).then(&[put_event(&lower, &[&a, &b])]);
}

#[test]
fn a_copy_whose_content_is_damaged_is_not_valid_and_is_whole_once_it_is_put_again() {
    for column in [TOKEN_COLUMN, PAYLOAD_COLUMN] {
        let copy = copy_of(&owner(), 5, "a");
        let mut given = with(&[&copy]);
        given.damage(&row_key(&copy), column);
        given.reload();
        // It can't be verified, so nobody is asked to.
        assert_eq!(decision(&given, &owner()), None);
        let source = DocumentReply::ReadWinner(ReadWinner::Source);
        given.when(&read_winner(&owner(), 4), at(1)).replies(source);
        given.when(&put_copy(&copy), at(1)).then(&[put_event(&copy, &[])]);
        given.done(&put_copy(&copy), at(1));
        given.assert_rows_are_those_of_the_state();
        assert_eq!(decision(&given, &owner()).unwrap().copies, records(&[&copy]));
        given.when(&put_copy(&copy), at(1)).then_nothing();
    }
}

/// A row that can't be read does not count because another one holds the same value.
#[test]
fn a_prune_never_leaves_only_copies_whose_content_is_damaged() {
    for column in [TOKEN_COLUMN, PAYLOAD_COLUMN] {
        let (a, b) = (copy_of(&owner(), 5, "a"), copy_of(&owner(), 5, "b"));
        let mut given = with(&[&a, &b]);
        given.damage(&row_key(&a), column);
        given.reload();
        verify(&given, &owner(), true);
        assert_eq!(decision(&given, &owner()).unwrap().copies, records(&[&b]));
        given.when(&prune(&owner(), "b"), at(1)).then_nothing();
        given.when(&prune(&owner(), "a"), at(1)).then(&[dropped_event(&owner(), &[&a])]);
        given.done(&put_copy(&a), at(1));
        given.assert_rows_are_those_of_the_state();
        given.when(&prune(&owner(), "b"), at(1)).then(&[dropped_event(&owner(), &[&b])]);
    }
}

#[test]
fn every_owners_copies_stand_side_by_side() {
    let (mine, theirs) = (copy_of(&owner(), 5, "a"), copy_of(&other_owner(), 9, "a"));
    let mut given = with(&[&mine, &theirs]);
    let higher = copy_of(&owner(), 6, "b");
    given.when(&put_copy(&higher), at(1)).then(&[put_event(&higher, &[&mine])]);
    given.done(&put_copy(&higher), at(1));
    given.assert_rows_are_those_of_the_state();
    assert_eq!(decision(&given, &owner()).unwrap().copies, records(&[&higher]));
    assert_eq!(decision(&given, &other_owner()).unwrap().copies, records(&[&theirs]));
    // Another owner's copy is no other issuer's copy.
    given.when(&prune(&owner(), "b"), at(1)).then_nothing();
}

#[test]
fn a_sweep_leaves_no_copy_of_any_owner_and_no_repair() {
    let all =
        [copy_of(&owner(), 5, "a"), copy_of(&owner(), 5, "b"), copy_of(&other_owner(), 9, "a")];
    let mut given = with(&all.each_ref());
    given.done(&put_repair(5), at(1));
    given.assert_rows_are_those_of_the_state();
    let sweep = given.state.decide(&key(), &Do::SweepDocumentRows, &at(1)).unwrap();
    assert!(sweep.erase && sweep.retracts);
    given.done(&Do::SweepDocumentRows, at(1));
    assert_eq!((given.written_rows().count(), &given.state), (0, &Document::default()));
    // The document may be observed anew.
    given.done(&put_copy(&all[0]), at(1));
    given.assert_rows_are_those_of_the_state();
    assert_eq!(decision(&given, &owner()).unwrap().copies, records(&[&all[0]]));
}

#[test]
fn copies_and_repairs_are_no_work_and_outlive_the_connection() {
    let mut given = with(&[&copy_of(&owner(), 5, "a")]);
    given.done(&put_repair(5), at(1));
    given.when(&Do::HasWork, at(1)).replies(DocumentReply::HasWork(false));
    let forget = Do::ForgetDocumentConnection { owner: owner(), connector: connector() };
    given.when(&forget, at(1)).then_nothing();
    let before = (given.state.observations.clone(), given.state.repair.clone());
    given.done(&set_trim(), at(1));
    let (owner, connector) = (owner(), connector());
    let forgotten = DocumentConnectionForgotten { owner, connector };
    let event = DocumentEvent::DocumentConnectionForgotten(forgotten);
    given.when(&forget, at(1)).then(&[event]);
    given.done(&forget, at(1));
    assert_eq!((given.state.observations.clone(), given.state.repair.clone()), before);
    given.assert_rows_are_those_of_the_state();
}

#[test]
fn copies_of_a_claim_share_one_value_and_what_goes_takes_its_content_along() {
    let [a, b, c] = ["a", "b", "c"].map(|signer| copy_of(&owner(), 5, signer));
    let mut given = with(&[&a, &b, &c]);
    for _ in 0..2 {
        let content = &given.state.observations[&owner()].content;
        let held: Vec<_> = content.values().map(|at| at.payload.clone().unwrap()).collect();
        assert!(held.len() == 3 && held.iter().all(|payload| Arc::ptr_eq(payload, &held[0])));
        given.reload();
    }
    verify(&given, &owner(), true);
    given.done(&prune(&owner(), "b"), at(1));
    let held = |given: &Given<Document>| -> BTreeSet<Digest> {
        given.state.observations[&owner()].content.keys().copied().collect()
    };
    assert_eq!(held(&given), BTreeSet::from([a.copy.op_hash, c.copy.op_hash]));
    let higher = copy_of(&owner(), 6, "d");
    given.done(&put_copy(&higher), at(1));
    assert_eq!(held(&given), BTreeSet::from([higher.copy.op_hash]));
}

#[test]
fn tokens_and_values_are_never_shown_nor_in_a_snapshot_or_an_event() {
    let copy = copy_of(&owner(), 5, "a");
    let given = with(&[&copy]);
    let mut unverified = given.clone();
    unverified.reload();
    let decide = |command: &Do| format!("{:?}", fresh().state.decide(&key(), command, &at(1)));
    let mut shown = vec![
        format!("{copy:?} {:?} {:?}", put_copy(&copy), copy.record(&document())),
        format!("{:?}", given.state),
        format!("{:?}", given.when(&read_decision(&owner()), at(1)).reply()),
        format!("{:?}", unverified.when(&read_decision(&owner()), at(1)).reply()),
        format!("{:?}", given.written(&row_key(&copy))),
        decide(&put_copy(&copy)),
    ];
    for event in fresh().when(&put_copy(&copy), at(1)).events() {
        let bytes = crate::journal::encode_event(&event).unwrap();
        shown.extend([format!("{event:?}"), String::from_utf8_lossy(&bytes).into_owned()]);
    }
    let snapshot = encode_snapshot(&given.state).unwrap();
    shown.push(String::from_utf8_lossy(&snapshot).into_owned());
    // As text, and as a list of bytes: "[80, 65, …".
    for text in shown {
        assert!(!text.is_empty());
        assert!(!["TOKEN", "PAYLOAD", "80, 65"].iter().any(|of| text.contains(of)), "{text}");
    }
}

#[test]
fn recorded_answers_are_read_as_they_were_given() {
    let mut given = with(&[&copy_of(&owner(), 5, "a")]);
    given.done(&put_repair(5), at(1));
    let repair = given.when(&Do::Repair, at(1)).reply();
    let replies = [
        DocumentReply::Done,
        DocumentReply::HasWork(true),
        DocumentReply::RepairPut(None),
        DocumentReply::RepairPut(Some(time(7))),
        repair,
    ];
    for reply in replies {
        let bytes = encode_value(&Document::recorded(&reply).unwrap()).unwrap();
        assert_eq!(decode_value::<DocumentReply>(&bytes).unwrap(), reply);
    }
    given.reload();
    let unverified = given.when(&read_decision(&owner()), at(1)).reply();
    let decided = DocumentReply::Decision(None);
    for reply in [unverified, decided] {
        assert_eq!(Document::recorded(&reply), None, "it is decided again");
    }
}

#[test]
fn only_its_own_key_names_a_copys_row() {
    let copy = copy_of(&owner(), 5, "a");
    let given = with(&[&copy]);
    let own = row_key(&copy);
    assert!(given.state.row(&key(), &own).is_some());
    for (column, value) in [
        (0, Value::text("connector.other")),
        (1, Value::text("did:web:p")),
        (2, Value::text("doc-2")),
        (3, Value::text(copy.copy.op_hash.to_hex().to_uppercase())),
        (3, Value::text("p")),
        (3, Value::Null),
    ] {
        let mut odd = own.clone();
        odd.values[column] = value;
        assert_eq!(given.state.row(&key(), &odd), None, "{odd:?}");
    }
    let short = RowKey::new(Table::ObservationRecords, own.values[..3].to_vec());
    assert_eq!(given.state.row(&key(), &short), None);
    assert!(given.state.content(&key(), &short).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Copies of two owners, prunes, loads, repairs and sweeps in any order: the rows are those of
    /// the state, and no owner's decision goes back or is lost but by a sweep.
    #[test]
    fn whatever_happens_the_rows_are_those_of_the_state(
        steps in prop::collection::vec((0..10_u8, 0..2_usize, 1..4_i64, 0..3_usize), 0..40),
    ) {
        let mut given = fresh();
        let signers = ["a", "b", "c"];
        for (step, whose, version, signer) in steps {
            let owners = [owner(), other_owner()];
            let owner = owners[whose].clone();
            let copy = copy_of(&owner, version, signers[signer]);
            let before = decision(&given, &owner);
            match step {
                0..=4 => {
                    given.done(&put_copy(&copy), at(1));
                    let decided = decision(&given, &owner).unwrap();
                    let best = before.map_or(hlc(0), |before| before.decision_hlc);
                    prop_assert_eq!(&decided.decision_hlc, &best.max(hlc(version)));
                    if decided.decision_hlc == hlc(version) {
                        prop_assert!(decided.copies.contains(&copy.record(&document())));
                    }
                }
                5..=6 => {
                    given.done(&prune(&owner, signers[signer]), at(1));
                    let of = |decision: Option<RecordDecision>| decision.map(|at| at.decision_hlc);
                    prop_assert_eq!(of(decision(&given, &owner)), of(before));
                }
                7 => drop(given.done(&put_repair(version), at(1))),
                8 => {
                    given.reload();
                    let observed = |owner: &&OwnerDid| given.state.observations.contains_key(*owner);
                    owners.iter().filter(observed).for_each(|owner| verify(&given, owner, true));
                    prop_assert_eq!(decision(&given, &owner), before);
                }
                _ => drop(given.done(&[Do::ClearRepair, Do::SweepDocumentRows][signer % 2], at(1))),
            }
            given.assert_rows_are_those_of_the_state();
        }
    }
}
