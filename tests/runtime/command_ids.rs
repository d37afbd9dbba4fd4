//! A caller's own command id: the first answer again, and nothing done twice.

use connector_store::testing::{Fault, Gate};
use connector_store::{
    Claim, Digest, Error, Hlc, OperationId, OperationKind, OperationRequest, Secret,
};
use uuid::Uuid;

use crate::common::*;
use crate::sweeps::{begin, receipt_key};

#[tokio::test]
async fn a_repeated_command_gets_its_first_answer_also_after_a_restart() {
    let host = host().await;
    let id = Uuid::now_v7();
    let first = connector(&host.store, "o").with_command_id(id);
    let first = first.acquire_lease(&holder("a"), SECOND).await.unwrap();
    let later = connector(&host.store, "o").acquire_lease(&holder("a"), SECOND).await.unwrap();
    assert!(later.token() > first.token());
    for _ in 0..2 {
        let repeat = connector(&host.store, "o").with_command_id(id);
        let answer = repeat.acquire_lease(&holder("a"), SECOND).await.unwrap();
        assert_eq!(answer.token(), first.token());
        host.store.passivate_all();
    }
    host.store.close().await.unwrap();
    drop(host.store);
    let reopened = host_on(&host.journal, 2, |builder| builder).await;
    let repeat = connector(&reopened.store, "o").with_command_id(id);
    assert_eq!(repeat.acquire_lease(&holder("a"), SECOND).await.unwrap().token(), first.token());
    assert_sound(&reopened.store).await;
}

#[tokio::test]
async fn another_command_with_a_known_id_is_a_mismatch() {
    let host = host().await;
    let id = Uuid::now_v7();
    let a = host.store.document(&document("a")).with_command_id(id);
    set_trim(&a, 1).await.unwrap();
    let mismatch = "CONNECTOR_COMMAND_MISMATCH";
    assert_eq!(code(set_trim(&a, 2).await), mismatch, "other data");
    assert_eq!(code(a.clear_entity_trim().await), mismatch, "another command");
    let b = host.store.document(&document("b")).with_command_id(id);
    assert_eq!(code(set_trim(&b, 1).await), mismatch, "another key");
    set_trim(&a, 1).await.unwrap();
    assert_eq!(host.store.stats().appends, 1);
}

#[tokio::test]
async fn an_id_that_is_under_way_is_in_flight() {
    let host = host().await;
    let id = Uuid::now_v7();
    let gate = Gate::new();
    host.faults.next_append(Fault::StallBefore(gate.clone()));
    let a = host.store.document(&document("a")).with_command_id(id);
    let writer = a.clone();
    let write = tokio::spawn(async move { set_trim(&writer, 1).await });
    bounded(gate.reached()).await;
    let error = set_trim(&a, 1).await.unwrap_err();
    assert!(matches!(error, Error::InFlight { command_id } if command_id == id));
    // Its caller goes away, the command does not.
    write.abort();
    let _ = write.await;
    assert_eq!(code(set_trim(&a, 1).await), "CONNECTOR_IN_FLIGHT");
    gate.open();
    assert_eq!(trim(&host.store.document(&document("a"))).await, Some(1));
    bounded(async { while set_trim(&a, 1).await.is_err() {} }).await;
    assert_eq!(host.store.stats().appends, 1);
}

#[tokio::test]
async fn an_answered_id_is_no_longer_in_flight() {
    let host = host().await;
    for _ in 0..500 {
        let a = host.store.document(&document("a")).with_command_id(Uuid::now_v7());
        set_trim(&a, 1).await.unwrap();
        set_trim(&a, 1).await.unwrap();
    }
}

#[tokio::test]
async fn a_refusal_is_decided_again() {
    let host = host().await;
    let handle = connector(&host.store, "o");
    let lease = handle.acquire_lease(&holder("a"), 10 * SECOND).await.unwrap();
    let id = Uuid::now_v7();
    let wanted = handle.with_command_id(id);
    assert_eq!(code(wanted.acquire_lease(&holder("b"), SECOND).await), "CONNECTOR_LEASE_HELD");
    lease.release().await.unwrap();
    let taken = wanted.acquire_lease(&holder("b"), SECOND).await.unwrap();
    let again = wanted.acquire_lease(&holder("b"), SECOND).await.unwrap();
    assert_eq!(taken.token(), again.token());
}

#[tokio::test]
async fn a_command_that_changes_nothing_is_recorded_too() {
    let host = host().await;
    let id = Uuid::now_v7();
    let a = host.store.document(&document("a"));
    a.with_command_id(id).clear_entity_trim().await.unwrap();
    set_trim(&a, 1).await.unwrap();
    a.with_command_id(id).clear_entity_trim().await.unwrap();
    assert_eq!(trim(&a).await, Some(1), "the first answer, and nothing done");
}

#[tokio::test]
async fn an_id_is_known_to_every_host() {
    let (a, b, _) = two_hosts().await;
    let id = Uuid::now_v7();
    let here = connector(&a.store, "o").with_command_id(id);
    let there = connector(&b.store, "o").with_command_id(id);
    let first = here.acquire_lease(&holder("a"), SECOND).await.unwrap();
    let second = there.acquire_lease(&holder("a"), SECOND).await.unwrap();
    assert_eq!(first.token(), second.token());
}

#[tokio::test]
async fn two_hosts_with_one_id_at_once_do_it_once() {
    let (a, b, _) = two_hosts().await;
    let id = Uuid::now_v7();
    let gate = Gate::new();
    a.faults.next_append(Fault::StallBefore(gate.clone()));
    let here = connector(&a.store, "o").with_command_id(id);
    let waiting = tokio::spawn(async move { here.acquire_lease(&holder("a"), SECOND).await });
    bounded(gate.reached()).await;
    let there = connector(&b.store, "o").with_command_id(id);
    let first = there.acquire_lease(&holder("a"), SECOND).await.unwrap();
    gate.open();
    let second = bounded(waiting).await.unwrap().unwrap();
    assert_eq!(first.token(), second.token());
    let state = connector(&a.store, "o").with_command_id(Uuid::now_v7());
    assert_eq!(state.sync_state().await.unwrap(), None);
}

#[tokio::test]
async fn a_call_of_several_steps_bears_its_id_once() {
    let host = host().await;
    let handle = connector(&host.store, "o");
    let with_id = || handle.with_command_id(Uuid::now_v7());
    let (begin_id, complete_id) = (with_id(), with_id());
    let first = begin(&begin_id, "p", "lineage").await.unwrap();
    assert_eq!(begin(&begin_id, "p", "lineage").await.unwrap().sequence, first.sequence);
    let key = receipt_key(&first);
    with_id().extend_receipt(&key, 0, Vec::new(), "print").await.unwrap();
    for _ in 0..2 {
        complete_id.complete_receipt(&key, 1, Some(0), "print").await.unwrap();
    }
    let commit_id = with_id();
    for _ in 0..2 {
        let result = commit_id.commit_receipt(&key, Vec::new(), Default::default()).await.unwrap();
        assert_eq!(result.known, 0);
    }
    // A repeat compares with the candidates that the first commit left, and is the same command.
    crate::sweeps::lose(&handle, "lost").await;
    let kept = connector_store::SourceId::new("lost").unwrap();
    let key = receipt_key(&begin(&handle, "p", "lineage").await.unwrap());
    handle.extend_receipt(&key, 0, vec![kept.clone()], "print").await.unwrap();
    handle.complete_receipt(&key, 1, None, "print").await.unwrap();
    for _ in 0..2 {
        let known = vec![(document("lost"), kept.clone())];
        let result = commit_id.commit_receipt(&key, known, Default::default()).await.unwrap();
        assert_eq!((result.missing, result.withdrawn), (0, 1));
    }
    let progress_id = with_id();
    let progress = progress_id.update_sync_progress_with(None, |state| {
        let update = counted(state.as_ref());
        async move { update }
    });
    progress.await.unwrap();
}

#[tokio::test]
async fn ids_are_forgotten_after_a_day() {
    let host = host().await;
    let id = Uuid::now_v7();
    let a = host.store.document(&document("a"));
    set_trim(&a.with_command_id(id), 1).await.unwrap();
    host.clock.advance(SECOND * (24 * 3_600));
    assert_eq!(host.store.apply_retention(SECOND).await.unwrap().commands, 0);
    host.clock.advance(SECOND);
    assert_eq!(host.store.apply_retention(SECOND).await.unwrap().commands, 1);
    set_trim(&a.with_command_id(id), 2).await.unwrap();
}

#[tokio::test]
async fn no_record_of_a_command_holds_a_secret() {
    let host = host().await;
    host.store.create_pending_auth(pending_auth("SECRET-STATE", 1)).await.unwrap();
    host.store.consume_pending_auth(&Secret::new("SECRET-STATE")).await.unwrap();
    let stored = host.journal.tamper(|tables| format!("{:?}", (&tables.journal, &tables.commands)));
    for secret in ["SECRET-STATE", "verifier-of"] {
        let bytes = format!("{:?}", secret.as_bytes());
        assert!(!stored.contains(secret) && !stored.contains(bytes.trim_matches(['[', ']'])));
    }
}

pub fn operation() -> OperationRequest {
    OperationRequest {
        operation_id: OperationId::new("op").unwrap(),
        owner: owner("o"),
        connector: folder(),
        op: OperationKind::Update,
        version: Hlc::parse("001767225600000-00000000-host").unwrap(),
        request_digest: Digest::of(b"request"),
        visibility_delay: SECOND,
    }
}

#[tokio::test]
async fn an_id_is_for_the_claim_and_not_for_what_its_holder_does() {
    let host = host().await;
    let id = Uuid::now_v7();
    let document = host.store.document(&document("d"));
    let claim = async |id| {
        document.with_command_id(id).claim_operation(&operation(), &holder("a"), SECOND).await
    };
    let Claim::Attempt(first) = claim(id).await.unwrap() else { panic!("nothing was sent") };
    first.mark_send_started().await.unwrap();
    // The first answer again, and still only one permission to send.
    let Claim::Attempt(repeat) = claim(id).await.unwrap() else { panic!("the first answer") };
    assert_eq!(repeat.token(), first.token());
    assert_eq!(code(repeat.mark_send_started().await), "CONNECTOR_RECONCILE_FIRST");
    // The longest record is longer than an answer that is kept.
    first.finalize_dead(&"x".repeat(4_096)).await.unwrap();
    let other = Uuid::now_v7();
    for _ in 0..2 {
        assert!(matches!(claim(other).await, Ok(Claim::Finished(_))));
    }
    assert_sound(&host.store).await;
}
