//! How many keys the hosts have in memory, by the store's own metric. It knows no other metric.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use metrics::{Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, SharedString, Unit};

const METRIC: &str = "connector_active_keys";

/// A recorder of the metric. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct ActiveKeys(Arc<Count>);

#[derive(Debug, Default)]
struct Count(AtomicI64);

impl ActiveKeys {
    pub fn count(&self) -> u64 {
        self.0.0.load(Ordering::Relaxed).max(0).unsigned_abs()
    }
}

impl GaugeFn for Count {
    fn increment(&self, value: f64) {
        // A key more or less.
        self.0.fetch_add(if value < 0.0 { -1 } else { 1 }, Ordering::Relaxed);
    }

    fn decrement(&self, value: f64) {
        self.increment(-value);
    }

    fn set(&self, _value: f64) {}
}

impl metrics::Recorder for ActiveKeys {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        if key.name() == METRIC { Gauge::from_arc(Arc::clone(&self.0)) } else { Gauge::noop() }
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
