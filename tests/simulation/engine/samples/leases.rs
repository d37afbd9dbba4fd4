//! Who held which lease when.

use std::collections::BTreeMap;
use std::time::Duration;

use connector_store::domain::Lease;
use connector_store::domain::connector::ConnectorEvent;
use connector_store::domain::document::DocumentEvent;
use connector_store::{Event, Holder, StreamKey, Timestamp};

use crate::engine::audit::Written;

/// A lease from the time when it was acquired until it was given back, taken or had expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its place in [`Leases::names`].
    pub lease: usize,
    pub holder: Holder,
    pub from: Duration,
    pub to: Duration,
    /// Another had held it before, and not given it back.
    pub is_takeover: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Leases {
    /// What was leased, in the order in which it was first.
    pub names: Vec<String>,
    pub spans: Vec<Span>,
    numbers: BTreeMap<(StreamKey, String), usize>,
    /// The span of each lease that was not given back.
    standing: BTreeMap<StreamKey, BTreeMap<String, usize>>,
}

impl Leases {
    pub fn takeovers(&self) -> usize {
        self.spans.iter().filter(|span| span.is_takeover).count()
    }

    /// An event was written at this time.
    pub(super) fn take(&mut self, at: Duration, written: &Written) {
        let (key, now) = (&written.key, written.at);
        match &written.event {
            Event::Connector(event) => match event {
                ConnectorEvent::LeaseAcquired(lease) => self.acquired(key, "", at, now, lease),
                ConnectorEvent::LeaseRenewed(renewed) => {
                    self.renewed(key, "", at, now, renewed.expires_at);
                }
                ConnectorEvent::LeaseReleased | ConnectorEvent::ConnectionForgetBegun(_) => {
                    self.released(key, "", at);
                }
                _ => {}
            },
            Event::Document(event) => self.take_operation(at, now, key, event),
            _ => {}
        }
    }

    fn take_operation(
        &mut self,
        at: Duration,
        now: Timestamp,
        key: &StreamKey,
        event: &DocumentEvent,
    ) {
        match event {
            DocumentEvent::OperationCreated(event) => {
                self.acquired(key, event.operation_id.as_str(), at, now, &event.lease);
            }
            DocumentEvent::OperationClaimed(event) => {
                self.acquired(key, event.operation_id.as_str(), at, now, &event.lease);
            }
            DocumentEvent::OperationLeaseChanged(event) => match &event.lease {
                Some(lease) => {
                    self.renewed(key, event.operation_id.as_str(), at, now, lease.expires_at);
                }
                None => self.released(key, event.operation_id.as_str(), at),
            },
            DocumentEvent::OperationDeferred(event) => {
                self.released(key, event.operation_id.as_str(), at);
            }
            DocumentEvent::OperationFinalized(event) => {
                self.released(key, event.operation_id.as_str(), at);
            }
            DocumentEvent::Swept => {
                for span in self.standing.remove(key).unwrap_or_default().into_values() {
                    self.end(span, at);
                }
            }
            _ => {}
        }
    }

    fn acquired(&mut self, key: &StreamKey, of: &str, at: Duration, now: Timestamp, lease: &Lease) {
        let next = self.spans.len();
        let before = self.standing.entry(key.clone()).or_default().insert(of.to_owned(), next);
        if let Some(before) = before {
            self.end(before, at);
        }
        let is_takeover = before.is_some_and(|before| self.spans[before].holder != lease.holder);
        let number = self.number(key, of);
        let (holder, to) = (lease.holder.clone(), until(at, now, lease.expires_at));
        self.spans.push(Span { lease: number, holder, from: at, to, is_takeover });
    }

    fn renewed(&mut self, key: &StreamKey, of: &str, at: Duration, now: Timestamp, to: Timestamp) {
        if let Some(span) = self.standing.get(key).and_then(|leases| leases.get(of)) {
            self.spans[*span].to = until(at, now, to);
        }
    }

    fn released(&mut self, key: &StreamKey, of: &str, at: Duration) {
        let Some(leases) = self.standing.get_mut(key) else { return };
        let span = leases.remove(of);
        if leases.is_empty() {
            self.standing.remove(key);
        }
        if let Some(span) = span {
            self.end(span, at);
        }
    }

    fn end(&mut self, span: usize, at: Duration) {
        let span = &mut self.spans[span];
        span.to = span.to.min(at);
    }

    fn number(&mut self, key: &StreamKey, of: &str) -> usize {
        let next = self.names.len();
        let number = *self.numbers.entry((key.clone(), of.to_owned())).or_insert(next);
        if number == next {
            self.names.push(match key {
                StreamKey::Connector(owner, connector) => format!("{connector} of {owner}"),
                StreamKey::Document(document) => format!("{of} on {document}"),
                _ => of.to_owned(),
            });
        }
        number
    }
}

/// The time of the run at which it is that late.
fn until(at: Duration, now: Timestamp, then: Timestamp) -> Duration {
    let millis = then.as_millis() - now.as_millis();
    at + Duration::from_millis(millis.max(0).unsigned_abs())
}
