//! What goes wrong: hosts are killed, paused and cut off; their storage fails by chance.

use std::rc::Rc;

use connector_store::testing::{Chances, Fault, Gate};

use super::host::Host;
use super::samples::Blow;
use super::world::World;

/// How often what goes wrong.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// In a thousand appends of a host.
    pub storage: Chances,
    /// In a thousand calls of a provider, for each of its faults.
    pub provider: u32,
    /// Blows to hosts, as weights: kills, pauses, cuts. None comes when all are 0.
    pub kills: usize,
    pub pauses: usize,
    pub cuts: usize,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Self =
        Self { storage: Chances::NONE, provider: 0, kills: 0, pauses: 0, cuts: 0 };

    /// Everything does.
    pub const ALL: Self = Self {
        storage: Chances {
            fail: 15,
            passing: 15,
            lose_acknowledgement: 15,
            lose_commit: 15,
            stall: 100,
            full: 2,
            rival: 10,
            ..Chances::NONE
        },
        provider: 15,
        kills: 2,
        pauses: 3,
        cuts: 2,
    };
}

/// Strikes one host after the other, for as long as the work goes on.
pub async fn haunt(world: Rc<World>) {
    let faults = world.config.faults;
    let blows =
        [(faults.kills, Blow::Kill), (faults.pauses, Blow::Pause), (faults.cuts, Blow::Cut)];
    if blows.iter().all(|(weight, _)| *weight == 0) {
        return;
    }
    loop {
        world.rest(200, 6_000).await;
        let (host, blow) = world.chance(|chance| {
            (Rc::clone(&world.hosts[chance.below(world.hosts.len())]), chance.weighted(&blows))
        });
        tokio::task::spawn_local(strike(Rc::clone(&world), host, blow));
    }
}

async fn strike(world: Rc<World>, host: Rc<Host>, blow: Blow) {
    let Some(life) = host.life() else { return };
    match blow {
        Blow::Kill => {
            host.kill(&world);
            world.rest(100, 20_000).await;
            if host.life().is_none() {
                host.start(&world).await;
            }
        }
        Blow::Pause => {
            world.samples.down(host.number, blow);
            world.note(&host.name, format_args!("is paused"));
            let gate = Gate::new();
            let before = world.chance(|chance| chance.per_mille(500));
            let stall = if before { Fault::StallBefore } else { Fault::StallAfter };
            life.faults.next_append(stall(gate.clone()));
            host.pause(true);
            world.rest(100, 40_000).await;
            host.pause(false);
            gate.open();
            world.samples.up(host.number, blow);
            world.note(&host.name, format_args!("goes on"));
        }
        Blow::Cut => {
            world.samples.down(host.number, blow);
            world.note(&host.name, format_args!("is cut off"));
            // In the middle of a commit, if one comes: what became of it can't be asked before the
            // connection is back, and by then its caller may have waited for too long.
            let is_lost = world.chance(|chance| chance.per_mille(500));
            let doubt = if is_lost { Fault::LoseCommit } else { Fault::LoseAcknowledgement };
            life.faults.next_append(doubt);
            let gate = Gate::new();
            life.faults.stall_look_ups(gate.clone());
            world.rest(50, 1_000).await;
            life.faults.set_offline(true);
            let longest =
                world.chance(|chance| chance.weighted(&[(2, 2_000), (1, 10_000), (1, 50_000)]));
            world.rest(100, longest).await;
            // A life that was ended meanwhile stays cut off.
            if host.life().is_some_and(|now| std::sync::Arc::ptr_eq(&now.faults, &life.faults)) {
                life.faults.set_offline(false);
                world.samples.up(host.number, blow);
                world.note(&host.name, format_args!("is connected again"));
            }
            gate.open();
        }
    }
}

/// Nothing goes wrong any more, and every host runs.
pub async fn heal(world: &Rc<World>) {
    world.note("NEMESIS", format_args!("rests"));
    for account in &world.accounts.all {
        account.provider.chances(&[]);
    }
    for host in &world.hosts {
        host.pause(false);
        if let Some(life) = host.life() {
            life.faults.heal();
        }
        world.samples.up(host.number, Blow::Pause);
        world.samples.up(host.number, Blow::Cut);
    }
    world.samples.healed();
    // The blows that are under way end.
    world.rest(60_000, 60_001).await;
    for host in &world.hosts {
        while host.life().is_none() && !world.is_broken() {
            host.start(world).await;
        }
        if let Some(life) = host.life() {
            life.faults.heal();
        }
    }
}
