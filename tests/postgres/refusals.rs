//! What SQLite and PostgreSQL could hold differently: odd text, large numbers, long ids. Both give it
//! back byte for byte, or both refuse it alike.

use connector_store::base::limits::{
    MAX_AUTH_STATE_BYTES, MAX_CONNECTOR_BYTES, MAX_NAME_BYTES, MAX_OPERATION_ID_BYTES,
    MAX_OWNER_BYTES, MAX_SOURCE_ID_BYTES, MAX_SOURCE_VERSION_BYTES,
};
use connector_store::{
    Claim, ConnectorName, Digest, DocumentId, Holder, Json, MassDeleteGuard, OwnerDid, Secret,
    SourceId, WatchExpectation, WatchReason,
};

use crate::common::*;
use crate::sides::*;
use crate::world::World;

/// Text that one of the databases could not hold, or would change.
const ODD_TEXTS: [&str; 9] = [
    "\u{0}",
    "a\u{0}b",
    "\u{feff}a",
    "\u{202e}rtl",
    "\u{1f469}\u{200d}\u{1f680}",
    "a\u{301}",
    "\u{fffd}",
    "\u{10ffff}",
    "'; DROP TABLE connector_journal; --",
];

/// JSON that a parser, a column or a number could lose something of.
const ODD_JSON: [&str; 16] = [
    r#""\u0000""#,
    r#""\ud800""#,
    r#""\udc00\ud800""#,
    r#""\ud83d\ude00""#,
    r#"{"a":1,"a":2}"#,
    "1e400",
    "-0.0",
    "0.1",
    "18446744073709551615",
    "9007199254740993",
    "1.0",
    "[1,]",
    "NaN",
    "\"\u{0}\"",
    "{\"\u{1f600}\":\"\u{202e}\"}",
    " [ 1 , 2 ] ",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_text_and_numbers_come_back_byte_for_byte_or_are_refused_alike() {
    let Some(world) = World::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut sides = sides(&world, &directory).await;
    for side in &mut sides {
        for text in ODD_TEXTS {
            let ids = (DocumentId::new(text), Holder::new(text), SourceId::new(text));
            side.tell(text, &ids);
            if let Ok(id) = ids.0 {
                let handle = side.store.document(&id);
                set_trim(&handle, 1).await.unwrap();
                assert_eq!(trim(&handle).await, Some(1), "{text:?}");
            }
            let mut record = pending_auth(&format!("state of {text}"), 5);
            record.redirect_url = text.to_owned();
            record.scopes = vec![text.to_owned()];
            let created = side.store.create_pending_auth(record.clone()).await;
            side.tell(text, &created);
            if created.is_ok() {
                let back = side.store.consume_pending_auth(&record.state).await;
                assert_eq!(back.unwrap(), record);
            }
        }
        for text in ODD_JSON {
            let parsed = Json::parse("json", text);
            side.tell(text, &parsed);
            if let Ok(value) = parsed {
                let handle = side.store.document(&document("json"));
                handle.set_entity_trim(&owner("o"), &folder(), value.clone()).await.unwrap();
                side.store.passivate_all();
                let back = handle.entity_trim().await.unwrap().unwrap();
                assert_eq!(back.trimmed_fields.as_str(), value.as_str());
            }
        }
        for count in [i64::MIN, -1, 0, (1 << 53) + 1, i64::MAX] {
            let handle = connector(&side.store, "numbers");
            let update = handle.update_sync_progress(move |standing| {
                let mut update = counted(standing);
                update.entity_count = count;
                update
            });
            let updated = update.await;
            side.tell(count, updated);
            let state = handle.sync_state().await;
            side.tell(count, state);
        }
        side.tell_rows().await;
        assert_sound(&side.store).await;
    }
    assert_same(&sides);
    assert_eq!(world.errors(""), [""; 0], "nothing is refused by the server itself");
}

/// Of a text that does not compress, at its limit and one beyond it; and at lengths that no index
/// of PostgreSQL would take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_are_as_long_as_the_limits_say_and_longer_ones_are_refused_alike() {
    let Some(world) = World::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut sides = sides(&world, &directory).await;
    for side in &mut sides {
        let long = |bytes: usize| -> String {
            let digests =
                (0..bytes / 32 + 1).map(|at| format!("{:?}", Digest::of(&at.to_be_bytes())));
            digests.collect::<String>().replace(|char: char| !char.is_ascii_alphanumeric(), "")
                [..bytes]
                .to_owned()
        };
        for bytes in [MAX_NAME_BYTES, MAX_NAME_BYTES + 1, 3_000, 10_000, 1_000_000] {
            side.tell(bytes, DocumentId::new(long(bytes)).map(|_| "a document"));
            side.tell(bytes, Holder::new(long(bytes)).map(|_| "a holder"));
        }
        side.tell("owner", OwnerDid::new(long(MAX_OWNER_BYTES + 1)));
        side.tell("connector", ConnectorName::new(long(MAX_CONNECTOR_BYTES + 1)));
        side.tell("source", SourceId::new(long(MAX_SOURCE_ID_BYTES + 1)));
        // Every key at its longest, in every table that it is a key of.
        let owner = OwnerDid::new(format!("did:web:{}", long(MAX_OWNER_BYTES - 8))).unwrap();
        let name = ConnectorName::new(long(MAX_CONNECTOR_BYTES)).unwrap();
        let handle = side.store.connector(&owner, &name);
        count_up(&handle).await.unwrap();
        handle.acquire_lease(&Holder::new(long(MAX_NAME_BYTES)).unwrap(), SECOND).await.unwrap();
        let receipt = begin(&handle, &long(MAX_NAME_BYTES), &long(MAX_NAME_BYTES)).await.unwrap();
        let key = receipt_key(&receipt);
        handle.extend_receipt(&key, 0, Vec::new(), "print").await.unwrap();
        handle.complete_receipt(&key, 1, Some(0), "print").await.unwrap();
        let lost = DocumentId::new(long(MAX_NAME_BYTES)).unwrap();
        let known = vec![(lost.clone(), SourceId::new(long(MAX_SOURCE_ID_BYTES)).unwrap())];
        handle.commit_receipt(&key, known, MassDeleteGuard::default()).await.unwrap();
        side.store.document(&lost).set_entity_trim(&owner, &name, json(1)).await.unwrap();
        let mut operation = request(&long(MAX_OPERATION_ID_BYTES), 1);
        (operation.owner, operation.connector) = (owner, name);
        let document = side.store.document(&lost);
        let claim = document.claim_operation(&operation, &holder("a"), SECOND).await.unwrap();
        let Claim::Attempt(claim) = claim else { panic!("{claim:?}") };
        let watch = WatchExpectation {
            reason: WatchReason::Write,
            expected_digest: None,
            written_hlc: operation.version,
            deadline: SECOND,
        };
        let source = SourceId::new(long(MAX_SOURCE_ID_BYTES)).unwrap();
        let version = long(MAX_SOURCE_VERSION_BYTES);
        claim.finalize_committed(&source, Some(&version), Some(&watch)).await.unwrap();
        for bytes in [MAX_AUTH_STATE_BYTES, MAX_AUTH_STATE_BYTES + 1] {
            let mut record = pending_auth("", 5);
            record.state = Secret::new(long(bytes));
            (record.owner, record.provider) = (operation.owner.clone(), long(MAX_NAME_BYTES));
            let created = side.store.create_pending_auth(record).await;
            side.tell(("state", bytes), created);
        }
        let too_large = side
            .store
            .document(&lost)
            .set_entity_trim(
                &crate::common::owner("o"),
                &folder(),
                json(format!("\"{}\"", long(1 << 20))),
            )
            .await;
        side.tell("too large", too_large);
        side.tell_rows().await;
        assert_sound(&side.store).await;
    }
    assert_same(&sides);
    assert_eq!(world.errors(""), [""; 0], "nothing is refused by the server itself");
}
