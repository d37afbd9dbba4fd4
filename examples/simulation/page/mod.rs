//! One page with plots of a run over simulated time. It needs nothing but itself: style and script
//! are within, and nothing is fetched.

mod lanes;
mod plot;

use std::fmt::Write as _;

use crate::cli::{self, Cli};
use crate::engine::Report;
use crate::engine::samples::timeline::Bin;
use crate::summary::{BLOWS, OUTCOMES, SWEEPS, Summary, clock};
use plot::{Axis, Series, stacked};

/// Lines of the history that are shown where a rule was broken.
const LAST_LINES: usize = 40;

/// The page.
pub fn render(cli: &Cli, seed: u64, report: &Report, summary: &Summary) -> String {
    let axis = Axis::of(&report.samples);
    let mut page = String::with_capacity(200_000);
    let style = include_str!("page.css");
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"data:,\">\
         <title>Simulation, seed {seed}</title><style>{style}</style></head><body><main>"
    )
    .unwrap();
    head(&mut page, cli, seed, report);
    facts(&mut page, report, summary);
    plots(&mut page, report, &axis);
    tables(&mut page, summary);
    let script = include_str!("page.js");
    writeln!(page, "</main><script>{script}</script></body></html>").unwrap();
    page
}

fn head(page: &mut String, cli: &Cli, seed: u64, report: &Report) {
    let Cli { hosts, owners, .. } = cli;
    let faults = cli.faults.iter().map(|kind| format!("{kind:?}").to_lowercase());
    let faults = faults.collect::<Vec<_>>().join(", ");
    let bug = cli.bug.map(|bug| format!(" · planted: {}", cli::name(bug))).unwrap_or_default();
    write!(
        page,
        "<header><h1>Simulation, seed {seed}</h1><p class=\"sub\">{hosts} hosts · {owners} owners · \
         {} commands · faults: {faults}{bug}</p>",
        report.commands
    )
    .unwrap();
    let replay = escape(&cli.replay(seed));
    match &report.violation {
        None => page.push_str("<p class=\"verdict sound\">No rule was broken.</p>"),
        Some(violation) => {
            let lines: Vec<_> = report.history.as_str().lines().collect();
            let tail = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
            write!(
                page,
                "<section class=\"verdict broken\" role=\"alert\"><h2>A rule was broken: {}</h2>\
                 <p>{}</p><h3>What happened last</h3><pre tabindex=\"0\">{}</pre></section>",
                escape(violation.rule),
                escape(&violation.how),
                escape(&tail)
            )
            .unwrap();
        }
    }
    write!(page, "<p class=\"replay\">Play it again: <code>{replay}</code></p></header>").unwrap();
}

fn facts(page: &mut String, report: &Report, summary: &Summary) {
    page.push_str("<section aria-label=\"Summary\"><dl>");
    for (name, value) in summary.facts() {
        write!(page, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(&value)).unwrap();
    }
    let digest = report.history.digest().to_hex();
    write!(page, "<div><dt>digest of the history</dt><dd class=\"digest\">{digest}</dd></div>")
        .unwrap();
    page.push_str("</dl><p class=\"sub\">The plots end where the faults do; the summary also counts what came after.</p></section>");
}

fn plots(page: &mut String, report: &Report, axis: &Axis) {
    let samples = &report.samples;
    let of = |name, color, value: fn(&Bin) -> u64| {
        let values = axis.bins.iter().map(value).collect();
        Series { name, color, values }
    };
    let outcomes: [fn(&Bin) -> u64; OUTCOMES.len()] =
        [|bin| bin.calls[0], |bin| bin.calls[1], |bin| bin.calls[2], |bin| bin.calls[3]];
    let calls = OUTCOMES.iter().zip(["c1", "c6", "c2", "c4"]).zip(outcomes);
    let calls: Vec<_> = calls.map(|((name, color), value)| of(name, color, value)).collect();
    stacked(page, axis, "commands", "Commands by outcome", &calls);
    lanes::hosts(page, axis, samples);
    let faults = [
        of("faults of the storage", "c4", |bin| bin.faults),
        of("unknown outcomes settled", "c3", |bin| bin.settled),
    ];
    stacked(page, axis, "faults", "Faults and recoveries of commands", &faults);
    let batches = [
        of("mean", "c1", mean),
        of("above it, up to the largest", "c6", |bin| {
            bin.largest_batch - mean(bin).min(bin.largest_batch)
        }),
    ];
    stacked(page, axis, "batches", "Commands in a batch", &batches);
    lanes::leases(page, axis, samples);
    let sweeps: [fn(&Bin) -> u64; SWEEPS.len()] = [
        |bin| bin.sweeps[0],
        |bin| bin.sweeps[1],
        |bin| bin.sweeps[2],
        |bin| bin.sweeps[3],
        |bin| bin.sweeps[4],
    ];
    let sweeps = SWEEPS.iter().zip(["c4", "c2", "c3", "c6", "c5"]).zip(sweeps);
    let sweeps: Vec<_> = sweeps.map(|((name, color), value)| of(name, color, value)).collect();
    stacked(page, axis, "sweeps", "What became of what was missing at the provider", &sweeps);
    let keys = [of("most at once, over all hosts", "c1", |bin| bin.active_keys)];
    stacked(page, axis, "keys", "Keys in memory", &keys);
}

/// Commands in a batch, to the nearest number.
fn mean(bin: &Bin) -> u64 {
    (bin.appends + bin.batches / 2) / bin.batches.max(1)
}

fn tables(page: &mut String, summary: &Summary) {
    page.push_str(
        "<section class=\"tables\"><div><h2>Commands</h2><table><thead><tr><th>command</th>",
    );
    for outcome in OUTCOMES {
        write!(page, "<th>{outcome}</th>").unwrap();
    }
    page.push_str("</tr></thead><tbody>");
    for (kind, counts) in &summary.calls {
        write!(page, "<tr><th scope=\"row\">{}</th>", escape(kind)).unwrap();
        counts.iter().for_each(|count| write!(page, "<td>{count}</td>").unwrap());
        page.push_str("</tr>");
    }
    page.push_str("</tbody></table></div><div><h2>Rules</h2><table><thead><tr><th>rule</th><th>held</th></tr></thead><tbody>");
    for (rule, count) in &summary.held {
        write!(page, "<tr><th scope=\"row\">{}</th><td>{count}</td></tr>", escape(rule)).unwrap();
    }
    page.push_str("</tbody></table></div></section>");
}

/// Text within an element or an attribute.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// What a blow is called.
fn blow_name(blow: usize) -> &'static str {
    BLOWS[blow]
}

/// From when to when, for a person.
fn span(from: std::time::Duration, to: std::time::Duration) -> String {
    format!("{} to {}", clock(from), clock(to))
}
