//! The axis that all plots share, and plots of stacked bars.

use std::fmt::Write as _;
use std::time::Duration;

use super::{escape, span};
use crate::engine::samples::Samples;
use crate::engine::samples::timeline::Bin;
use crate::summary::clock;

/// Labels below a plot.
const TICKS: u32 = 4;

/// Simulated time, in bins.
pub struct Axis {
    pub bins: Vec<Bin>,
    pub width: Duration,
    /// From then on nothing went wrong any more.
    pub healed: Option<Duration>,
}

impl Axis {
    pub fn of(samples: &Samples) -> Self {
        let timeline = &samples.timeline;
        let mut bins = timeline.bins.clone();
        if bins.is_empty() {
            bins.push(Bin::default());
        }
        Self { bins, width: timeline.width, healed: samples.healed }
    }

    pub fn end(&self) -> Duration {
        self.width * self.count()
    }

    fn count(&self) -> u32 {
        u32::try_from(self.bins.len()).unwrap()
    }

    /// Where a time is, in bins.
    pub fn x(&self, time: Duration) -> f64 {
        time.min(self.end()).as_secs_f64() / self.width.as_secs_f64()
    }

    /// Begins a drawing that is that high.
    pub fn open(&self, page: &mut String, height: u32, label: &str) {
        write!(
            page,
            "<svg viewBox=\"0 0 {} {height}\" style=\"height:{height}px\" \
             preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
            self.count(),
            escape(label)
        )
        .unwrap();
    }

    /// Ends it, with labels of the time.
    pub fn close(&self, page: &mut String, height: u32) {
        if let Some(healed) = self.healed {
            let x = self.x(healed);
            write!(page, "<path class=\"healed\" d=\"M{x:.2} 0V{height}\"><title>faults end at {}</title></path>", clock(healed)).unwrap();
        }
        page.push_str(
            "</svg><div class=\"cross\"></div><div class=\"ticks\" aria-hidden=\"true\">",
        );
        for tick in 0..=TICKS {
            write!(page, "<span>{}</span>", clock(self.end() * tick / TICKS)).unwrap();
        }
        page.push_str("</div>");
    }
}

/// A value in each bin.
pub struct Series<'a> {
    pub name: &'a str,
    pub color: &'a str,
    pub values: Vec<u64>,
}

pub fn number(value: u64) -> f64 {
    f64::from(u32::try_from(value).unwrap_or(u32::MAX))
}

/// Names and colours.
pub fn legend<'a>(page: &mut String, of: impl Iterator<Item = (&'a str, &'a str)>) {
    page.push_str("<ul class=\"legend\">");
    for (name, color) in of {
        write!(page, "<li><i class=\"{color}\"></i>{}</li>", escape(name)).unwrap();
    }
    page.push_str("</ul>");
}

/// Begins a figure.
pub fn figure(page: &mut String, id: &str, title: &str) {
    write!(page, "<figure id=\"{id}\"><figcaption><h2>{title}</h2></figcaption>").unwrap();
}

/// Ends a figure in which there is nothing to be seen.
pub fn empty(page: &mut String) {
    page.push_str("<p class=\"sub\">Nothing of this happened.</p></figure>");
}

/// Bars, one series above the other; those that are empty are left out.
pub fn stacked(page: &mut String, axis: &Axis, id: &str, title: &str, series: &[Series<'_>]) {
    const HEIGHT: u32 = 120;
    figure(page, id, title);
    let is_there = |series: &&Series<'_>| series.values.iter().any(|value| *value > 0);
    let series: Vec<_> = series.iter().filter(is_there).collect();
    legend(page, series.iter().map(|series| (series.name, series.color)));
    let sum = |bin: usize| series.iter().map(|series| series.values[bin]).sum::<u64>();
    let most = (0..axis.bins.len()).map(sum).max().unwrap_or(0);
    if most == 0 {
        return empty(page);
    }
    write!(page, "<output aria-hidden=\"true\"></output><div class=\"plot\"><span class=\"most\">{most}</span>").unwrap();
    axis.open(page, HEIGHT, &format!("{title}, at most {most} in {}", clock(axis.width)));
    let scale = f64::from(HEIGHT) / number(most.max(1));
    let mut tops = vec![0; axis.bins.len()];
    for series in &series {
        let mut path = String::new();
        for (bin, value) in series.values.iter().enumerate().filter(|(_, value)| **value > 0) {
            tops[bin] += value;
            let (y, height) =
                (f64::from(HEIGHT) - number(tops[bin]) * scale, number(*value) * scale);
            write!(path, "M{bin} {y:.1}h1v{height:.1}h-1z").unwrap();
        }
        write!(page, "<path class=\"{}\" d=\"{path}\"/>", series.color).unwrap();
    }
    tooltips(page, axis, HEIGHT, |bin| {
        let told = series.iter().filter(|series| series.values[bin] > 0);
        told.map(|series| format!("{} {}", series.values[bin], series.name)).collect()
    });
    axis.close(page, HEIGHT);
    page.push_str("</div></figure>");
}

/// What each bin holds, under the pointer.
pub fn tooltips(page: &mut String, axis: &Axis, height: u32, tell: impl Fn(usize) -> Vec<String>) {
    let mut from = Duration::ZERO;
    for bin in 0..axis.bins.len() {
        let (to, told) = (from + axis.width, tell(bin));
        if !told.is_empty() {
            let told = escape(&told.join(", "));
            write!(
                page,
                "<rect class=\"tip\" x=\"{bin}\" width=\"1\" height=\"{height}\"><title>{}: {told}</title></rect>",
                span(from, to)
            )
            .unwrap();
        }
        from = to;
    }
}
