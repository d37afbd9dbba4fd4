//! The model's connectors: sync state, lease, enumerations, candidates; and the last comparison.

use super::*;

impl World {
    pub(super) async fn run_on_connector(&mut self, host: usize, op: Op) {
        match op {
            Op::SetSync { at, value, recovery } => self.set_sync(host, at, value, recovery).await,
            Op::Progress { at } => self.burst(host, at, 1).await,
            Op::Burst { at, count } => self.burst(host, at, count).await,
            Op::DeleteSync { at } => {
                let handle = self.connector(host, at);
                if went_well(self.wait(handle.delete_sync_state()).await, Ok(())).is_some() {
                    self.connectors[at].sync = None;
                }
            }
            Op::Acquire { at, holder } => self.acquire(host, at, holder).await,
            Op::Renew { at } => {
                let Some((lease, expected)) = self.newest_lease(at) else { return };
                if went_well(self.wait(lease.renew(TTL)).await, expected).is_some() {
                    let expires_at = self.time.wall().plus(TTL);
                    if let Some(standing) = &mut self.connectors[at].lease {
                        standing.2 = expires_at;
                    }
                }
            }
            Op::Release { at } => {
                let Some((lease, expected)) = self.newest_lease(at) else { return };
                if went_well(self.wait(lease.release()).await, expected).is_some() {
                    self.connectors[at].lease = None;
                }
            }
            Op::Fenced { at, to } => {
                // An old lease as likely as the newest one.
                let held = self.leases[at].len();
                let Some(held) = self.leases[at].get(to % held.max(1)) else { return };
                let expected = self.fits(at, held.acquired);
                let handle = held.lease.session().document(&document(to));
                let set = set_trim(&handle, 1, 77);
                if went_well(self.wait(set).await, expected).is_some() {
                    self.trimmed(to, 1, 77);
                }
            }
            Op::Enumerate { at, kept } => self.enumerate(host, at, kept).await,
            Op::Candidate { at, of, what } => self.candidate(host, at, of, what).await,
            _ => unreachable!("it is no connector's"),
        }
    }

    async fn set_sync(&mut self, host: usize, at: usize, value: i64, recovery: bool) {
        let recovery = recovery.then_some(value);
        let status = if value % 2 == 0 { SyncStatus::Syncing } else { SyncStatus::Error };
        let input = SyncStateInput {
            checkpoint: Some(json(value)),
            recovery: recovery.map(json),
            last_synced_at: Rfc3339::from_timestamp(Timestamp::default()),
            entity_count: value,
            status,
            error: None,
        };
        let handle = self.connector(host, at);
        if went_well(self.wait(handle.set_sync_state(input)).await, Ok(())).is_none() {
            return;
        }
        let standing = self.connectors[at].sync.take();
        let (version, incarnation) =
            standing.map_or((0, None), |sync| (sync.version, sync.incarnation));
        let sync = SyncModel { count: value, version, recovery, status, incarnation };
        self.connectors[at].sync = Some(sync);
    }

    /// Adds one so often at once, from both hosts.
    async fn burst(&mut self, host: usize, at: usize, count: usize) {
        let calls = (0..count).map(|index| {
            let handle = self.connector((host + index) % 2, at);
            tokio::spawn(async move { handle.update_sync_progress(next).await })
        });
        for call in calls.collect::<Vec<_>>() {
            let result = self.wait(call).await.unwrap();
            if went_well(result, Ok(())).is_none() {
                continue;
            }
            let sync = &mut self.connectors[at].sync;
            match sync {
                Some(sync) => {
                    sync.count += 1;
                    sync.version += 1;
                    sync.recovery = None;
                }
                None => {
                    let status = SyncStatus::Idle;
                    *sync = Some(SyncModel {
                        count: 1,
                        version: 0,
                        recovery: None,
                        status,
                        incarnation: None,
                    });
                }
            }
        }
    }

    async fn acquire(&mut self, host: usize, at: usize, holder: usize) {
        let now = self.time.wall();
        let is_free = self.connectors[at]
            .lease
            .is_none_or(|(by, _, expires_at)| by == holder || expires_at <= now);
        let expected = if is_free { Ok(()) } else { Err("CONNECTOR_LEASE_HELD") };
        let name = Holder::new(format!("h{holder}")).unwrap();
        let handle = self.connector(host, at);
        let Some(lease) = went_well(self.wait(handle.acquire_lease(&name, TTL)).await, expected)
        else {
            return;
        };
        if let Some(last) = self.leases[at].last() {
            assert!(lease.token() > last.lease.token(), "tokens grow over all hosts");
        }
        let connector = &mut self.connectors[at];
        connector.acquired += 1;
        connector.lease = Some((holder, connector.acquired, now.plus(TTL)));
        let acquired = connector.acquired;
        self.leases[at].push(HeldLease { host, acquired, lease });
    }

    fn fits(&self, at: usize, acquired: u64) -> std::result::Result<(), &'static str> {
        let standing = self.connectors[at].lease;
        let is_current = standing.is_some_and(|(_, newest, _)| newest == acquired);
        if is_current { Ok(()) } else { Err("CONNECTOR_LEASE_LOST") }
    }

    fn newest_lease(&self, at: usize) -> Option<(Lease, std::result::Result<(), &'static str>)> {
        let held = self.leases[at].last()?;
        Some((held.lease.clone(), self.fits(at, held.acquired)))
    }

    async fn enumerate(&mut self, host: usize, at: usize, kept: u8) {
        let handle = self.connector(host, at);
        let receipt = || BeginReceipt {
            partition: partition(),
            provenance: lineage(),
            model_id: ModelId::new("note").unwrap(),
            scope: "all".to_owned(),
            source_fetch_hlc: hlc(),
            predicate: None,
            kind: ReceiptKind::Full,
            fingerprint: "f".to_owned(),
        };
        // A begin whose answer was an error may be followed by its read alone having failed.
        let begun = self.insist(|| handle.begin_receipt(receipt())).await.unwrap();
        assert!(begun.sequence > self.connectors[at].sequence);
        self.connectors[at].sequence = begun.sequence;
        let key =
            ReceiptKey { partition: partition(), provenance: lineage(), sequence: begun.sequence };
        let is_kept = |document: &usize| kept & (1 << document) != 0;
        let ids: Vec<SourceId> = (0..DOCUMENTS).filter(is_kept).map(source).collect();
        let pages: Vec<Vec<SourceId>> = ids.chunks(2).map(<[SourceId]>::to_vec).collect();
        for (page, ids) in pages.iter().enumerate() {
            let page = u32::try_from(page).unwrap();
            self.insist(|| handle.extend_receipt(&key, page, ids.clone(), "f")).await.unwrap();
        }
        let count = u32::try_from(pages.len()).unwrap();
        self.insist(|| handle.complete_receipt(&key, count, None, "f")).await.unwrap();
        let known: Vec<_> = (0..DOCUMENTS).map(|at| (document(at), source(at))).collect();
        let guard = MassDeleteGuard::default();
        let result = self.insist(|| handle.commit_receipt(&key, known.clone(), guard)).await;
        if kept & 15 == 0 {
            assert!(matches!(result, Err(Error::SweepTooLarge { .. })), "{result:?}");
            return;
        }
        let result = result.unwrap();
        let candidates = &mut self.connectors[at].candidates;
        let before = candidates.len();
        candidates.retain(|document, _| !is_kept(document));
        assert_eq!(result.withdrawn, (before - candidates.len()) as u64);
        let before = candidates.len();
        for document in (0..DOCUMENTS).filter(|document| !is_kept(document)) {
            candidates.entry(document).or_insert(CandidateState::Pending);
        }
        assert_eq!(result.candidates, (candidates.len() - before) as u64);
        assert_eq!(result.missing, candidates.len() as u64);
    }

    async fn candidate(&mut self, host: usize, at: usize, of: usize, what: u8) {
        let handle = self.connector(host, at);
        let key = CandidateKey {
            partition: partition(),
            provenance: lineage(),
            document_id: document(of),
            source_id: source(of),
        };
        if what == 3 {
            if went_well(self.wait(handle.sweep_applied(&key)).await, Ok(())).is_some() {
                self.connectors[at].candidates.remove(&of);
            }
            return;
        }
        let is_there = self.connectors[at].candidates.contains_key(&of);
        let expected = if is_there { Ok(()) } else { Err("CONNECTOR_NOT_FOUND") };
        let outcomes = [SweepOutcome::Absent, SweepOutcome::Present, SweepOutcome::Unknown];
        let outcome = outcomes[usize::from(what)];
        let record = handle.record_sweep_outcome(&key, outcome);
        let Some(state) = went_well(self.wait(record).await, expected) else { return };
        let candidates = &mut self.connectors[at].candidates;
        match outcome {
            SweepOutcome::Present => {
                assert_eq!(state, None);
                candidates.remove(&of);
            }
            SweepOutcome::Absent => {
                assert_eq!(state, Some(CandidateState::Confirmed));
                candidates.insert(of, CandidateState::Confirmed);
            }
            SweepOutcome::Unknown => {
                candidates.insert(of, state.expect("it stands"));
            }
        }
    }

    /// Everything that is stored is what the model says, to both hosts and to the tables' readers.
    pub async fn check(&mut self) {
        for storage in &self.storages {
            storage.heal();
        }
        for host in 0..2 {
            self.compare(host).await;
            self.stores[host].passivate_all();
            self.compare(host).await;
        }
        let report = self.stores[0].verify().await.unwrap();
        assert!(report.is_sound(), "{:?}", report.damages);
        let rows = self.all_rows().await;
        self.stores[1].rebuild().await.unwrap();
        assert_eq!(self.all_rows().await, rows, "rebuilt row for row");
        for (at, auth) in self.auths.clone().into_iter().enumerate() {
            let state = Secret::new(format!("state-{at}"));
            let expected = match auth {
                AuthModel::Absent => Err("CONNECTOR_NOT_FOUND"),
                AuthModel::Pending(_) => Ok(()),
                AuthModel::Consumed => Err("CONNECTOR_ALREADY_CONSUMED"),
            };
            let result = self.wait(self.stores[0].consume_pending_auth(&state)).await;
            assert_eq!(result.map(|_| ()).map_err(|error| error.code()), expected);
        }
    }

    async fn compare(&mut self, host: usize) {
        self.compare_operations(host).await;
        let mut begun = Vec::new();
        for (at, model) in self.documents.iter().enumerate() {
            let trim = self.wait(self.document(host, at).entity_trim()).await.unwrap();
            let stored = trim.map(|trim| (trim.owner, number(&trim.trimmed_fields)));
            assert_eq!(stored, model.trim.map(|(by, value)| (owner(by), value)), "document {at}");
            begun.extend(model.is_begun.then(|| document(at)));
        }
        let listed = self.stores[host].begun_sweeps(None, 100).await.unwrap();
        assert_eq!(listed.into_iter().map(|sweep| sweep.document_id).collect::<Vec<_>>(), begun);
        for at in 0..CONNECTORS {
            let handle = self.connector(host, at);
            let state = self.wait(handle.sync_state()).await.unwrap();
            let candidates = self.wait(handle.candidates(&partition(), None, 100)).await.unwrap();
            let rows = self.stores[host].sync_states(&folder(), None, 100).await.unwrap();
            let row = rows.into_iter().find(|entry| entry.owner == owner(at));
            assert_eq!(row.map(|entry| entry.state), state, "a reader of the table sees the same");
            let model = &mut self.connectors[at];
            assert_eq!(state.is_some(), model.sync.is_some(), "connector {at}");
            if let (Some(state), Some(sync)) = (state, &mut model.sync) {
                let recovery = state.recovery.as_ref().map(number);
                let stored = (state.entity_count, state.version, recovery, state.status);
                assert_eq!(stored, (sync.count, sync.version, sync.recovery, sync.status));
                assert_eq!(state.incarnation, *sync.incarnation.get_or_insert(state.incarnation));
                assert_eq!(state.lease_expires_at, model.lease.map(|(_, _, expires)| expires));
            }
            let stored = candidates.into_iter().map(|found| (found.document_id, found.state));
            let expected = model.candidates.iter().map(|(&of, &state)| (document(of), state));
            assert_eq!(stored.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
    }
}
