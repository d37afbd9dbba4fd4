//! Lanes: what each host suffered, and who held which lease.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::plot::{Axis, Series, empty, figure, legend, stacked};
use super::{blow_name, escape, span};
use crate::engine::samples::leases::{Leases, Span};
use crate::engine::samples::{Band, Samples};
use crate::summary::BLOWS;

/// Leases that have a lane of their own.
const MAX_LANES: usize = 16;
const LANE: u32 = 18;
const COLORS: [&str; 7] = ["c1", "c2", "c3", "c5", "c6", "c4", "c7"];
const BLOW_COLORS: [&str; BLOWS.len()] = ["c4", "c2", "c5"];

/// The blows to each host.
pub fn hosts(page: &mut String, axis: &Axis, samples: &Samples) {
    figure(page, "hosts", "Hosts: from each blow to the recovery");
    legend(page, BLOWS.into_iter().zip(BLOW_COLORS));
    if samples.bands.is_empty() {
        return empty(page);
    }
    let count = samples.bands.iter().map(|band| band.host + 1).max().unwrap_or(1);
    let names: Vec<_> = (0..count).map(|host| format!("host-{host}")).collect();
    let height = open(page, axis, &names, "Blows to hosts");
    for joined in join(axis, &samples.bands) {
        let (x, blow) = (axis.x(joined.from), joined.blow);
        let width = (axis.x(joined.to) - x).max(0.4);
        let y = joined.host * usize::try_from(LANE).unwrap() + 2;
        let times =
            if joined.count > 1 { format!(", {} times", joined.count) } else { String::new() };
        write!(
            page,
            "<rect class=\"{}\" x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{}\"><title>host-{} is {}{times}: {}</title></rect>",
            BLOW_COLORS[blow],
            LANE - 4,
            joined.host,
            blow_name(blow),
            span(joined.from, joined.to)
        )
        .unwrap();
    }
    axis.close(page, height);
    page.push_str("</div></figure>");
}

/// Blows of a kind to one host, too near to each other to be shown apart.
struct Joined {
    host: usize,
    blow: usize,
    from: Duration,
    to: Duration,
    count: u32,
}

fn join(axis: &Axis, bands: &[Band]) -> Vec<Joined> {
    let mut joined: Vec<Joined> = Vec::new();
    let mut last = BTreeMap::new();
    for band in bands {
        let (host, blow, from) = (band.host, band.blow as usize, band.from);
        let to = band.to.unwrap_or(axis.end());
        match last.get(&(host, blow)).map(|at: &usize| &mut joined[*at]) {
            Some(before) if from <= before.to + axis.width / 2 => {
                before.to = before.to.max(to);
                before.count += 1;
            }
            _ => {
                last.insert((host, blow), joined.len());
                joined.push(Joined { host, blow, from, to, count: 1 });
            }
        }
    }
    joined
}

fn open(page: &mut String, axis: &Axis, names: &[String], label: &str) -> u32 {
    page.push_str(
        "<output aria-hidden=\"true\"></output><div class=\"plot lanes\"><div class=\"names\">",
    );
    for name in names {
        write!(page, "<span title=\"{0}\">{0}</span>", escape(name)).unwrap();
    }
    page.push_str("</div>");
    let height = LANE * u32::try_from(names.len().max(1)).unwrap();
    axis.open(page, height, label);
    height
}

/// The host of a holder: its people's names begin with its own.
fn host(span: &Span) -> usize {
    let name = span.holder.to_string();
    let number = name.trim_start_matches("host-").split('.').next().and_then(|n| n.parse().ok());
    number.unwrap_or(0)
}

/// Leases that each host held, and lanes of those that changed hands most.
pub fn leases(page: &mut String, axis: &Axis, samples: &Samples) {
    let leases = &samples.leases;
    let count = leases.spans.iter().map(|span| host(span) + 1).max().unwrap_or(1);
    let names: Vec<_> = (0..count).map(|host| format!("host-{host}")).collect();
    let held = names.iter().enumerate().map(|(number, name)| Series {
        name,
        color: COLORS[number % COLORS.len()],
        values: held(axis, leases.spans.iter().filter(|span| host(span) == number)),
    });
    let held: Vec<_> = held.collect();
    stacked(page, axis, "held", "Leases held by each host", &held);
    contested(page, axis, leases, &names);
}

/// How many stood at the end of each bin.
fn held<'a>(axis: &Axis, spans: impl Iterator<Item = &'a Span>) -> Vec<u64> {
    let bins = axis.bins.len();
    let mut changes = vec![0_i64; bins + 1];
    let bin = |time: Duration| {
        usize::try_from(time.as_millis() / axis.width.as_millis()).unwrap().min(bins)
    };
    for span in spans {
        changes[bin(span.from)] += 1;
        changes[bin(span.to)] -= 1;
    }
    let mut standing = 0;
    let sums = changes[..bins].iter().map(|change| {
        standing += change;
        standing.max(0).unsigned_abs()
    });
    sums.collect()
}

fn contested(page: &mut String, axis: &Axis, leases: &Leases, hosts: &[String]) {
    let mut ranks: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for span in &leases.spans {
        let rank = ranks.entry(span.lease).or_default();
        *rank = (rank.0 + usize::from(span.is_takeover), rank.1 + 1);
    }
    let mut shown: Vec<_> = ranks.into_iter().collect();
    shown.sort_by_key(|(lease, rank)| (std::cmp::Reverse(*rank), *lease));
    shown.truncate(MAX_LANES);
    let title = format!(
        "Who holds what: {} of {} leases, those first that were taken over most",
        shown.len(),
        leases.names.len()
    );
    figure(page, "leases", &title);
    let colors =
        hosts.iter().enumerate().map(|(at, name)| (name.as_str(), COLORS[at % COLORS.len()]));
    legend(page, colors.chain(std::iter::once(("taken over from another", "mark"))));
    if shown.is_empty() {
        return empty(page);
    }
    let short = |(lease, _): &(usize, _)| leases.names[*lease].replace("did:web:", "");
    let names: Vec<_> = shown.iter().map(short).collect();
    let height = open(page, axis, &names, &title);
    let mut lane = 2;
    for (lease, _) in &shown {
        let spans: Vec<_> = leases.spans.iter().filter(|span| span.lease == *lease).collect();
        draw(page, axis, lane, &spans);
        lane += LANE;
    }
    axis.close(page, height);
    page.push_str("</div></figure>");
}

/// A lane, in which what is too short to be seen apart is left out.
fn draw(page: &mut String, axis: &Axis, y: u32, spans: &[&Span]) {
    let mut marks = String::new();
    let mut drawn = -1.0;
    for held in spans {
        let (x, to) = (axis.x(held.from), axis.x(held.to));
        if x >= axis.x(axis.end()) || (to < drawn && !held.is_takeover) {
            continue;
        }
        let width = (to - x).max(0.4);
        drawn = x + width;
        let taken = if held.is_takeover { ", taken over" } else { "" };
        write!(
            page,
            "<rect class=\"{}\" x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{}\"><title>{}{taken}: {}</title></rect>",
            COLORS[host(held) % COLORS.len()],
            LANE - 4,
            escape(held.holder.as_str()),
            span(held.from, held.to)
        )
        .unwrap();
        if held.is_takeover {
            write!(marks, "M{x:.2} {}v{}", y - 1, LANE - 2).unwrap();
        }
    }
    write!(page, "<path class=\"mark\" d=\"{marks}\"/>").unwrap();
}
