//! All faults at once, by the seed: people edit on both sides, the provider fails as it likes, and once
//! it has calmed down both sides hold the same, no write was made twice, and none was lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use connector_store::Jitter;
use connector_store::testing::{Provider, ProviderFault, SeededJitter, SimClock};

use crate::common::*;

const SEEDS: u64 = 40;
const STEPS: u32 = 40;
/// Of a thousand calls where a fault can strike.
const PER_MILLE: u32 = 60;

struct Walk {
    mirror: Mirror,
    provider: Provider,
    chance: SeededJitter,
    made: u32,
    /// What the user wrote last under each name that nobody else writes to.
    mine: BTreeMap<String, String>,
    operations: Vec<String>,
}

impl Walk {
    fn draw(&self, below: u32) -> u32 {
        let scaled = self.chance.unit() * f64::from(below);
        (0..below).rev().find(|n| f64::from(*n) <= scaled).unwrap_or(0)
    }

    /// Somebody else edits. They leave alone what the user makes.
    fn others_edit(&mut self) {
        let name = source(format!("e{}", self.draw(14)));
        match self.draw(4) {
            0 => {
                self.provider.remove(&home(), &name);
            }
            1 => {
                let to = source(format!("e{}", self.draw(14)));
                self.provider.rename(&home(), &name, &to);
            }
            _ => {
                self.made += 1;
                self.provider.put(&home(), &name, &titled(format!("theirs {}", self.made)));
            }
        }
    }

    /// The user makes a document, or changes or deletes one.
    async fn user_edits(&mut self) {
        self.made += 1;
        let (op, text) = (format!("op-{}", self.made), format!("mine {}", self.made));
        let mine = self.mirror.graph.iter().filter(|(_, it)| {
            let is_mine = it.source_id.as_str().starts_with("mine");
            is_mine && it.edit.is_none() && !it.is_deleted && it.base.is_some()
        });
        let mine: Vec<_> =
            mine.map(|(id, it)| (id.clone(), it.source_id.as_str().to_owned())).collect();
        let edited = match (self.draw(3), mine.first()) {
            (0, Some((id, name))) => {
                self.mine.remove(name);
                self.mirror.remove(id, &op).await
            }
            (1, Some((id, name))) => {
                self.mine.insert(name.clone(), text.clone());
                self.mirror.update(id, &op, titled(text)).await
            }
            _ => {
                let name = format!("mine{}", self.made);
                self.mine.insert(name.clone(), text.clone());
                self.operations.push(format!("op-{name}"));
                self.mirror.create(&name, titled(text)).await.map(|_| ())
            }
        };
        self.operations.push(op);
        edited.unwrap();
    }

    /// What must not be, whenever it is looked.
    fn assert_safe(&self, seed: u64) {
        for name in &self.operations {
            let writes = self.provider.effective_writes(&operation(name));
            assert!(writes <= 1, "seed {seed}: {name} was written {writes} times");
        }
        let shown: BTreeMap<_, _> = self.mirror.shown().into_iter().collect();
        for (name, text) in &self.mine {
            assert_eq!(shown.get(name), Some(&Some(text.clone())), "seed {seed}: {name}");
        }
    }
}

async fn walk(seed: u64, counts: &mut [u64; ProviderFault::ALL.len()]) {
    let clock = SimClock::default();
    let provider = Provider::new(Arc::new(clock.clone()), seed);
    for n in 0..10 {
        provider.put(&home(), &source(format!("e{n}")), &titled(format!("event {n}")));
    }
    let mut walk = Walk {
        mirror: Mirror::new(&provider, &clock).await,
        provider: provider.clone(),
        chance: SeededJitter::new(seed),
        made: 0,
        mine: BTreeMap::new(),
        operations: Vec::new(),
    };
    provider.chances(&ProviderFault::ALL.map(|fault| (fault, PER_MILLE)));
    for _ in 0..STEPS {
        match walk.draw(5) {
            0 => walk.others_edit(),
            1 => walk.user_edits().await,
            2 => clock.advance(SECOND * walk.draw(40)),
            3 => walk.mirror.forget_cursor().await.unwrap(),
            _ => walk.mirror.try_round().await,
        }
        walk.assert_safe(seed);
    }
    provider.chances(&[]);
    // Longer than the longest backoff of a candidate, and every fault.
    for _ in 0..3 {
        walk.mirror.rounds().await;
        clock.advance(SECOND * 3_600);
        walk.mirror.forget_cursor().await.unwrap();
    }
    walk.mirror.rounds().await;
    walk.assert_safe(seed);
    heal(&provider);
    walk.mirror.rounds().await;
    assert_eq!(walk.mirror.shown(), truth(&provider), "seed {seed}");
    let unwritten = walk.mirror.graph.values().filter(|it| it.edit.is_some() || it.is_watched);
    assert_eq!(unwritten.count(), 0, "seed {seed}");
    for (count, fault) in counts.iter_mut().zip(ProviderFault::ALL) {
        *count += provider.struck(fault);
    }
}

/// Somebody writes anew what was poisoned.
fn heal(provider: &Provider) {
    for item in provider.truth(&home()) {
        if title(&item.content).is_none() {
            provider.put(&home(), &item.source_id, &titled("healed"));
        }
    }
}

#[tokio::test]
async fn whatever_the_provider_does_both_sides_agree_in_the_end() {
    let mut counts = [0; ProviderFault::ALL.len()];
    for seed in 0..SEEDS {
        walk(seed, &mut counts).await;
    }
    for (count, fault) in counts.iter().zip(ProviderFault::ALL) {
        assert!(*count > 0, "{} never struck", fault.name());
    }
}
