//! Several hosts of one owner observe the same documents, and exchange what they saw as signed
//! records, over a network that loses, doubles and reorders. Nobody leads. In the end all hold
//! the same decision for each document, which is checked.
//!
//! ```text
//! cargo run --release --example observation_exchange
//! cargo run --release --example observation_exchange -- --hosts 5 --loss 60 --seed 7
//! ```
//!
//! What a host observes, edits or deletes it signs with the key of its device: *this document is
//! so, as of this version*. A version is a stamp of the host's hybrid logical clock. All copies
//! that are put into a store come to one decision by a rule that depends neither on the order in
//! which they come nor on how often: the greatest version decides. So it is enough that each copy
//! arrives somewhere, some time.
//!
//! In reading order: `host` is one host, with its store and its graph; `network` brings copies from
//! one to another, or does not; `intruder` makes records that nobody may take; `play` is what
//! happens, by `chance`; `report` says what came of it.

// A program talks to its user through these, a library must not.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod chance;
mod cli;
mod host;
mod intruder;
mod network;
mod play;
mod report;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use connector_store::journal::BoxFuture;
use connector_store::records::{AllowList, RecordSigner, SigningKey};
use connector_store::{Digest, DocumentId, DocumentOwners, OwnerDid, Result as StoreResult, Store};
use indicatif::ProgressBar;

use crate::chance::Chance;
use crate::cli::Cli;
use crate::host::Host;
use crate::network::Network;
use crate::play::{BEGINNING_MS, Play};

/// What went wrong, for a person to read.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A host's wall clock is off by less than this. It must stay below what a store takes.
const MAX_SKEW_MS: usize = 20_000;

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Cli::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// The answer says whether all hosts hold the same in the end.
async fn run(cli: &Cli) -> Result<bool, Failure> {
    let dir = tempfile::tempdir()?;
    let owner = OwnerDid::try_from(&key("owner").did())?;
    let mut play = open(cli, dir.path(), &owner).await?;
    let bar = ProgressBar::new(cli.steps.into());
    for number in 0..cli.steps {
        play.step(number).await?;
        bar.inc(1);
    }
    bar.finish_and_clear();

    let device = RecordSigner::did_key(key("host-1"));
    let intruders = intruder::records(&owner, &play.documents[0], &device, play.wall_ms)?;
    play.intrude(&intruders).await?;

    let rounds = play.exchange().await?;
    let different = report::print(&play, rounds).await?;
    for host in play.hosts {
        let verified = host.store.verify().await?;
        if !verified.is_sound() {
            return Err(format!("the store of {} is damaged: {verified:?}", host.name).into());
        }
        host.store.close().await?;
    }
    Ok(different == 0)
}

/// Opens a store for each host. The owner's word, that these devices may sign, is a list that every
/// host has.
async fn open(cli: &Cli, dir: &Path, owner: &OwnerDid) -> Result<Play, Failure> {
    let names: Vec<_> = (1..=cli.hosts).map(|number| format!("host-{number}")).collect();
    let devices: Vec<_> = names.iter().map(|name| key(name).did().to_string()).collect();
    let allowed = devices
        .iter()
        .fold(AllowList::default(), |allowed, device| allowed.allow(owner, device.as_str()));
    let mut chance = Chance::new(cli.seed);
    let mut hosts = Vec::with_capacity(names.len());
    for name in names {
        let store = Store::builder()
            .sqlite(dir.join(format!("{name}.db")))
            .signer_policy(Arc::new(allowed.clone()))
            .document_owners(Arc::new(OneOwner(owner.clone())))
            .arbiters(1)
            .open()
            .await?;
        let skew_ms = i64::try_from(chance.below(2 * MAX_SKEW_MS))? - i64::try_from(MAX_SKEW_MS)?;
        let signer = RecordSigner::did_key(key(&name));
        hosts.push(Host::new(name, store, owner, signer, skew_ms)?);
    }
    let documents = (1..=cli.documents).map(|number| DocumentId::new(format!("note-{number}")));
    let documents: Vec<_> = documents.collect::<Result<_, _>>()?;
    let text = |document: &DocumentId| (document.clone(), "as it was".to_owned());
    Ok(Play {
        account: documents.iter().map(text).collect::<BTreeMap<_, _>>(),
        network: Network::new(cli.loss),
        wall_ms: BEGINNING_MS,
        documents,
        devices,
        hosts,
        chance,
    })
}

/// The key of a name: for a play it needs not be secret. A real one is made from a random seed.
fn key(name: &str) -> SigningKey {
    SigningKey::ed25519_from_seed(*Digest::of(name.as_bytes()).as_bytes())
}

/// Says whose a document is: here all are one owner's.
#[derive(Debug)]
struct OneOwner(OwnerDid);

impl DocumentOwners for OneOwner {
    fn document_owner<'a>(
        &'a self,
        _: &'a DocumentId,
    ) -> BoxFuture<'a, StoreResult<Option<OwnerDid>>> {
        Box::pin(async { Ok(Some(self.0.clone())) })
    }
}
