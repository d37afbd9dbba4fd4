//! The same commands on SQLite and on PostgreSQL: the same answers, the same rows in the same order,
//! the same pages.

use connector_store::{
    Claim, Digest, DocumentId, Hlc, MassDeleteGuard, OperationFilter, OperationId, OwnerDid,
    Rfc3339, SourceId, SweepOutcome, SyncStateInput, SyncStatus, WatchExpectation, WatchReason,
};

use crate::common::*;
use crate::sides::*;
use crate::world::World;

/// Names whose order is another one by bytes than by any language.
const NAMES: [&str; 12] =
    ["a", "B", "b", "Z", "-", "_", "ä", "a\u{308}", "é", "\u{1f600}", "\u{5d0}\u{5d1}", "%_'\"\\"];

async fn sync_states(side: &mut Side) {
    let counts = [0, 1, (1 << 53) + 1, i64::MAX, -1];
    for (name, count) in NAMES.iter().zip(counts.into_iter().cycle()) {
        let input = SyncStateInput {
            checkpoint: Some(json(format!("{{\"{count}\":[\"\\u00e4\\ud83d\\ude00\",1.50e2]}}"))),
            recovery: (count > 0).then(|| json("[0.1, -0.0, 1e5]")),
            last_synced_at: Rfc3339::parse("2025-06-15T12:00:00.5+02:00").unwrap(),
            entity_count: count,
            status: [SyncStatus::Idle, SyncStatus::Syncing][usize::from(count == 0)],
            error: (count == 1).then(|| format!("it says {name}")),
        };
        let handle = connector(&side.store, name);
        let set = handle.set_sync_state(input).await;
        side.tell(("set", name), set);
        let progress = count_up(&handle).await;
        side.tell(("progress", name), progress);
        let state = handle.sync_state().await;
        side.tell(("state", name), state);
    }
    let mut after: Option<OwnerDid> = None;
    loop {
        let page = side.store.sync_states(&folder(), after.as_ref(), 5).await.unwrap();
        side.tell("page", &page);
        let Some(last) = page.last() else { break };
        after = Some(last.owner.clone());
    }
    let deleted = connector(&side.store, "b").delete_sync_state().await;
    side.tell("delete", deleted);
}

async fn leases(side: &mut Side) {
    let handle = connector(&side.store, "o");
    let first = handle.acquire_lease(&holder("a"), SECOND).await;
    side.tell("acquire", &first);
    let held = handle.acquire_lease(&holder("b"), SECOND).await;
    side.tell("held", held);
    side.time.advance(2 * SECOND);
    let taken = handle.acquire_lease(&holder("b"), SECOND).await;
    side.tell("taken", &taken);
    let session = first.unwrap().session();
    let lost = set_trim(&session.document(&document("a")), 1).await;
    side.tell("lost", lost);
    let taken = taken.unwrap();
    let renewed = taken.renew(SECOND * 60).await;
    side.tell("renewed", renewed);
    let fenced = set_trim(&taken.session().document(&document("a")), 1).await;
    side.tell("fenced", fenced);
}

async fn documents(side: &mut Side) {
    for name in NAMES {
        let handle = side.store.document(&document(name));
        let set =
            handle.set_entity_trim(&owner(name), &folder(), json(format!("\"{}\"", "x"))).await;
        side.tell(("trim", name), set);
        let begun = handle.begin_document_sweep().await;
        side.tell(("begin", name), begun);
    }
    let mut after: Option<DocumentId> = None;
    loop {
        let page = side.store.begun_sweeps(after.as_ref(), 5).await.unwrap();
        side.tell("begun", &page);
        let Some(last) = page.last() else { break };
        after = Some(last.document_id.clone());
    }
    for (name, at) in NAMES.iter().zip(0..) {
        let handle = side.store.document(&document(name));
        let ended = match at % 3 {
            0 => handle.sweep_document_rows().await,
            1 => handle.abandon_document_sweep().await,
            _ => handle.clear_entity_trim().await,
        };
        side.tell(("end", name), ended);
        let left = (handle.entity_trim().await, handle.has_document_connector_work().await);
        side.tell(("left", name), left);
    }
    let keys = ["u1", "u2"].map(document_key);
    let unit = side.store.unit_of_work(keys).await.unwrap();
    for name in ["u1", "u2"] {
        set_trim(&unit.document(&document(name)), 7).await.unwrap();
    }
    let committed = unit.commit().await;
    side.tell("unit", committed);
}

async fn enumerations(side: &mut Side) {
    let handle = connector(&side.store, "o");
    for kept in [&["s-a", "s-B", "s-ä"][..], &["s-a"], &[]] {
        let receipt = begin(&handle, "p", "lineage").await;
        side.tell("begun", &receipt);
        let key = receipt_key(&receipt.unwrap());
        let source = |name: &str| SourceId::new(name).unwrap();
        let ids: Vec<_> = kept.iter().map(|name| source(name)).collect();
        let extended = handle.extend_receipt(&key, 0, ids.clone(), "print").await;
        side.tell("extended", extended);
        let again = handle.extend_receipt(&key, 0, vec![source("other")], "print").await;
        side.tell("mismatch", again);
        let gap = handle.extend_receipt(&key, 5, ids, "print").await;
        side.tell("gap", gap);
        let expected = kept.is_empty().then_some(0);
        let completed = handle.complete_receipt(&key, 1, expected, "print").await;
        side.tell("completed", completed);
        let known: Vec<_> = ["a", "B", "ä"]
            .iter()
            .map(|name| (document(name), source(&format!("s-{name}"))))
            .collect();
        let plan = handle.plan_receipt(&key, known.clone(), MassDeleteGuard::default()).await;
        side.tell("plan", plan);
        let result = handle.commit_receipt(&key, known, MassDeleteGuard::default()).await;
        side.tell("committed", result);
        let candidates = handle.due_candidates(10).await.unwrap();
        side.tell("due", &candidates);
        for (candidate, at) in candidates.iter().zip(0..) {
            let outcome = [SweepOutcome::Unknown, SweepOutcome::Absent][at % 2];
            let recorded = handle.record_sweep_outcome(&candidate.key(), outcome).await;
            side.tell("outcome", recorded);
        }
        side.time.advance(SECOND * 3_600);
    }
}

async fn operations(side: &mut Side) {
    let watch = WatchExpectation {
        reason: WatchReason::Write,
        expected_digest: Some(Digest::of(b"value")),
        written_hlc: stamp(),
        deadline: SECOND * 60,
    };
    for (name, at) in NAMES.iter().zip(0..) {
        let id = format!("op-{at}");
        let handle = side.store.document(&document(format!("op-{name}")));
        let claim = handle.claim_operation(&request(&id, at), &holder("a"), SECOND).await;
        side.tell(("claim", name), &claim);
        let Ok(Claim::Attempt(claim)) = claim else { continue };
        let other = side.store.document(&document("another"));
        let mismatch = other.claim_operation(&request(&id, at), &holder("a"), SECOND).await;
        side.tell("known elsewhere", mismatch);
        let sent = claim.mark_send_started().await;
        side.tell("send", sent);
        let source = SourceId::new(format!("s-{name}")).unwrap();
        let ended = match at % 4 {
            0 => claim.finalize_committed(&source, Some("v1"), Some(&watch)).await.map(drop),
            1 => claim.finalize_dead("it is gone").await,
            2 => claim.record_unknown().await,
            _ => claim.release().await,
        };
        side.tell("end", ended);
        let again = handle.claim_operation(&request(&id, at), &holder("b"), SECOND).await;
        side.tell("again", again);
        let shown = [None, Some(Digest::of(b"value"))][at / 4 % 2];
        let stamp = Hlc::parse("001767225700000-00000000-host").unwrap();
        let verified = handle.record_verification(&stamp, shown).await;
        side.tell("verified", verified);
        let winner = handle.read_winner(&owner("o"), &stamp).await;
        side.tell("winner", winner);
    }
    side.time.advance(SECOND * 100);
    let mut due = side.store.due_work();
    while let Some(work) = due.next_ready().await.unwrap() {
        side.tell("due", work);
    }
    let next = side.store.next_due().await;
    side.tell("next due", next);
    let health = side.store.health(SECOND).await;
    side.tell("health", health);
    let mut after: Option<OperationId> = None;
    loop {
        let filter = OperationFilter::default();
        let page = side.store.tracked_operations(&filter, after.as_ref(), 5).await.unwrap();
        side.tell("tracked", &page);
        let Some(last) = page.last() else { break };
        after = Some(last.operation_id.clone());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_commands_have_the_same_answers_rows_and_pages() {
    let Some(world) = World::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut sides = sides(&world, &directory).await;
    for side in &mut sides {
        sync_states(side).await;
        leases(side).await;
        documents(side).await;
        enumerations(side).await;
        operations(side).await;
        side.tell_rows().await;
        side.time.advance(SECOND * 7_200);
        let retention = side.store.apply_retention(SECOND * 3_600).await;
        side.tell("retention", retention);
        assert_sound(&side.store).await;
        let rebuilt = side.store.rebuild().await;
        side.tell("rebuilt", rebuilt);
        side.tell_rows().await;
        side.store.close().await.unwrap();
    }
    assert_same(&sides);
}
