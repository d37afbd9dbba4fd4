//! Given events, when a command comes, then events, rows and an answer, or a refusal.

use uuid::Uuid;

use super::super::{
    PendingAuth, PendingAuthCommand, PendingAuthConsumed, PendingAuthCreated, PendingAuthEvent,
    PendingAuthRecord, PendingAuthReply, auth_key, record_to_row, row_to_record,
};
use crate::base::limits::{MAX_AUTH_SCOPES, MAX_AUTH_STATE_BYTES, MAX_AUTH_TEXT_BYTES};
use crate::base::{Digest, Error, OwnerDid, Result, Secret, StreamKey, Timestamp};
use crate::domain::{
    Aggregate, ContentRef, Context, Decision, Row, RowChange, RowKey, Table, Value,
};
use crate::journal::{
    decode_event, decode_snapshot, decode_value, encode_event, encode_snapshot, encode_value,
};

const NOW: i64 = 5_000;
const EXPIRES: i64 = 9_000;
const STATE: &str = "st4te-n0b0dy-may-see";
const VERIFIER: &str = "ver1fier-n0b0dy-may-see";

fn record() -> PendingAuthRecord {
    PendingAuthRecord {
        state: STATE.into(),
        code_verifier: VERIFIER.into(),
        provider: "example".to_owned(),
        owner: OwnerDid::new("did:key:zOwner").unwrap(),
        owner_wrappable_did: Some("did:key:zWrap".to_owned()),
        controller_wrappable_did: None,
        created_at: Timestamp::from_millis(1_000),
        redirect_url: format!("https://host.example/back?s={STATE}"),
        scopes: vec!["read".to_owned(), "write \"all\"".to_owned()],
        is_incremental: true,
        expires_at: Timestamp::from_millis(EXPIRES),
    }
}

fn key() -> StreamKey {
    auth_key(&STATE.into())
}

fn context() -> Context {
    Context {
        now: Timestamp::from_millis(NOW),
        id: Uuid::nil(),
        jitter: 0.0,
        generation: 1,
        restored_at: None,
        next_version: 1,
        fence: None,
        records_epoch: 0,
    }
}

fn create() -> PendingAuthCommand {
    PendingAuthCommand::CreatePendingAuth(Box::new(record()))
}

fn consume() -> PendingAuthCommand {
    PendingAuthCommand::ConsumePendingAuth { state: STATE.into() }
}

fn expire(cutoff: i64) -> PendingAuthCommand {
    let cutoff = Timestamp::from_millis(cutoff);
    PendingAuthCommand::ExpirePendingAuth { cutoff, state: STATE.into() }
}

fn created() -> PendingAuthEvent {
    let record = record();
    PendingAuthEvent::PendingAuthCreated(PendingAuthCreated {
        provider: record.provider.clone(),
        owner: record.owner.clone(),
        created_at: record.created_at,
        expires_at: record.expires_at,
        row: ContentRef::of_row(&record_to_row(&record)),
    })
}

fn consumed() -> PendingAuthEvent {
    PendingAuthEvent::PendingAuthConsumed(PendingAuthConsumed { at: Timestamp::from_millis(NOW) })
}

const EXPIRED: PendingAuthEvent = PendingAuthEvent::PendingAuthExpired;

fn row_key() -> RowKey {
    RowKey::new(Table::PendingAuth, vec![Value::text(STATE)])
}

fn given(events: &[PendingAuthEvent]) -> PendingAuth {
    let mut state = PendingAuth::default();
    for event in events {
        state.apply(event);
    }
    state
}

fn when(
    events: &[PendingAuthEvent],
    command: &PendingAuthCommand,
) -> Result<Decision<PendingAuth>> {
    given(events).decide(&key(), command, &context())
}

fn taking() -> PendingAuthReply {
    PendingAuthReply::Taking { row: ContentRef::of_row(&record_to_row(&record())) }
}

type Case = (
    &'static str,
    Vec<PendingAuthEvent>,
    PendingAuthCommand,
    (PendingAuthReply, Vec<PendingAuthEvent>, Vec<RowChange>),
);

#[test]
fn what_is_allowed_gives_events_rows_and_an_answer() {
    let put = || vec![RowChange::Put(record_to_row(&record()))];
    let take = || vec![RowChange::Take(row_key())];
    let delete = || vec![RowChange::Delete(row_key())];
    let gone = |removed| PendingAuthReply::Expired { removed };
    let cases: Vec<Case> = vec![
        (
            "a new state is created",
            vec![],
            create(),
            (PendingAuthReply::Created, vec![created()], put()),
        ),
        (
            "an expired state can be created again",
            vec![created(), EXPIRED],
            create(),
            (PendingAuthReply::Created, vec![created()], put()),
        ),
        (
            "a pending record is consumed",
            vec![created()],
            consume(),
            (taking(), vec![consumed()], take()),
        ),
        (
            "a record created again is consumed",
            vec![created(), EXPIRED, created()],
            consume(),
            (taking(), vec![consumed()], take()),
        ),
        (
            "expired before the cutoff: removed",
            vec![created()],
            expire(EXPIRES + 1),
            (gone(true), vec![EXPIRED], delete()),
        ),
        (
            "expires at the cutoff: kept",
            vec![created()],
            expire(EXPIRES),
            (gone(false), vec![], vec![]),
        ),
        (
            "expires after the cutoff: kept",
            vec![created()],
            expire(EXPIRES - 1),
            (gone(false), vec![], vec![]),
        ),
        ("nothing there: fine", vec![], expire(i64::MAX), (gone(false), vec![], vec![])),
        (
            "consumed: fine, and stays consumed",
            vec![created(), consumed()],
            expire(i64::MAX),
            (gone(false), vec![], vec![]),
        ),
        (
            "expired before: fine",
            vec![created(), EXPIRED],
            expire(i64::MAX),
            (gone(false), vec![], vec![]),
        ),
    ];
    for (rule, events, command, (reply, then, rows)) in cases {
        let decision = when(&events, &command).unwrap();
        assert_eq!(decision.reply, reply, "{rule}");
        assert_eq!(decision.events, then, "{rule}");
        assert_eq!(decision.rows, rows, "{rule}");
        assert!(decision.content.is_empty() && !decision.erase, "{rule}");
    }
}

#[test]
fn what_is_not_allowed_is_refused_with_its_code() {
    let cases = [
        ("a pending state again", vec![created()], create(), "CONNECTOR_ALREADY_EXISTS"),
        (
            "a consumed state again",
            vec![created(), consumed()],
            create(),
            "CONNECTOR_ALREADY_EXISTS",
        ),
        ("consume of nothing", vec![], consume(), "CONNECTOR_NOT_FOUND"),
        ("consume of an expired one", vec![created(), EXPIRED], consume(), "CONNECTOR_NOT_FOUND"),
        ("consume twice", vec![created(), consumed()], consume(), "CONNECTOR_ALREADY_CONSUMED"),
    ];
    for (rule, events, command, code) in cases {
        let refused = when(&events, &command).map(|decision| decision.reply);
        assert_eq!(refused.as_ref().map_err(Error::code), Err(code), "{rule}");
    }
}

/// Twenty callers, one after the other in the actor's order: one has it.
#[test]
fn of_many_consumes_exactly_one_succeeds() {
    let mut state = given(&[created()]);
    let mut outcomes = Vec::new();
    for _ in 0..20 {
        let outcome = state.decide(&key(), &consume(), &context()).map(|decision| {
            decision.events.iter().for_each(|event| state.apply(event));
        });
        outcomes.push(outcome.map_err(|error| error.code()));
    }
    assert_eq!(outcomes[0], Ok(()));
    assert!(outcomes[1..].iter().all(|it| *it == Err("CONNECTOR_ALREADY_CONSUMED")));
}

/// The store does not judge expiry: whatever the time is, a record that is there is handed out.
#[test]
fn a_record_is_consumed_before_at_and_after_its_expiry() {
    for now in [EXPIRES - 1, EXPIRES, EXPIRES + 1, i64::MAX] {
        let context = Context { now: Timestamp::from_millis(now), ..context() };
        let decision = given(&[created()]).decide(&key(), &consume(), &context).unwrap();
        assert_eq!(decision.reply, taking(), "at {now}");
    }
}

#[test]
fn a_consume_answers_the_row_that_its_append_removed() {
    let reply = PendingAuth::with_taken(taking(), vec![record_to_row(&record())]);
    assert_eq!(reply.into_consumed().unwrap(), record());
}

#[test]
fn a_row_that_is_missing_or_changed_is_damage() {
    let mut changed = record_to_row(&record());
    changed.values[7] = Value::text("https://elsewhere.example/");
    for taken in [vec![], vec![changed]] {
        let reply = PendingAuth::with_taken(taking(), taken);
        assert_eq!(reply, taking());
        assert_eq!(reply.into_consumed().map_err(|error| error.code()), Err("CONNECTOR_STORAGE"));
    }
    let untouched = PendingAuth::with_taken(PendingAuthReply::Created, vec![]);
    assert_eq!(untouched, PendingAuthReply::Created);
}

#[test]
fn only_answers_without_a_secret_are_recorded() {
    for reply in [PendingAuthReply::Created, PendingAuthReply::Expired { removed: true }] {
        assert_eq!(PendingAuth::recorded(&reply), Some(reply.clone()));
        let bytes = encode_value(&reply).unwrap();
        assert_eq!(decode_value::<PendingAuthReply>(&bytes).unwrap(), reply);
    }
    let consumed = PendingAuthReply::Consumed(Box::new(record()));
    assert!(encode_value(&consumed).is_err(), "the record must have no encoding");
    for reply in [taking(), consumed] {
        assert_eq!(PendingAuth::recorded(&reply), None);
    }
}

#[test]
fn the_rows_are_named_by_no_event_and_no_state() {
    for event in [created(), consumed(), EXPIRED] {
        let mut touched = Vec::new();
        PendingAuth::touched(&key(), &event, &mut touched);
        assert!(touched.is_empty());
    }
    let state = given(&[created()]);
    assert!(state.rows(&key()).is_empty() && state.row(&key(), &row_key()).is_none());
    assert_eq!(state.pending_row(), Some(ContentRef::of_row(&record_to_row(&record()))));
    for events in [vec![], vec![created(), consumed()], vec![created(), EXPIRED]] {
        assert_eq!(given(&events).pending_row(), None);
    }
}

#[test]
fn a_state_of_another_stream_is_refused() {
    let other = auth_key(&"another".into());
    for command in [create(), consume(), expire(0)] {
        let refused = given(&[created()]).decide(&other, &command, &context());
        assert!(matches!(refused, Err(Error::InvalidInput { field: "key", .. })));
    }
}

fn changed(change: impl FnOnce(&mut PendingAuthRecord)) -> PendingAuthRecord {
    let mut record = record();
    change(&mut record);
    record
}

#[test]
fn every_field_is_held_to_its_limit() {
    let text = |bytes: usize| "x".repeat(bytes);
    let cases = [
        ("state", changed(|it| it.state = "".into())),
        ("state", changed(|it| it.state = text(MAX_AUTH_STATE_BYTES + 1).into())),
        ("state", changed(|it| it.state = "a\0b".into())),
        ("code_verifier", changed(|it| it.code_verifier = text(MAX_AUTH_TEXT_BYTES + 1).into())),
        ("code_verifier", changed(|it| it.code_verifier = "a\nb".into())),
        ("provider", changed(|it| it.provider = String::new())),
        ("provider", changed(|it| it.provider = text(513))),
        ("provider", changed(|it| it.provider = "\u{85}".to_owned())),
        ("owner_wrappable_did", changed(|it| it.owner_wrappable_did = Some("x".to_owned()))),
        ("controller_wrappable_did", changed(|it| it.controller_wrappable_did = Some(text(256)))),
        ("redirect_url", changed(|it| it.redirect_url = String::new())),
        ("redirect_url", changed(|it| it.redirect_url = text(MAX_AUTH_TEXT_BYTES + 1))),
        ("redirect_url", changed(|it| it.redirect_url = "https://a\tb".to_owned())),
        ("created_at", changed(|it| it.created_at = Timestamp::from_millis(-1))),
        ("expires_at", changed(|it| it.expires_at = Timestamp::from_millis(i64::MIN))),
        ("scopes", changed(|it| it.scopes = vec!["s".to_owned(); MAX_AUTH_SCOPES + 1])),
        ("scopes", changed(|it| it.scopes = vec![String::new()])),
        ("scopes", changed(|it| it.scopes = vec!["a\u{1f}".to_owned()])),
        ("scopes", changed(|it| it.scopes = vec![text(MAX_AUTH_TEXT_BYTES + 1)])),
        ("scopes", changed(|it| it.scopes = vec![text(MAX_AUTH_TEXT_BYTES); 200])),
    ];
    for (field, record) in cases {
        let key = auth_key(&record.state);
        let command = PendingAuthCommand::CreatePendingAuth(Box::new(record));
        let refused = PendingAuth::default().decide(&key, &command, &context());
        let named = match refused {
            Err(Error::InvalidInput { field, .. }) => field,
            other => panic!("{field}: {other:?}"),
        };
        assert_eq!(named, field);
    }
    let fits = [
        changed(|it| it.code_verifier = "".into()),
        changed(|it| it.state = text(MAX_AUTH_STATE_BYTES).into()),
        changed(|it| it.code_verifier = text(MAX_AUTH_TEXT_BYTES).into()),
        changed(|it| it.scopes = vec![]),
        changed(|it| it.scopes = vec!["s".to_owned(); MAX_AUTH_SCOPES]),
        changed(|it| it.expires_at = Timestamp::from_millis(i64::MAX)),
    ];
    for record in fits {
        assert!(record.check().is_ok());
        assert_eq!(row_to_record(&record_to_row(&record)).unwrap(), record);
    }
}

#[test]
fn the_row_has_the_columns_of_its_table() {
    let row = record_to_row(&record());
    let spec = Table::PendingAuth.spec();
    assert_eq!(row.values.len(), spec.columns.len());
    let value = |name: &str| {
        let at = spec.columns.iter().position(|column| column.name == name).unwrap();
        row.values[at].clone()
    };
    assert_eq!(value("state"), Value::text(STATE));
    assert_eq!(value("code_verifier"), Value::text(VERIFIER));
    assert_eq!(value("scopes"), Value::text(r#"["read","write \"all\""]"#));
    assert_eq!(value("is_incremental"), Value::Int(1));
    assert_eq!(value("controller_wrappable_did"), Value::Null);
    assert_eq!(value("expires_at"), Value::Int(EXPIRES));
    assert_eq!(row.key(), row_key());
}

#[test]
fn a_row_that_is_no_record_is_damage_that_names_the_column() {
    let wrong = [
        (0, Value::Null),
        (1, Value::Int(1)),
        (3, Value::text(STATE)),
        (4, Value::Int(1)),
        (6, Value::text(STATE)),
        (8, Value::text(format!("[{STATE}"))),
        (8, Value::text("{}")),
        (9, Value::Int(2)),
        (10, Value::Null),
    ];
    for (at, value) in wrong {
        let mut row = record_to_row(&record());
        row.values[at] = value;
        let error = Error::from(row_to_record(&row).unwrap_err()).to_string();
        assert!(error.contains(Table::PendingAuth.spec().columns[at].name), "{error}");
        assert!(!error.contains(STATE) && !error.contains(VERIFIER), "{error}");
    }
    assert!(row_to_record(&Row::new(Table::PendingAuth, vec![])).is_err());
    assert!(row_to_record(&Row::new(Table::Lease, vec![Value::Null; 11])).is_err());
}

#[test]
fn no_secret_is_shown() {
    let row = record_to_row(&record());
    let shown = [
        format!("{:?}", record()),
        format!("{:#?}", record()),
        format!("{:?} {:?} {:?}", create(), consume(), expire(1)),
        format!("{:#?}", PendingAuthReply::Consumed(Box::new(record()))),
        format!("{:?} {:?} {:?}", created(), consumed(), EXPIRED),
        format!("{:?}", given(&[created()])),
        format!("{row:?} {:?} {:?}", row.key(), RowChange::Put(row.clone())),
        format!("{:?}", when(&[], &create())),
        format!("{:?}", when(&[created()], &consume())),
        format!("{:?} {}", key(), key()),
        format!("{:?} {:?}", when(&[], &consume()), when(&[created()], &create())),
        format!("{:?}", Secret::new(STATE)),
    ];
    for text in shown {
        assert!(!text.contains(STATE), "{text}");
        assert!(!text.contains(VERIFIER), "{text}");
    }
}

#[test]
fn no_secret_is_encoded() -> Result<()> {
    let state = given(&[created()]);
    let mut encoded = vec![encode_snapshot(&state)?];
    assert_eq!(decode_snapshot::<PendingAuth>(1, &encoded[0])?, state);
    for event in [created(), consumed(), EXPIRED] {
        use crate::domain::StoredEvent as _;
        let bytes = encode_event(&event)?;
        let read = decode_event::<PendingAuthEvent>(event.event_type(), event.schema(), &bytes)?;
        assert_eq!(read, event);
        encoded.push(bytes);
    }
    for command in [create(), consume(), expire(1)] {
        encoded.push(encode_value(&command)?);
    }
    for bytes in encoded {
        for secret in [STATE, VERIFIER] {
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()));
        }
    }
    Ok(())
}

#[test]
fn commands_that_differ_in_a_secret_alone_are_told_apart() -> Result<()> {
    let create = |record| PendingAuthCommand::CreatePendingAuth(Box::new(record));
    let consume = |state: &str| PendingAuthCommand::ConsumePendingAuth { state: state.into() };
    let commands = [
        create(record()),
        create(changed(|it| it.code_verifier = "other".into())),
        create(changed(|it| it.redirect_url = "other".to_owned())),
        consume("a"),
        consume("b"),
    ];
    let mut digests = std::collections::BTreeSet::new();
    for command in &commands {
        digests.insert(Digest::of(&encode_value(command)?));
    }
    assert_eq!(digests.len(), commands.len());
    Ok(())
}

#[test]
fn forgetting_removes_a_record_that_never_expires_and_its_history() {
    let record = PendingAuthRecord { expires_at: Timestamp::from_millis(i64::MAX), ..record() };
    let create = PendingAuthCommand::CreatePendingAuth(Box::new(record));
    let created = PendingAuth::default().decide(&key(), &create, &context()).unwrap();
    let mut state = PendingAuth::default();
    created.events.iter().for_each(|event| state.apply(event));
    let forget = PendingAuthCommand::ForgetPendingAuth { state: STATE.into() };
    let decision = state.decide(&key(), &forget, &context()).unwrap();
    assert_eq!(decision.events, [PendingAuthEvent::PendingAuthExpired]);
    assert_eq!(decision.rows, [RowChange::Delete(row_key())]);
    assert!(decision.trim && !decision.erase);
    decision.events.iter().for_each(|event| state.apply(event));
    for state in [state, PendingAuth::default()] {
        let again = state.decide(&key(), &forget, &context()).unwrap();
        assert!(again.events.is_empty() && again.rows.is_empty() && !again.trim);
    }
}
