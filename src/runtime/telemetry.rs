//! Names of spans and metrics, in one place. No label or field holds a secret, a payload or an
//! identifier of somebody's data besides the stream's name in spans.

use std::time::Duration;

use metrics::{counter, gauge, histogram};

use crate::base::{Error, ErrorClass, StreamKind};

/// Commands by name and outcome (`done`, `refused`, `retryable`, `unknown`).
pub const COMMANDS: &str = "connector_commands_total";
/// Refusals by command and code.
pub const REFUSALS: &str = "connector_refusals_total";
/// Seconds from the call to the decision.
pub const MAILBOX_WAIT: &str = "connector_mailbox_wait_seconds";
/// Appends in a committed batch.
pub const BATCH_SIZE: &str = "connector_batch_appends";
/// Seconds of a batch's commit.
pub const COMMIT_TIME: &str = "connector_commit_seconds";
/// Keys in memory, by kind.
pub const ACTIVE_KEYS: &str = "connector_active_keys";
/// Keys loaded, by kind.
pub const ACTIVATIONS: &str = "connector_activations_total";
/// Keys passivated, by kind.
pub const PASSIVATIONS: &str = "connector_passivations_total";
/// States dropped and loaded anew, by kind.
pub const RELOADS: &str = "connector_reloads_total";
/// Appends that lost to another writer.
pub const CONFLICTS: &str = "connector_conflicts_total";
/// Leases acquired, renewed, released and lost, by outcome.
pub const LEASES: &str = "connector_leases_total";
/// Sweep candidates that the last call for due ones gave.
pub const DUE_CANDIDATES: &str = "connector_due_candidates";
/// Unfinished operations by state, as the last look at the store's health found them.
pub const UNFINISHED_OPERATIONS: &str = "connector_unfinished_operations";
/// Signed records verified, by outcome. Those that are remembered are not among them.
pub const VERIFICATIONS: &str = "connector_verifications_total";
/// Puts of observation copies that were known to stand, and answered without asking their document.
pub const STANDING_PUTS: &str = "connector_standing_puts_total";
/// Actors that panicked, by kind.
pub const PANICS: &str = "connector_actor_panics_total";
/// Commands in flight.
pub const IN_FLIGHT: &str = "connector_commands_in_flight";

pub(super) const fn kind_name(kind: StreamKind) -> &'static str {
    match kind {
        StreamKind::Document => "document",
        StreamKind::Connector => "connector",
        StreamKind::Auth => "auth",
    }
}

const fn outcome<T>(result: &Result<T, Error>) -> &'static str {
    match result {
        Ok(_) => "done",
        Err(error) => match error.class() {
            ErrorClass::Refused => "refused",
            ErrorClass::Retryable => "retryable",
            ErrorClass::Unknown => "unknown",
        },
    }
}

pub(super) fn answered<T>(command: &'static str, result: &Result<T, Error>, span: &tracing::Span) {
    let outcome = outcome(result);
    span.record("outcome", outcome);
    counter!(COMMANDS, "command" => command, "outcome" => outcome).increment(1);
    if let Err(error) = result {
        counter!(REFUSALS, "command" => command, "code" => error.code()).increment(1);
    }
    if command.ends_with("_lease") {
        counter!(LEASES, "command" => command, "outcome" => outcome).increment(1);
    }
}

pub(super) fn verified<T>(result: &Result<T, Error>, span: &tracing::Span) {
    let outcome = outcome(result);
    span.record("outcome", outcome);
    counter!(VERIFICATIONS, "outcome" => outcome).increment(1);
}

/// A put was answered without asking its document.
pub(crate) fn standing_put() {
    counter!(STANDING_PUTS).increment(1);
}

/// Tells a span how long the decision took, and later how long the answer waited for the disk.
pub(super) fn spent(span: &tracing::Span, field: &'static str, time: Duration) {
    span.record(field, u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
}

pub(super) fn waited(span: &tracing::Span, wait: Duration) {
    spent(span, "queue_wait_us", wait);
    histogram!(MAILBOX_WAIT).record(wait.as_secs_f64());
}

pub(super) fn committed(appends: usize, took: Duration) {
    histogram!(BATCH_SIZE).record(f64::from(u32::try_from(appends).unwrap_or(u32::MAX)));
    histogram!(COMMIT_TIME).record(took.as_secs_f64());
}

pub(super) fn count(name: &'static str, kind: StreamKind) {
    counter!(name, "kind" => kind_name(kind)).increment(1);
}

pub(super) fn active(kind: StreamKind, change: f64) {
    gauge!(ACTIVE_KEYS, "kind" => kind_name(kind)).increment(change);
}

/// Sets the gauge of unfinished operations of one state.
pub(crate) fn unfinished_operations(state: &'static str, count: u64) {
    let count = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    gauge!(UNFINISHED_OPERATIONS, "state" => state).set(count);
}

/// Sets a gauge to a count.
pub(crate) fn level(name: &'static str, value: usize) {
    gauge!(name).set(f64::from(u32::try_from(value).unwrap_or(u32::MAX)));
}
