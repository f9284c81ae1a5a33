//! Links between pages, and from pages to files.

use std::{collections::BTreeSet, fs, path::Path};

use super::all_pages;

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut wrong = Vec::new();
    for page in all_pages() {
        for link in links(&fs::read_to_string(&page).unwrap()) {
            if ["https://", "http://", "mailto:"].iter().any(|head| link.starts_with(head)) {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let is_there = target.exists() && (heading.is_empty() || headings(&target).contains(heading));
            if !is_there {
                wrong.push(format!("{}: ({link})", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

#[test]
fn every_page_of_docs_is_linked_from_the_readme() {
    let linked: BTreeSet<String> = links(&fs::read_to_string("README.md").unwrap()).into_iter().collect();
    for page in all_pages().into_iter().filter(|page| page.starts_with("docs")) {
        assert!(linked.contains(page.to_str().unwrap()), "README.md does not link {}", page.display());
    }
}

/// Paths in code spans, such as `crates/engine/src/op/sgd.rs` or `docs/`, except patterns and placeholders.
#[test]
fn every_path_that_is_named_exists() {
    let heads =
        ["src/", "crates/", "kernels/", "tests/", "docs/", "experiments/", "benches/", "scripts/", ".ci/"];
    let mut wrong = Vec::new();
    for page in all_pages().into_iter().filter(|page| !page.ends_with("CHANGELOG.md")) {
        let text = fs::read_to_string(&page).unwrap();
        for path in text.split('`').skip(1).step_by(2) {
            let is_path = heads.iter().any(|head| path.starts_with(head)) && !path.contains(['*', ' ', '\n']);
            if is_path && !path.contains("NAME") && !Path::new(path).exists() {
                wrong.push(format!("{}: `{path}`", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "paths that do not exist:\n{}", wrong.join("\n"));
}

/// The targets of `[text](target)` outside code.
fn links(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_code = false;
    for line in page.lines() {
        is_code ^= line.starts_with("```");
        if is_code {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let rest = &line[at + 2..];
            found.extend(rest.split_once(')').map(|(target, _)| target.to_owned()));
        }
    }
    found
}

/// The anchors of a page's headings, by GitHub's rule.
fn headings(page: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(page).unwrap();
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}
