//! An operation's id is known to all documents, lives and dies with its row, and a command's id
//! gets its first answer.

use connector_store::{Claim, Digest, OperationFilter, OperationKind, OperationRequest};
use uuid::Uuid;

use crate::common::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_racing_claims_of_one_id_on_two_documents_one_wins() {
    let (one, other, _clock, _journal) = two_stores().await;
    for round in 0..20 {
        let racers = (0..4).map(|index| {
            let store = if index % 2 == 0 { one.clone() } else { other.clone() };
            let on = format!("{round}-doc-{}", index / 2);
            tokio::spawn(async move {
                let request = request(format!("op-{round}"));
                (on.clone(), claim(&store, &on, &request, "same").await)
            })
        });
        let mut answers = Vec::new();
        for racer in racers.collect::<Vec<_>>() {
            answers.push(bounded(racer).await.unwrap());
        }
        let record = one.operation(&operation(format!("op-{round}"))).await.unwrap().unwrap();
        for (on, answer) in answers {
            let is_winner = on == record.document_id.as_str();
            let expected = if is_winner { "ok" } else { "CONNECTOR_OPERATION_MISMATCH" };
            assert_eq!(code(answer), expected, "{on}");
            let kept = OperationFilter { document: Some(document(&on)), ..Default::default() };
            let kept = one.tracked_operations(&kept, None, 10).await.unwrap();
            assert_eq!(kept.len(), usize::from(is_winner), "a loser leaves nothing");
        }
    }
    assert_sound(&one).await;
}

#[tokio::test]
async fn another_fact_under_a_known_id_is_a_mismatch_that_changes_nothing() {
    let (store, _clock, _journal) = store().await;
    committed(&store, "doc", "done").await;
    attempt(&store, "doc", "open", "a").await;
    for id in ["done", "open"] {
        let before = store.operation(&operation(id)).await.unwrap();
        let same = request(id);
        let others = [
            OperationRequest { owner: "did:web:x".parse_owner(), ..same.clone() },
            OperationRequest { op: OperationKind::Delete, ..same.clone() },
            OperationRequest { version: stamp(2), ..same.clone() },
            OperationRequest { request_digest: Digest::of(b"x"), ..same.clone() },
        ];
        for other in others {
            let answer = claim(&store, "doc", &other, "a").await;
            assert_eq!(code(answer), "CONNECTOR_OPERATION_MISMATCH", "{other:?}");
        }
        let elsewhere = claim(&store, "elsewhere", &same, "a").await;
        assert_eq!(code(elsewhere), "CONNECTOR_OPERATION_MISMATCH");
        assert_eq!(store.operation(&operation(id)).await.unwrap(), before);
    }
}

trait ParseOwner {
    fn parse_owner(&self) -> connector_store::OwnerDid;
}

impl ParseOwner for str {
    fn parse_owner(&self) -> connector_store::OwnerDid {
        connector_store::OwnerDid::new(self).unwrap()
    }
}

#[tokio::test]
async fn an_id_is_free_again_after_the_sweep_of_its_document() {
    let (one, other, _clock, _journal) = two_stores().await;
    committed(&one, "doc", "op").await;
    let elsewhere = claim(&other, "elsewhere", &request("op"), "a").await;
    assert_eq!(code(elsewhere), "CONNECTOR_OPERATION_MISMATCH");
    one.document(&document("doc")).sweep_document_rows().await.unwrap();
    assert_eq!(one.operation(&operation("op")).await.unwrap(), None);
    attempt(&other, "elsewhere", "op", "a").await;
    let first = claim(&one, "doc", &request("op"), "a").await;
    assert_eq!(code(first), "CONNECTOR_OPERATION_MISMATCH");
    assert_sound(&one).await;
}

#[tokio::test]
async fn an_operation_is_found_by_its_id_alone_on_an_active_and_a_cold_document() {
    let (store, clock, journal) = store().await;
    let claimed = attempt(&store, "doc", "op", "a").await;
    let active = store.operation(&operation("op")).await.unwrap().unwrap();
    assert_eq!(&active, claimed.operation());
    store.passivate_all();
    assert_eq!(store.operation(&operation("op")).await.unwrap().as_ref(), Some(&active));
    store.close().await.unwrap();
    let again = builder(&clock, 2).memory(&journal).open().await.unwrap();
    assert_eq!(again.operation(&operation("op")).await.unwrap(), Some(active));
    assert_eq!(again.operation(&operation("unknown")).await.unwrap(), None);
}

#[tokio::test]
async fn a_claim_repeated_with_its_command_id_gets_the_first_answer() {
    let (store, clock, journal) = store().await;
    let id = Uuid::from_u128(7);
    let handle = store.document(&document("doc")).with_command_id(id);
    let first = handle.claim_operation(&request("op"), &holder("a"), TTL).await.unwrap();
    let Claim::Attempt(first) = first else { panic!("{first:?}") };
    let again = handle.claim_operation(&request("op"), &holder("a"), TTL).await.unwrap();
    let Claim::Attempt(again) = again else { panic!("{again:?}") };
    assert_eq!((again.token(), again.operation()), (first.token(), first.operation()));
    let other = handle.claim_operation(&request("op"), &holder("b"), TTL).await;
    assert_eq!(code(other), "CONNECTOR_COMMAND_MISMATCH");
    // The id is the claim's alone: its holder goes on without it.
    again.mark_send_started().await.unwrap();
    store.close().await.unwrap();
    // After a restart the first answer still says "attempt", and its token gives no second permit.
    let store = builder(&clock, 2).memory(&journal).open().await.unwrap();
    let handle = store.document(&document("doc")).with_command_id(id);
    let answer = handle.claim_operation(&request("op"), &holder("a"), TTL).await.unwrap();
    let Claim::Attempt(replayed) = answer else { panic!("{answer:?}") };
    assert_eq!(code(replayed.mark_send_started().await), "CONNECTOR_RECONCILE_FIRST");
    reconcile(&store, "doc", "op", "a").await;
    assert_eq!(code(replayed.mark_send_started().await), "CONNECTOR_LEASE_LOST");
}
