//! How the provider behaves: without faults as a good one, with them as the seed says.

use super::*;
use crate::testing::SimClock;

const SECOND: Duration = Duration::from_secs(1);

fn provider(seed: u64) -> (Provider, SimClock) {
    let clock = SimClock::default();
    (Provider::new(Arc::new(clock.clone()), seed), clock)
}

fn inbox() -> PartitionId {
    PartitionId::new("inbox").unwrap()
}

fn id(n: usize) -> SourceId {
    SourceId::new(format!("{n:02}/with a mark")).unwrap()
}

fn json(n: usize) -> Json {
    Json::parse("content", &n.to_string()).unwrap()
}

fn write(name: &str, op: OperationKind, n: usize, condition: Condition) -> Write {
    Write {
        operation_id: OperationId::new(name).unwrap(),
        partition: inbox(),
        op,
        source_id: id(n),
        content: (op != OperationKind::Delete).then(|| json(n)),
        condition,
    }
}

fn fill(provider: &Provider, count: usize) {
    for n in 0..count {
        provider.put(&inbox(), &id(n), &json(n));
    }
}

/// All pages, the total and the sync cursor.
fn listed(provider: &Provider, size: usize) -> (Vec<Vec<Item>>, Option<u64>, Cursor) {
    let (mut pages, mut cursor) = (Vec::new(), None);
    loop {
        let listing = provider.list(&inbox(), cursor.as_ref(), size).unwrap();
        pages.push(listing.items);
        match listing.next {
            Next::Page(next) => cursor = Some(Cursor::new(next.as_str())),
            Next::Last { total, sync } => return (pages, total, sync),
        }
    }
}

#[test]
fn a_listing_shows_each_entity_once_and_counts_them() {
    let (provider, _) = provider(1);
    for (count, sizes) in [(0, vec![0]), (3, vec![3]), (4, vec![3, 1]), (7, vec![3, 3, 1])] {
        fill(&provider, count);
        let (pages, total, _) = listed(&provider, 3);
        assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), sizes);
        assert_eq!(total, u64::try_from(count).ok());
        assert_eq!(pages.concat(), provider.truth(&inbox()));
    }
    assert_eq!(provider.list(&inbox(), None, 0), Err(ProviderError::Rejected));
    let (_, _, sync) = listed(&provider, 3);
    for bad in [sync, Cursor::new("list/0"), Cursor::new("")] {
        assert_eq!(provider.list(&inbox(), Some(&bad), 3), Err(ProviderError::Rejected));
    }
}

/// What happens while a listing goes on is in the changes behind it, also where a page has it already.
#[test]
fn changes_begin_where_the_listing_began() {
    let (provider, _) = provider(1);
    fill(&provider, 4);
    let Next::Page(next) = provider.list(&inbox(), None, 2).unwrap().next else { panic!() };
    provider.remove(&inbox(), &id(0));
    provider.put(&inbox(), &id(3), &json(33));
    provider.rename(&inbox(), &id(1), &id(9));
    let last = provider.list(&inbox(), Some(&next), 8).unwrap();
    let Next::Last { total, sync } = last.next else { panic!() };
    assert_eq!(total, Some(3));
    let changes = provider.changes(&inbox(), &sync).unwrap();
    let [Change::Gone(gone), Change::Is(put), Change::Is(moved)] = &changes.changes[..] else {
        panic!("{changes:?}")
    };
    assert_eq!((gone, &put.source_id, &put.content), (&id(0), &id(3), &json(33)));
    assert_eq!((&moved.source_id, moved.former.as_ref()), (&id(9), Some(&id(1))));
    assert_eq!(provider.changes(&inbox(), &changes.sync).unwrap().changes, []);
    assert!(!provider.rename(&inbox(), &id(3), &id(9)) && !provider.remove(&inbox(), &id(0)));
}

#[test]
fn conditions_are_held_to_what_stands() {
    let (provider, _) = provider(1);
    let create =
        |name, condition| provider.write(&write(name, OperationKind::Create, 1, condition));
    let first = create("a", Condition::IfNoneMatch).unwrap().unwrap();
    assert_eq!(create("b", Condition::IfNoneMatch), Err(ProviderError::ConditionFailed));
    let second = create("c", Condition::IfMatch(first.clone())).unwrap().unwrap();
    assert_eq!(create("d", Condition::IfMatch(first)), Err(ProviderError::ConditionFailed));
    let keyed = create("e", Condition::IdempotencyKey).unwrap();
    provider.put(&inbox(), &id(1), &json(7));
    assert_eq!(create("e", Condition::IdempotencyKey), Ok(keyed.clone()));
    assert_ne!(keyed, Some(second));
    assert_eq!(provider.truth(&inbox())[0].content, json(7), "a repeat does nothing");
    for (name, writes) in [("a", 1), ("b", 0), ("c", 1), ("d", 0), ("e", 1)] {
        assert_eq!(provider.effective_writes(&OperationId::new(name).unwrap()), writes, "{name}");
    }
    let absent = write("f", OperationKind::Update, 2, Condition::None);
    assert_eq!(provider.write(&absent), Err(ProviderError::Gone));
    let delete = write("g", OperationKind::Delete, 1, Condition::None);
    assert_eq!(provider.write(&delete), Ok(None));
    assert_eq!(provider.write(&delete), Err(ProviderError::Gone));
    let empty = Write { content: None, ..absent };
    assert_eq!(provider.write(&empty), Err(ProviderError::Rejected));
}

#[test]
fn a_late_write_stands_at_once_and_is_shown_everywhere_in_its_time() {
    let (provider, clock) = provider(1);
    fill(&provider, 3);
    let (_, _, sync) = listed(&provider, 9);
    let late = ProviderFault::WriteVisibleLater { after: SECOND };
    for (name, op, n) in [
        ("a", OperationKind::Create, 5),
        ("b", OperationKind::Update, 1),
        ("c", OperationKind::Delete, 2),
    ] {
        provider.plan(late);
        let changed = Write { content: Some(json(9)), ..write(name, op, n, Condition::None) };
        provider.write(&changed).unwrap();
    }
    let really: Vec<_> = provider.truth(&inbox()).iter().map(|it| it.source_id.clone()).collect();
    assert_eq!(really, [id(0), id(1), id(5)]);
    clock.advance(SECOND - Duration::from_millis(1));
    let (pages, total, _) = listed(&provider, 9);
    assert_eq!((pages[0].len(), total), (3, Some(3)));
    assert_eq!(provider.get(&inbox(), &id(5)), Err(ProviderError::Gone));
    assert_eq!(provider.get(&inbox(), &id(1)).unwrap().content, json(1));
    assert!(provider.get(&inbox(), &id(2)).is_ok());
    assert_eq!(provider.changes(&inbox(), &sync).unwrap().changes, []);

    clock.advance(Duration::from_millis(1));
    assert_eq!(provider.changes(&inbox(), &sync).unwrap().changes.len(), 3);
    assert_eq!(listed(&provider, 9).0[0], provider.truth(&inbox()));
    assert_eq!(provider.get(&inbox(), &id(2)), Err(ProviderError::Gone));
}

#[test]
fn an_expired_cursor_stays_so_and_a_new_one_is_good() {
    let (provider, _) = provider(1);
    fill(&provider, 2);
    let (_, _, old) = listed(&provider, 9);
    provider.plan(ProviderFault::CursorExpired);
    for _ in 0..3 {
        assert_eq!(provider.changes(&inbox(), &old), Err(ProviderError::CursorExpired));
    }
    assert_eq!(provider.struck(ProviderFault::CursorExpired), 1);
    let (_, _, new) = listed(&provider, 9);
    assert!(provider.changes(&inbox(), &new).is_ok());
}

/// Everything that a run with all faults was answered.
fn answers(seed: u64) -> String {
    let (provider, clock) = provider(seed);
    fill(&provider, 9);
    provider.chances(&ProviderFault::ALL.map(|fault| (fault, 200)));
    let mut answers = String::new();
    let mut say = |answer: &dyn std::fmt::Debug| answers.push_str(&format!("{answer:?}\n"));
    let mut sync = Cursor::new("");
    for n in 0..300 {
        // Longer than any of them lasts.
        clock.advance(SECOND * 40);
        say(&(provider.account(), provider.now(), provider.changes(&inbox(), &sync)));
        let mut cursor = None;
        while let Ok(listing) = provider.list(&inbox(), cursor.as_ref(), 2) {
            say(&listing);
            match listing.next {
                Next::Page(next) => cursor = Some(next),
                Next::Last { sync: next, .. } => {
                    sync = next;
                    break;
                }
            }
        }
        let op = [OperationKind::Create, OperationKind::Update, OperationKind::Delete][n % 3];
        say(&provider.write(&write(&n.to_string(), op, n % 11, Condition::None)));
        let is_renamed = provider.rename(&inbox(), &id(n % 13), &id((n + 6) % 13));
        say(&(provider.get(&inbox(), &id(n % 7)), is_renamed));
    }
    for fault in ProviderFault::ALL {
        assert!(provider.struck(fault) > 0, "{} never struck", fault.name());
        say(&provider.struck(fault));
    }
    say(&provider.truth(&inbox()));
    answers
}

#[test]
fn a_seed_gives_the_same_answers_again() {
    let first = answers(1);
    assert!(first == answers(1));
    assert!(first != answers(2));
}

#[test]
fn each_fault_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<_> = ProviderFault::ALL.map(ProviderFault::name).into();
    assert_eq!(names.len(), ProviderFault::ALL.len());
}
