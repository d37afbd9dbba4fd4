//! Observation copies: owners' devices sign what they see; the copies go from site to site over a
//! network that loses, doubles and reorders them; and strangers send what nobody may take.
//!
//! The hosts that share the audited database are one site. The other is a host of its own, with a
//! database of its own, to which nothing happens.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use connector_store::records::{
    AllowList, DEFAULT_MAX_DRIFT, HlcClock, OBSERVATION_TYPE, RecordLimits, RecordSigner,
    SigningKey, parse, verify,
};
use connector_store::testing::{SeededIds, SeededJitter};
use connector_store::{
    Clock as _, DocumentId, Error, Hlc, MemoryJournal, OwnerDid, ReadWinner, RecordDecision,
    Result, SignedRecord, Store,
};

use super::{Account, Worker};
use crate::engine::Config;
use crate::engine::audit::decisions::{Floor, Said};
use crate::engine::world::World;

/// Documents that have records.
const DOCUMENTS: usize = 3;
/// Devices of each owner, each with a key of its own and a clock that is wrong.
const DEVICES: usize = 3;
const SKEW_MILLIS: i64 = 20_000;
/// How far ahead a stamp may be.
pub const DRIFT_MILLIS: i64 = 60_000;
/// Decisions of a page.
const PAGE: u32 = 2;
/// In a thousand copies.
const LOST: usize = 200;
const DOUBLED: usize = 150;

/// Where copies are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Site {
    /// The hosts that share the audited database.
    Home,
    /// The host of its own.
    Far,
}

impl Site {
    const fn other(self) -> Self {
        match self {
            Self::Home => Self::Far,
            Self::Far => Self::Home,
        }
    }
}

#[derive(Debug)]
struct Device {
    signer: RecordSigner,
    clock: RefCell<HlcClock>,
    skew_millis: i64,
}

/// See the module.
#[derive(Debug)]
pub struct Observations {
    owners: Vec<(OwnerDid, Vec<Device>)>,
    stranger: RecordSigner,
    under_way: RefCell<Vec<(Site, SignedRecord)>>,
    far: OnceCell<Store>,
}

impl Observations {
    pub fn new(accounts: &[Account]) -> Self {
        let device = |account: usize, number: usize| {
            let mut seed = [0; 32];
            seed[..8].copy_from_slice(&(1 + account * DEVICES + number).to_be_bytes());
            let clock = HlcClock::new(&format!("o{account}.{number}"), DEFAULT_MAX_DRIFT).unwrap();
            Device {
                signer: RecordSigner::did_key(SigningKey::ed25519_from_seed(seed)),
                clock: RefCell::new(clock),
                skew_millis: SKEW_MILLIS * (i64::try_from(number).unwrap() - 1),
            }
        };
        let owners = accounts.iter().enumerate().map(|(at, account)| {
            (account.owner.clone(), (0..DEVICES).map(|number| device(at, number)).collect())
        });
        Self {
            owners: owners.collect(),
            stranger: RecordSigner::did_key(SigningKey::ed25519_from_seed([0xff; 32])),
            under_way: RefCell::default(),
            far: OnceCell::new(),
        }
    }

    /// Who may sign for whom.
    pub fn policy(&self) -> Arc<AllowList> {
        let all = self.owners.iter().flat_map(|(owner, devices)| {
            devices.iter().map(move |device| (owner, device.signer.issuer()))
        });
        Arc::new(all.fold(AllowList::default(), |list, (owner, issuer)| list.allow(owner, issuer)))
    }

    pub fn may_sign(&self, owner: &OwnerDid, issuer: &str) -> bool {
        let mut of = self.owners.iter().filter(|(of, _)| of == owner);
        of.any(|(_, devices)| devices.iter().any(|device| device.signer.issuer() == issuer))
    }

    fn devices(&self, owner: &OwnerDid) -> &[Device] {
        self.owners.iter().find(|(of, _)| of == owner).map_or(&[], |(_, devices)| devices)
    }
}

/// The far site begins.
pub async fn begin(world: &Rc<World>, config: &Config) {
    let store = Store::builder()
        .memory(&MemoryJournal::new())
        .clock(Arc::new(world.clock.clone()))
        .ids(Arc::new(SeededIds::new(config.seed)))
        .jitter(Arc::new(SeededJitter::new(config.seed)))
        .accept_foreign_owners()
        .signer_policy(world.observations.policy())
        .on_this_thread()
        .open()
        .await;
    let _ = world.observations.far.set(store.unwrap());
}

#[derive(Clone, Copy)]
enum Act {
    Sign,
    SignTheSame,
    Receive,
    Send,
    Read,
    Winner,
    Prune,
    Forge,
    Sweep,
}

const ACTS: [(usize, Act); 9] = [
    (5, Act::Sign),
    (4, Act::SignTheSame),
    (10, Act::Receive),
    (2, Act::Send),
    (5, Act::Read),
    (3, Act::Winner),
    (2, Act::Prune),
    (2, Act::Forge),
    (1, Act::Sweep),
];

/// One record on one site, in the hands of one worker.
struct Place<'a> {
    worker: &'a Worker,
    site: Site,
    store: &'a Store,
    document: DocumentId,
    owner: OwnerDid,
}

pub async fn work(worker: &Worker) {
    let (world, of) = (&*worker.world, &worker.world.observations);
    let (act, far, document, owner) = world.chance(|chance| {
        let owner = chance.below(of.owners.len());
        (chance.weighted(&ACTS), chance.per_mille(250), chance.below(DOCUMENTS), owner)
    });
    let site = if far { Site::Far } else { Site::Home };
    let document = DocumentId::new(format!("o{document}")).unwrap();
    let at = Place::new(worker, site, document, of.owners[owner].0.clone());
    let _ = match act {
        Act::Sign => at.sign().await,
        Act::SignTheSame => at.sign_the_same().await,
        Act::Receive => receive(worker).await,
        Act::Send => at.send().await,
        Act::Read => at.read().await.map(drop),
        Act::Winner => at.winner().await,
        Act::Prune => at.prune().await,
        Act::Forge => at.forge().await,
        Act::Sweep => at.sweep().await,
    };
}

impl<'a> Place<'a> {
    fn new(worker: &'a Worker, site: Site, document: DocumentId, owner: OwnerDid) -> Self {
        let far = worker.world.observations.far.get().filter(|_| site == Site::Far);
        Self { worker, site, store: far.unwrap_or(&worker.store), document, owner }
    }

    fn world(&self) -> &World {
        &self.worker.world
    }

    /// What a call that begins now must show. A pause comes before it.
    async fn floor(&self) -> Floor {
        self.worker.host.unpaused().await;
        self.world().audit();
        self.world().audit.borrow().decisions.floor(self.site, &self.document, &self.owner)
    }

    fn told(&self, said: Option<Said>, floor: &Floor) {
        let (world, at) = (self.world(), (self.site, &self.document, &self.owner));
        world.audit.borrow_mut().decisions.told(world, at, said, floor);
    }

    fn device(&self) -> &'a Device {
        let devices = self.worker.world.observations.devices(&self.owner);
        &devices[self.world().chance(|chance| chance.below(devices.len()))]
    }

    /// A device has seen a value, or that there is none.
    async fn sign(&self) -> Result<()> {
        let (world, device) = (self.world(), self.device());
        let wall = world.clock.wall().plus_millis(device.skew_millis).as_millis();
        let version = device.clock.borrow_mut().now(wall)?;
        let number = (!world.chance(|chance| chance.per_mille(150))).then(|| world.draw() % 4);
        let payload = number.map(|number| number.to_string().into_bytes());
        self.publish(device, &version, payload.as_deref()).await
    }

    /// Another device says what was decided, or something else at the very same time.
    async fn sign_the_same(&self) -> Result<()> {
        let Some(decision) = self.read().await? else { return Ok(()) };
        let differs = self.world().chance(|chance| chance.per_mille(100));
        let payload = if differs { Some(&b"other"[..]) } else { decision.payload.as_deref() };
        self.publish(self.device(), &decision.decision_hlc, payload).await
    }

    /// Signs, puts the copy here unless the device is far from here, and sends it on.
    async fn publish(&self, device: &Device, version: &Hlc, payload: Option<&[u8]>) -> Result<()> {
        let world = self.world();
        let signer = &device.signer;
        let record = signer.sign(&self.owner, &self.document, version, version, payload)?;
        let said = said(&record);
        world.audit.borrow_mut().decisions.signed(&self.document, &self.owner, said);
        post(world, self.site.other(), &record);
        if world.chance(|chance| chance.per_mille(200)) {
            post(world, self.site, &record);
            return Ok(());
        }
        self.put(&record).await
    }

    async fn put(&self, record: &SignedRecord) -> Result<()> {
        let (world, host, floor) = (self.world(), &*self.worker.host, self.floor().await);
        let what = format!("put a copy: {} on {} {:?}", record.hlc, self.document, self.site);
        let handle = self.store.document(&self.document);
        if self.site == Site::Home && world.chance(|chance| chance.per_mille(500)) {
            let put = |id| {
                let (handle, record) = (handle.with_command_id(id), record.clone());
                async move { handle.put_observation_copy(&record).await }
            };
            world.command(host, &what, put).await?;
        } else {
            world.call(host, &what, handle.put_observation_copy(record)).await?;
        }
        self.told(Some(said(record)).max(floor.said.clone()), &floor);
        Ok(())
    }

    async fn read(&self) -> Result<Option<RecordDecision>> {
        let (world, host, floor) = (self.world(), &*self.worker.host, self.floor().await);
        let handle = self.store.document(&self.document);
        let what = format!("read a decision: {} {:?}", self.document, self.site);
        let decision = world.call(host, &what, handle.observation_decision(&self.owner)).await?;
        self.told(decision.as_ref().map(decided), &floor);
        Ok(decision)
    }

    /// Sends what is decided here to the other site, from somewhere on.
    async fn send(&self) -> Result<()> {
        let (world, host) = (self.world(), &*self.worker.host);
        let after = (&self.owner, &self.document);
        let records = self.store.records();
        let page = records.list(&[OBSERVATION_TYPE], Some(after), PAGE);
        let page = world.call(host, &format!("list decisions: {:?}", self.site), page).await?;
        for copy in page.decisions.iter().flat_map(|decision| &decision.copies) {
            post(world, self.site.other(), copy);
        }
        Ok(())
    }

    /// A fetched value is not applied where something newer was decided.
    async fn winner(&self) -> Result<()> {
        const RULE: &str = "a decision newer than a fetch is shown";
        let (world, host, floor) = (self.world(), &*self.worker.host, self.floor().await);
        let ago = i64::try_from(world.draw() % 60_000).unwrap();
        let fetch = stamp(world.clock.wall().plus_millis(-ago).as_millis());
        let handle = self.store.document(&self.document);
        let what = format!("read the winner: {} {:?}", self.document, self.site);
        let winner = world.call(host, &what, handle.read_winner(&self.owner, &fetch)).await?;
        let is_swept = {
            let decisions = &world.audit.borrow().decisions;
            decisions.is_swept(self.site, &self.document, &floor)
        };
        let newest = floor.said.map(|(version, _)| version).filter(|_| !is_swept);
        let is_right = match &winner {
            ReadWinner::Decision { hlc } => *hlc > fetch && Some(hlc) >= newest.as_ref(),
            ReadWinner::Source => newest.as_ref().is_none_or(|newest| *newest <= fetch),
            _ => false,
        };
        world.hold(RULE, is_right, || format!("{fetch}: {winner:?}, and {newest:?} was decided"));
        Ok(())
    }

    /// The decision stays: the audit sees to it.
    async fn prune(&self) -> Result<()> {
        let (world, host) = (self.world(), &*self.worker.host);
        let issuer = self.device().signer.issuer();
        let handle = self.store.document(&self.document);
        let prune = handle.prune_observation_copy(&self.owner, issuer);
        world
            .call(host, &format!("prune a copy: {} {:?}", self.document, self.site), prune)
            .await?;
        self.read().await.map(drop)
    }

    /// Somebody sends what is not the owner's, not what was signed, or of a time to come.
    async fn forge(&self) -> Result<()> {
        const RULE: &str = "what is forged is refused";
        let (world, host) = (self.world(), &*self.worker.host);
        let of = &self.worker.world.observations;
        let (kind, days) = world.chance(|chance| (chance.below(4), chance.below(30_000)));
        let now = world.clock.wall().as_millis();
        // Far enough ahead to be so still, should the call wait.
        let later = 3_600_000 * 24 * (2 + i64::try_from(days).unwrap());
        let stamp = stamp(if kind == 3 { now + later } else { now });
        let stranger = of.owners.iter().find(|(owner, _)| *owner != self.owner);
        let signer = match kind {
            0 => &of.stranger,
            1 => stranger.map_or(&of.stranger, |(_, devices)| &devices[0].signer),
            _ => &self.device().signer,
        };
        let mut record =
            signer.sign(&self.owner, &self.document, &stamp, &stamp, Some(b"forged"))?;
        if kind == 2 {
            record.payload = Some(b"swapped".as_slice().into());
        }
        let handle = self.store.document(&self.document);
        let what = format!("put a forgery: {kind} on {} {:?}", self.document, self.site);
        let result = world.call(host, &what, handle.put_observation_copy(&record)).await;
        world.hold(RULE, result.is_err(), || format!("{what} is taken"));
        result
    }

    async fn sweep(&self) -> Result<()> {
        // The far site keeps what it has, and sends it again.
        if self.site == Site::Far {
            return Ok(());
        }
        let (world, host) = (self.world(), &*self.worker.host);
        let handle = self.store.document(&self.document);
        let sweep = handle.sweep_document_rows();
        world.call(host, &format!("sweep a document: {}", self.document), sweep).await
    }
}

/// Gives a copy to the network.
fn post(world: &World, to: Site, record: &SignedRecord) {
    let (lost, doubled) =
        world.chance(|chance| (chance.per_mille(LOST), chance.per_mille(DOUBLED)));
    let times = usize::from(!lost) + usize::from(!lost && doubled);
    let mut under_way = world.observations.under_way.borrow_mut();
    under_way.extend(std::iter::repeat_n((to, record.clone()), times));
}

/// Takes any copy off the network. It is lost where it can't be put.
async fn receive(worker: &Worker) -> Result<()> {
    let taken = {
        let mut under_way = worker.world.observations.under_way.borrow_mut();
        let at = worker.world.chance(|chance| chance.below(under_way.len()));
        (at < under_way.len()).then(|| under_way.swap_remove(at))
    };
    let Some((site, record)) = taken else { return Ok(()) };
    let (document, owner) = (record.key.id.clone(), record.key.owner.clone());
    Place::new(worker, site, document, owner).put(&record).await
}

fn stamp(millis: i64) -> Hlc {
    Hlc::parse(&format!("{millis:015}-00000000-anyone")).unwrap()
}

fn said(record: &SignedRecord) -> Said {
    let parsed = parse(record, &RecordLimits::default()).unwrap();
    let verified = verify(&parsed, parsed.built_in_key().unwrap()).unwrap();
    (verified.version, verified.claim_digest)
}

fn decided(decision: &RecordDecision) -> Said {
    (decision.decision_hlc.clone(), decision.content_digest)
}

/// Each site gets all that the other has; then both have decided the same, on whichever host.
pub async fn converge(world: &World) {
    if let Err(error) = exchange(world).await {
        world.violate("both sites come to the same", error);
    }
}

async fn exchange(world: &World) -> Result<()> {
    let homes: Vec<Store> =
        world.hosts.iter().filter_map(|host| Some(host.life()?.store)).collect();
    let (Some(home), Some(far)) = (homes.first(), world.observations.far.get()) else {
        return Err(Error::Closed);
    };
    let (of_home, of_far) = (all(home).await?, all(far).await?);
    for (decisions, to) in [(&of_home, far), (&of_far, home)] {
        for copy in decisions.iter().flat_map(|decision| &decision.copies) {
            to.records().put_copy(copy).await?;
        }
    }
    let wanted = all(far).await?;
    for store in &homes {
        let found = all(store).await?;
        world.hold("both sites come to the same", found == wanted, || {
            format!("{found:?}, and on the far site {wanted:?}")
        });
    }
    Ok(())
}

async fn all(store: &Store) -> Result<Vec<RecordDecision>> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let from = after.as_ref().map(|(owner, document)| (owner, document));
        let page = store.list_observation_decisions(&[OBSERVATION_TYPE], from, PAGE).await?;
        all.extend(page.decisions);
        after = page.next;
        if after.is_none() {
            return Ok(all);
        }
    }
}
