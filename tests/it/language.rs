//! Retired names and phrases do not come back.

use super::architecture::{sources, words};

/// Names of types, functions and modules that were replaced by the field's terms.
const NAMES: [&str; 36] = [
    "Course",
    "Cut",
    "Facts",
    "Feed",
    "Fetch",
    "Floor",
    "Ground",
    "Inside",
    "Logbook",
    "Longer",
    "Mailbox",
    "Meeting",
    "Member",
    "Pace",
    "Patience",
    "Place",
    "Places",
    "Pulse",
    "Ring",
    "Runner",
    "Seat",
    "Setting",
    "Sharing",
    "Spent",
    "Stamp",
    "SumsBy",
    "Tally",
    "Timetable",
    "Turns",
    "Upcoming",
    "Way",
    "World",
    "graver",
    "look_at_files",
    "walk",
    "weigh",
];

/// Phrases of a tangled comment.
const PHRASES: [&str; 5] = ["so many ", "is told", "are told", "be told", "for for "];

/// A comment's sentence does not begin with "Of" and one of these.
const AFTER_OF: [&str; 7] = ["a ", "the ", "which ", "what ", "those ", "several ", "each "];

#[test]
fn retired_names_stay_away() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            let code = without_strings(line.split("//").next().unwrap_or_default());
            let name = words(&code).find(|word| NAMES.contains(word));
            if let Some(name) = name.or(code.contains("fn of(").then_some("fn of")) {
                found.push(format!("{}:{}: `{name}`", path.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "use the field's terms:\n{}", found.join("\n"));
}

#[test]
fn no_comment_is_tangled() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            let Some((_, comment)) = line.split_once("//") else { continue };
            let comment = comment.trim_start_matches(['/', '!', ' ']);
            let of =
                comment.strip_prefix("Of ").or_else(|| comment.split_once(". Of ").map(|(_, rest)| rest));
            let begins = of.is_some_and(|rest| AFTER_OF.iter().any(|word| rest.starts_with(word)));
            if begins || PHRASES.iter().any(|phrase| comment.contains(phrase)) {
                found.push(format!("{}:{}: {comment}", path.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "say it plainly:\n{}", found.join("\n"));
}

/// A line of code without the contents of its string literals.
fn without_strings(code: &str) -> String {
    code.split('"').step_by(2).collect::<Vec<_>>().join("\"")
}
