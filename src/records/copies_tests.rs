//! The laws of copies, over random lists of copies, prunes, revocations and repairs of damage.
//!
//! The oracle knows no set: it looks at the whole list of what was put, as text, and sorts it.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// A verified copy: version, claim of that version, issuer, its key, which of its tokens.
fn copy(version: u8, claim: u8, issuer: u8, key: u8, token: u8) -> RecordCopy {
    let hlc = |ms: u8| Hlc::parse(&format!("{ms:015}-00000000-n")).unwrap();
    RecordCopy {
        hlc: hlc(version + claim),
        version: hlc(version),
        claim_digest: Digest::of(format!("{version} {claim}").as_bytes()),
        issuer: format!("did:web:{issuer:03}").into(),
        signer_key: format!("did:web:{issuer:03}#{key}").into(),
        op_hash: Digest::of(format!("{version} {claim} {issuer} {key} {token}").as_bytes()),
        token_bytes: u64::from(token) + 500,
    }
}

fn any_copy(issuers: u8) -> impl Strategy<Value = RecordCopy> {
    (0..3_u8, 0..2_u8, 0..issuers, 0..2_u8, 0..3_u8)
        .prop_map(|(version, claim, issuer, key, token)| copy(version, claim, issuer, key, token))
}

fn any_copies() -> impl Strategy<Value = Vec<RecordCopy>> {
    // Few issuers meet often; many come to the limit.
    let few = prop::collection::vec(any_copy(4), 0..30);
    let many = prop::collection::vec((0..100_u8, 0..2_u8), 60..200).prop_map(|signers| {
        signers.into_iter().map(|(issuer, token)| copy(2, 0, issuer, 0, token)).collect()
    });
    prop_oneof![40 => few, 1 => many]
}

/// A set, and which of its copies are not valid any more.
#[derive(Clone, Debug, Default, PartialEq)]
struct Store {
    set: Option<CopySet>,
    invalid: BTreeSet<Digest>,
}

impl Store {
    fn of(copies: &[RecordCopy]) -> Self {
        let mut store = Self::default();
        copies.iter().for_each(|copy| drop(store.put(copy)));
        store
    }

    fn is_valid(&self, copy: &StandingCopy) -> bool {
        !self.invalid.contains(&copy.op_hash)
    }

    fn put(&mut self, copy: &RecordCopy) -> CopyChange {
        let change = CopySet::put(self.set.as_ref(), copy, |copy| self.is_valid(copy));
        self.set = self.set.take().and_then(|set| set.without(&change.dropped));
        if change.stands {
            self.invalid.remove(&copy.op_hash);
            self.set = Some(CopySet::with(self.set.take(), copy));
        }
        change
    }

    fn prune(&mut self, issuer: &str) {
        let Some(set) = self.set.take() else { return };
        let dropped = set.prune(issuer, |copy| self.is_valid(copy));
        self.set = set.without(&dropped);
    }

    /// The standing copies, as another store would be given them.
    fn copies(&self) -> Vec<RecordCopy> {
        let Some(set) = &self.set else { return Vec::new() };
        let of = |(signer_key, standing): (&Arc<str>, &StandingCopy)| RecordCopy {
            hlc: set.hlc.clone(),
            version: set.version.clone(),
            claim_digest: set.claim_digest,
            issuer: Arc::clone(&standing.issuer),
            signer_key: Arc::clone(signer_key),
            op_hash: standing.op_hash,
            token_bytes: standing.token_bytes,
        };
        set.copies.iter().map(of).collect()
    }

    fn valid_copies(&self) -> Vec<RecordCopy> {
        let mut copies = self.copies();
        copies.retain(|copy| !self.invalid.contains(&copy.op_hash));
        copies
    }

    /// What the valid copies come to.
    fn decision(&self) -> Option<Rank> {
        self.valid_copies().first().map(rank)
    }
}

type Rank = (String, String);

fn rank(copy: &RecordCopy) -> Rank {
    (copy.version.as_str().to_owned(), copy.claim_digest.to_hex())
}

/// What stands of a list of valid copies, by signer key.
fn standing_of(list: &[RecordCopy]) -> Vec<RecordCopy> {
    let Some(decision) = list.iter().map(rank).max() else { return Vec::new() };
    let mut equal: Vec<RecordCopy> =
        list.iter().filter(|copy| rank(copy) == decision).cloned().collect();
    equal.sort_by_key(|copy| (copy.signer_key.to_string(), copy.op_hash.to_hex()));
    equal.dedup_by_key(|copy| copy.signer_key.to_string());
    equal.truncate(64);
    equal
}

#[derive(Clone, Debug)]
enum Step {
    Put(RecordCopy),
    Prune(u8),
    /// The standing copy at this place, counted round, is not valid any more.
    Revoke(usize),
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => any_copy(4).prop_map(Step::Put),
        1 => (0..4_u8).prop_map(Step::Prune),
        2 => any::<usize>().prop_map(Step::Revoke),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_set_depends_on_what_was_put_and_not_on_order_or_repeats(
        (copies, shuffled) in any_copies().prop_flat_map(|copies| {
            let twice: Vec<_> = copies.iter().chain(copies.iter().step_by(2)).cloned().collect();
            (Just(copies), Just(twice).prop_shuffle())
        }),
    ) {
        let store = Store::of(&copies);
        prop_assert_eq!(store.copies(), standing_of(&copies));
        prop_assert_eq!(Store::of(&shuffled), store);
    }

    #[test]
    fn a_copy_that_stands_changes_nothing_when_it_is_put_again(copies in any_copies()) {
        let mut store = Store::of(&copies);
        let before = store.clone();
        for copy in store.copies().iter().chain(&copies) {
            prop_assert!(store.put(copy).is_empty());
        }
        prop_assert_eq!(store, before);
    }

    #[test]
    fn stores_that_exchange_what_stands_come_to_equal_sets(
        (a, b, c) in (any_copies(), any_copies(), any_copies()),
    ) {
        let (first, second, third) = (Store::of(&a), Store::of(&b), Store::of(&c));
        let merged = |stores: &[&Store]| {
            let copies: Vec<_> = stores.iter().flat_map(|store| store.copies()).collect();
            Store::of(&copies)
        };
        let all = [a, b, c].concat();
        let whole = merged(&[&first, &second, &third]);
        prop_assert_eq!(whole.copies(), standing_of(&all));
        prop_assert_eq!(&merged(&[&third, &second, &first]), &whole);
        prop_assert_eq!(&merged(&[&first, &merged(&[&second, &third])]), &whole);
        prop_assert_eq!(&merged(&[&merged(&[&first, &second]), &third]), &whole);
    }

    #[test]
    fn a_decision_never_goes_back_and_is_never_lost(
        (copies, issuers) in (any_copies(), prop::collection::vec(0..4_u8, 30)),
    ) {
        let mut store = Store::default();
        let mut decision = None;
        for (copy, issuer) in copies.iter().zip(issuers) {
            store.put(copy);
            decision = decision.max(Some(rank(copy)));
            prop_assert_eq!(&store.decision(), &decision);
            store.prune(&format!("did:web:{issuer:03}"));
            prop_assert_eq!(&store.decision(), &decision);
        }
    }

    /// Copies lose their validity and get it back when they are put again. An accepted put leaves
    /// what the valid copies and the new one come to; nothing else counts.
    #[test]
    fn what_is_not_valid_counts_for_nothing(steps in any_steps()) {
        let mut store = Store::default();
        for step in steps {
            let (before, valid) = (store.copies(), store.valid_copies());
            let decision = store.decision();
            match step {
                Step::Put(copy) => {
                    let change = store.put(&copy);
                    let mut list = valid.clone();
                    list.push(copy.clone());
                    let is_lower = decision > Some(rank(&copy));
                    let expected = if is_lower { before.clone() } else { standing_of(&list) };
                    prop_assert_eq!(&store.copies(), &expected);
                    prop_assert_eq!(store.decision(), list.iter().map(rank).max());
                    let stands = expected.contains(&copy) && !valid.contains(&copy);
                    prop_assert_eq!(change.stands, stands && !is_lower);
                    let left = before.iter().filter(|copy| !expected.contains(copy));
                    let left: Vec<_> = left.map(|copy| copy.op_hash).collect();
                    prop_assert_eq!(change.dropped, left);
                }
                Step::Prune(issuer) => {
                    let issuer = format!("did:web:{issuer:03}");
                    store.prune(&issuer);
                    let others: Vec<_> =
                        valid.into_iter().filter(|copy| *copy.issuer != *issuer).collect();
                    let expected = if others.is_empty() { before } else { others };
                    prop_assert_eq!(store.copies(), expected);
                    prop_assert_eq!(store.decision(), decision);
                }
                Step::Revoke(at) => {
                    let revoked = at.checked_rem(before.len()).map(|at| before[at].op_hash);
                    store.invalid.extend(revoked);
                }
            }
        }
    }

    /// Each store prunes by its own copies, and not by what it believes of the other one.
    #[test]
    fn stores_that_prune_at_once_keep_the_decision_and_come_together_again(
        (copies, first, second) in (
            any_copies(),
            prop::collection::vec(0..4_u8, 0..5),
            prop::collection::vec(0..4_u8, 0..5),
        ),
    ) {
        let whole = Store::of(&copies);
        let pruned = |issuers: &[u8]| {
            let mut store = whole.clone();
            issuers.iter().for_each(|issuer| store.prune(&format!("did:web:{issuer:03}")));
            store
        };
        let (mut first, mut second) = (pruned(&first), pruned(&second));
        prop_assert_eq!(first.decision(), whole.decision());
        prop_assert_eq!(second.decision(), whole.decision());
        let (of_first, of_second) = (first.copies(), second.copies());
        of_second.iter().for_each(|copy| drop(first.put(copy)));
        of_first.iter().for_each(|copy| drop(second.put(copy)));
        prop_assert_eq!(first.copies(), standing_of(&[of_first, of_second].concat()));
        prop_assert_eq!(first, second);
    }
}

#[test]
fn one_put_after_another() {
    let stands = |dropped: &[&RecordCopy]| CopyChange {
        stands: true,
        dropped: dropped.iter().map(|copy| copy.op_hash).collect(),
    };
    let nothing = CopyChange { stands: false, dropped: Vec::new() };
    let (one, other) = (copy(1, 0, 1, 0, 0), copy(1, 0, 2, 0, 0));
    let mut store = Store::default();
    assert_eq!(store.put(&one), stands(&[]));
    assert_eq!(store.put(&other), stands(&[]), "another signer stands beside");
    assert_eq!(store.put(&copy(0, 0, 0, 0, 0)), nothing, "an older version does nothing");
    let mut claims = [copy(1, 0, 3, 0, 0), copy(1, 1, 3, 0, 0)];
    claims.sort_by_key(|copy| copy.claim_digest.to_hex());
    let [lower, higher] = claims;
    let mut store = Store::of(std::slice::from_ref(&lower));
    assert_eq!(store.put(&higher), stands(&[&lower]), "of one version the greater claim decides");
    assert_eq!(store.put(&lower), nothing);
    store.put(&RecordCopy { issuer: "i".into(), signer_key: "i".into(), ..higher });
    let newest = copy(2, 0, 9, 0, 0);
    let all: Vec<_> = store.copies().iter().map(|copy| copy.op_hash).collect();
    assert_eq!(store.put(&newest).dropped, all, "a newer version takes the place of all");
    assert_eq!(store.copies(), [newest]);
}

#[test]
fn of_one_signers_equal_copies_the_smallest_hash_stays() {
    let mut tokens: Vec<_> = (0..5).map(|token| copy(1, 0, 1, 0, token)).collect();
    tokens.sort_by_key(|copy| copy.op_hash.to_hex());
    let mut store = Store::of(&tokens[2..3]);
    assert!(store.put(&tokens[3]).is_empty());
    let change = store.put(&tokens[1]);
    assert_eq!(change, CopyChange { stands: true, dropped: vec![tokens[2].op_hash] });
    // Another key of the same issuer is another signer.
    store.put(&copy(1, 0, 1, 1, 0));
    assert_eq!(store.copies(), [tokens[1].clone(), copy(1, 0, 1, 1, 0)]);
}

#[test]
fn the_64_smallest_signer_keys_stay() {
    let signed = |issuer| copy(1, 0, issuer, 0, 0);
    let mut store = Store::of(&(100..=163).map(signed).collect::<Vec<_>>());
    assert_eq!(store.copies().len(), 64);
    assert!(store.put(&signed(164)).is_empty(), "nobody fills a document");
    let change = store.put(&signed(99));
    assert_eq!(change, CopyChange { stands: true, dropped: vec![signed(163).op_hash] });
    // One that is not valid holds no place.
    store.invalid.insert(signed(120).op_hash);
    let change = store.put(&signed(200));
    assert_eq!(change, CopyChange { stands: true, dropped: vec![signed(120).op_hash] });
    assert_eq!(store.copies().last(), Some(&signed(200)));
}

#[test]
fn a_prune_takes_all_keys_of_an_issuer_and_what_is_not_valid() {
    let all = [copy(1, 0, 1, 0, 0), copy(1, 0, 1, 1, 0), copy(1, 0, 2, 0, 0), copy(1, 0, 3, 0, 0)];
    let mut store = Store::of(&all);
    store.invalid.insert(all[3].op_hash);
    store.prune("did:web:001");
    assert_eq!(store.copies(), all[2..3]);
}

#[test]
fn a_prune_never_loses_the_decision() {
    let all = [copy(1, 0, 1, 0, 0), copy(1, 0, 1, 1, 0), copy(1, 0, 2, 0, 0)];
    let mut alone = Store::of(&all[..2]);
    alone.prune("did:web:001");
    assert_eq!(alone.copies(), all[..2], "no other issuer's copy is there");
    let mut trusting = Store::of(&all);
    trusting.invalid.insert(all[2].op_hash);
    trusting.prune("did:web:001");
    assert_eq!(trusting.copies(), all, "the other one is not valid");
}

#[test]
fn an_issuer_is_no_prefix_of_another_one() {
    let all = [copy(1, 0, 1, 0, 0), copy(1, 0, 2, 0, 0)];
    let mut store = Store::of(&all);
    store.prune("did:web:00");
    store.prune("did:web:001#0");
    assert_eq!(store.copies(), all);
}

#[test]
fn a_lower_copy_decides_once_no_higher_one_is_valid_and_until_one_is_put_again() {
    let (lower, higher) = (copy(1, 0, 1, 0, 0), copy(2, 0, 2, 0, 0));
    let mut store = Store::of(std::slice::from_ref(&higher));
    store.invalid.insert(higher.op_hash);
    assert_eq!(store.put(&lower).dropped, [higher.op_hash]);
    assert_eq!(store.copies(), std::slice::from_ref(&lower));
    store.put(&higher);
    assert_eq!(store.copies(), [higher]);
}

#[test]
fn a_decisions_value_is_not_shown() {
    let owner = crate::base::OwnerDid::new("did:web:o").unwrap();
    let id = crate::base::DocumentId::new("doc-1").unwrap();
    let copy = copy(1, 0, 1, 0, 0);
    let decision = RecordDecision {
        key: RecordKey::observation(&owner, &id),
        decision_hlc: copy.version,
        content_digest: copy.claim_digest,
        payload: Some(Arc::from(&b"AAAA"[..])),
        copies: Vec::new(),
    };
    let shown = format!("{decision:?}");
    assert!(shown.contains("did:web:o") && !shown.contains("65, 65"), "{shown}");
}
