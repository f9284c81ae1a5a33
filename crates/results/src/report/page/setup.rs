//! The runs' specs and environments, with differences between the runs marked.

use super::{Content, html::Html};
use crate::{
    files::Leaves,
    report::{axes::Difference, comparison::Comparison, run::Run},
    units,
};

/// Maximum values listed per key.
const MOST_VALUES: usize = 20;

impl Content<'_> {
    /// Adds both sections.
    pub(super) fn setup(&mut self) {
        let comparison = self.comparison;
        self.section("spec", "Spec", |_, html| {
            leaves(html, "Spec", comparison, |run| run.spec.as_ref(), &comparison.spec);
        });
        self.section("environment", "Environment", |_, html| {
            leaves(html, "Environment", comparison, |run| run.environment.as_ref(), &comparison.environment);
        });
    }
}

/// Lists the keys of the first run that has any, and for keys that differ, their values with the runs.
fn leaves(
    html: &mut Html,
    title: &str,
    comparison: &Comparison,
    of: fn(&Run) -> Option<&Leaves>,
    differences: &[Difference],
) {
    let Some(shared) = comparison.runs.iter().find_map(of) else { return };
    let differs = |key: &str| differences.iter().any(|difference| difference.key == key);
    if !differences.is_empty() {
        keys(
            html,
            &format!("{title}: what differs"),
            differences.iter().map(|difference| (difference.key.as_str(), values(difference, comparison))),
        );
    }
    let equal = || shared.iter().filter(|(key, value)| !differs(key) && !value.is_empty());
    html.with("details", &[], |html| {
        let count = units::counted(equal().count() as u64, "key");
        let words = if comparison.runs.len() > 1 { format!("{count} of the first run") } else { count };
        html.words("summary", &[], &words);
        keys(html, title, equal().map(|(key, value)| (key, value.to_owned())));
    });
}

fn keys<'a>(html: &mut Html, caption: &str, lines: impl Iterator<Item = (&'a str, String)>) {
    html.with("table", &[("class", &"keys")], |html| {
        html.words("caption", &[], caption);
        for (key, words) in lines {
            html.with("tr", &[], |html| {
                html.with("th", &[("scope", &"row")], |html| {
                    // Allow line breaks between the words of a key on narrow screens.
                    for (place, piece) in key.split_inclusive(['.', '_']).enumerate() {
                        if place > 0 {
                            html.empty("wbr", &[]);
                        }
                        html.text(piece);
                    }
                });
                html.words("td", &[], &words);
            });
        }
    });
}

/// `0.03 (#1, 3), 0.1 (#2)`.
fn values(difference: &Difference, comparison: &Comparison) -> String {
    let words = |(value, runs): &(Option<String>, Vec<usize>)| {
        let runs: Vec<usize> = runs.iter().map(|run| run - 1).collect();
        format!("{} ({})", value.as_deref().unwrap_or("absent"), comparison.numbers(&runs))
    };
    let more = difference.values.len().saturating_sub(MOST_VALUES);
    let more = (more > 0).then(|| format!("and {more} more"));
    difference.values.iter().take(MOST_VALUES).map(words).chain(more).collect::<Vec<_>>().join(", ")
}
