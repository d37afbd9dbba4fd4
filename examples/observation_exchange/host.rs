//! One host: its store, the key of its device, its clock, and the small graph that it shows.
//!
//! A graph shows what was fetched or edited here. What others have observed comes as signed copies,
//! which the store brings to one *decision* for each document. Where that is newer than what the
//! graph shows, a *repair* is owed: it is kept in the store, so it survives whatever happens before
//! the graph is brought there.

use std::collections::BTreeMap;

use connector_store::base::ValueDigest;
use connector_store::records::{
    DEFAULT_MAX_DRIFT, HlcClock, OBSERVATION_TYPE, RecordDecision, RecordSigner, SignedRecord,
};
use connector_store::{
    Digest, DocumentId, Error, Hlc, ObservationRepair, OwnerDid, ReadWinner, Store,
};

use crate::Failure;

/// So many decisions are read at a time.
const PAGE: u32 = 100;

/// What a document looks like; none where it does not exist.
pub type Value = Option<String>;

/// What a host's graph shows of a document.
#[derive(Clone, Debug)]
struct Shown {
    value: Value,
    /// The version of the claim that it stands on.
    version: Hlc,
}

/// A value that was read from the account, and is not applied yet.
#[derive(Clone, Debug)]
struct Fetch {
    document: DocumentId,
    stamp: Hlc,
    value: Value,
}

/// What a host has done, and what it met.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Copies that it signed: of what it fetched, edited or deleted.
    pub signed: u64,
    /// Fetched values that were older than a decision, so they were not applied.
    pub outdated: u64,
    /// Copies that came and stood.
    pub puts: u64,
    /// Copies that came and stood already.
    pub repeats: u64,
    /// Copies that came and were lower than the decision.
    pub lower: u64,
    /// Records that came and were no valid copies.
    pub refused: u64,
    /// Copies that it dropped because another device's copy says the same.
    pub pruned: u64,
    /// Documents that it brought to a decision of another host.
    pub repaired: u64,
}

/// A host.
#[derive(Debug)]
pub struct Host {
    pub name: String,
    pub store: Store,
    pub counts: Counts,
    owner: OwnerDid,
    signer: RecordSigner,
    clock: HlcClock,
    /// How far its wall clock is off.
    skew_ms: i64,
    /// Below every stamp: nothing was seen yet.
    never: Hlc,
    graph: BTreeMap<DocumentId, Shown>,
    fetches: Vec<Fetch>,
}

impl Host {
    /// A host that has seen nothing, over an empty store. One that is started again starts its clock
    /// above the greatest stamp of its store.
    pub fn new(
        name: String,
        store: Store,
        owner: &OwnerDid,
        signer: RecordSigner,
        skew_ms: i64,
    ) -> Result<Self, Failure> {
        let clock = HlcClock::new(&name, DEFAULT_MAX_DRIFT)?;
        Ok(Self {
            never: clock.clone().now(0)?,
            owner: owner.clone(),
            signer,
            counts: Counts::default(),
            graph: BTreeMap::new(),
            fetches: Vec::new(),
            name,
            store,
            clock,
            skew_ms,
        })
    }

    fn stamp(&mut self, wall_ms: i64) -> Result<Hlc, Failure> {
        Ok(self.clock.now(wall_ms + self.skew_ms)?)
    }

    /// A fetch begins. The stamp is taken before the value is read: of what is written from then on
    /// the fetch proves nothing.
    pub fn begin_fetch(
        &mut self,
        document: &DocumentId,
        account: &BTreeMap<DocumentId, String>,
        wall_ms: i64,
    ) -> Result<(), Failure> {
        let stamp = self.stamp(wall_ms)?;
        let value = account.get(document).cloned();
        self.fetches.push(Fetch { document: document.clone(), stamp, value });
        Ok(())
    }

    /// The oldest fetch that is under way ends. Its value is applied only where nothing newer was
    /// decided meanwhile.
    pub async fn end_fetch(&mut self) -> Result<(), Failure> {
        if self.fetches.is_empty() {
            return Ok(());
        }
        let fetch = self.fetches.remove(0);
        match self.store.document(&fetch.document).read_winner(&self.owner, &fetch.stamp).await? {
            ReadWinner::Source => self.observe(fetch).await,
            // Something newer was decided. Whatever else comes before the source, the value must not
            // be applied either.
            _ => {
                self.counts.outdated += 1;
                self.owe(&fetch.document).await
            }
        }
    }

    /// Signs what was fetched. Where it is what was decided before, the very same claim is signed
    /// once more: two devices say so then, and the copy of one of them may be pruned.
    async fn observe(&mut self, fetch: Fetch) -> Result<(), Failure> {
        let Fetch { document, stamp, value } = fetch;
        let version = match self.decision(&document).await? {
            Some(decision) if text(&decision)? == value => decision.decision_hlc,
            _ => stamp,
        };
        self.sign(&document, value, version).await
    }

    /// The user changes a document here, or deletes it: the version is newer than all that this
    /// host has seen.
    pub async fn edit(
        &mut self,
        document: &DocumentId,
        value: Value,
        wall_ms: i64,
    ) -> Result<(), Failure> {
        let version = self.stamp(wall_ms)?;
        self.sign(document, value, version).await
    }

    /// Signs a value, puts the copy, and shows it. A value that is absent is a claim like any other.
    async fn sign(
        &mut self,
        document: &DocumentId,
        value: Value,
        version: Hlc,
    ) -> Result<(), Failure> {
        let payload = value.as_deref().map(str::as_bytes);
        let record = self.signer.sign(&self.owner, document, &version, &version, payload)?;
        let of_store = self.store.document(document);
        of_store.put_observation_copy(&record).await?;
        self.counts.signed += 1;
        // What is shown now is the decision, so no repair is owed any more.
        self.graph.insert(document.clone(), Shown { value, version });
        Ok(of_store.clear_repair().await?)
    }

    /// A copy has come from another host, or from anybody. What the store refuses changes nothing,
    /// and nothing of it is believed: neither its value nor its stamp.
    pub async fn take(&mut self, record: &SignedRecord, wall_ms: i64) -> Result<(), Failure> {
        let document = self.store.document(&record.key.id);
        let before = self.decision(&record.key.id).await?;
        match document.put_observation_copy(record).await {
            Ok(()) => {}
            Err(Error::InvalidObservationRecord { .. } | Error::HlcDrift { .. }) => {
                self.counts.refused += 1;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        // From now on this host's stamps are above the one it has seen.
        self.clock.observe(&record.hlc, wall_ms + self.skew_ms)?;
        let after = self.decision(&record.key.id).await?;
        let stands = |decision: &Option<RecordDecision>| {
            let copies = decision.iter().flat_map(|decision| &decision.copies);
            copies.into_iter().any(|copy| copy.op_hash == record.op_hash)
        };
        match (stands(&before), stands(&after)) {
            (true, _) => self.counts.repeats += 1,
            (false, true) => self.counts.puts += 1,
            (false, false) => self.counts.lower += 1,
        }
        self.owe(&record.key.id).await
    }

    /// Owes a repair where something newer was decided than what the graph shows.
    async fn owe(&self, document: &DocumentId) -> Result<(), Failure> {
        let shown = self.graph.get(document).map_or(&self.never, |shown| &shown.version);
        let of_store = self.store.document(document);
        if !matches!(of_store.read_winner(&self.owner, shown).await?, ReadWinner::Decision { .. }) {
            return Ok(());
        }
        let Some(decision) = self.decision(document).await? else { return Ok(()) };
        let digest = decision.payload.as_deref().map(|payload| Digest::of(payload).to_hex());
        let repair = ObservationRepair {
            owner: self.owner.clone(),
            fetch_hlc: shown.clone(),
            present: decision.payload.is_some(),
            value_digest: digest.map(ValueDigest::new).transpose()?,
            decision_hlc: decision.decision_hlc,
        };
        of_store.put_repair(&repair).await?;
        Ok(())
    }

    /// Pays the repair that has been owed for longest. The answer says whether there was one.
    pub async fn repair(&mut self) -> Result<bool, Failure> {
        let owed = self.store.repairs_written_since(None, 1).await?;
        let Some(owed) = owed.first() else { return Ok(false) };
        if let Some(decision) = self.decision(&owed.document_id).await? {
            let shown = Shown { value: text(&decision)?, version: decision.decision_hlc };
            self.graph.insert(owed.document_id.clone(), shown);
        }
        // The graph first: killed in between, the repair would be made once more.
        self.store.document(&owed.document_id).clear_repair().await?;
        self.counts.repaired += 1;
        Ok(true)
    }

    /// Drops the copies of another device, or of this one, where a further device says the same.
    pub async fn prune(&mut self, document: &DocumentId, issuer: &str) -> Result<(), Failure> {
        let before = self.decision(document).await?;
        self.store.document(document).prune_observation_copy(&self.owner, issuer).await?;
        let after = self.decision(document).await?;
        let said = |decision: &Option<RecordDecision>| {
            decision
                .as_ref()
                .map(|decision| (decision.decision_hlc.clone(), decision.content_digest))
        };
        if said(&before) != said(&after) {
            return Err(format!("a prune has changed what was decided of {document}").into());
        }
        let copies = |decision: Option<RecordDecision>| {
            decision.map_or(0, |decision| decision.copies.len()) as u64
        };
        self.counts.pruned += copies(before) - copies(after);
        Ok(())
    }

    /// What was decided of one document; none where nobody said anything of it.
    pub async fn decision(&self, document: &DocumentId) -> Result<Option<RecordDecision>, Failure> {
        Ok(self.store.document(document).observation_decision(&self.owner).await?)
    }

    /// All copies that stand, of all documents.
    pub async fn copies(&self) -> Result<Vec<SignedRecord>, Failure> {
        let mut copies = Vec::new();
        let mut after = None;
        loop {
            let from = after.as_ref().map(|(owner, document)| (owner, document));
            let page =
                self.store.list_observation_decisions(&[OBSERVATION_TYPE], from, PAGE).await?;
            copies.extend(page.decisions.into_iter().flat_map(|decision| decision.copies));
            after = page.next;
            if after.is_none() {
                return Ok(copies);
            }
        }
    }

    /// What the graph shows of one document.
    pub fn shown(&self, document: &DocumentId) -> Value {
        self.graph.get(document).and_then(|shown| shown.value.clone())
    }
}

/// What a decision says. None where it says that the document is deleted.
pub fn text(decision: &RecordDecision) -> Result<Value, Failure> {
    let payload = decision.payload.as_deref();
    Ok(payload.map(|payload| String::from_utf8(payload.to_vec())).transpose()?)
}
