//! The HTML document around the sections.

use serde_json::json;
use sha2::{Digest, Sha256};

use super::{Content, html::Html};
use crate::units;

/// The beginning of every page: a file that begins otherwise is never replaced by one.
pub const HEAD: &str = "<!doctype html>\n<!-- made by `runner report` -->\n";

const STYLE: &str = concat!(include_str!("assets/uplot-1.6.32.min.css"), include_str!("assets/page.css"));

/// Includes its licence text, as the licence requires.
const LIBRARY: &str = concat!(
    "/*\nuPlot 1.6.32\n",
    include_str!("assets/uplot-LICENSE"),
    "*/\n",
    include_str!("assets/uplot-1.6.32.min.js")
);

const SCRIPT: &str = include_str!("assets/page.js");

/// The additional script of a page that is served.
const LIVE: &str = include_str!("assets/live.js");

impl Content<'_> {
    /// The whole page.
    pub(super) fn document(self, title: &str, headline: Html, tag: Option<&str>) -> String {
        let mut body = Html::default();
        body.with("header", &[], |html| {
            let runs = units::counted(self.comparison.runs.len() as u64, "run");
            html.words("p", &[("class", &"kicker")], &format!("runner report · {runs}"));
            html.words("h1", &[], title);
            html.append(headline);
        });
        if self.sections.len() > 2 {
            body.with("nav", &[("aria-label", &"Sections")], |html| {
                for section in &self.sections {
                    html.words("a", &[("href", &format!("#{}", section.id))], &section.title);
                }
            });
        }
        body.with("main", &[], |html| {
            for section in self.sections {
                html.with("section", &[("id", &section.id)], |html| {
                    html.words("h2", &[], &section.title);
                    html.append(section.body);
                });
            }
        });
        let made = format!(
            "Made by runner {}. Curves are drawn by uPlot, \u{a9} 2022 Leon Sorokin, MIT licence.",
            env!("CARGO_PKG_VERSION")
        );
        body.words("footer", &[], &made);
        body.data("charts", &json!(self.charts).to_string());
        with_head(title, body, tag)
    }
}

/// A page served under this `ETag` that has nothing to show yet; it says why.
pub fn waiting(words: &str, tag: &str) -> String {
    let mut body = Html::default();
    body.with("header", &[], |html| {
        html.words("h1", &[], "No run yet");
        html.prose("warning", words);
    });
    body.data("charts", "[]");
    with_head("runs", body, Some(tag))
}

/// A complete HTML file. Text from a run's files cannot become a script: it is escaped, scripts need the
/// nonce to run, and the nonce is a digest of the page itself.
fn with_head(title: &str, body: Html, tag: Option<&str>) -> String {
    let body = body.into_string();
    let nonce: String = Sha256::digest(&body).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'{}",
        if tag.is_some() { "; connect-src 'self'" } else { "" }
    );
    let mut head = Html::default();
    head.with("head", &[], |html| {
        html.empty("meta", &[("charset", &"utf-8")]);
        html.empty("meta", &[("http-equiv", &"Content-Security-Policy"), ("content", &policy)]);
        html.empty("meta", &[("name", &"viewport"), ("content", &"width=device-width, initial-scale=1")]);
        html.empty("meta", &[("name", &"color-scheme"), ("content", &"light dark")]);
        html.words("title", &[], title);
        html.code("style", &nonce, STYLE);
    });
    let mut scripts = Html::default();
    scripts.code("script", &nonce, LIBRARY);
    scripts.code("script", &nonce, SCRIPT);
    if let Some(tag) = tag {
        scripts.data("tag", &json!(tag).to_string());
        scripts.code("script", &nonce, LIVE);
    }
    let (head, scripts) = (head.into_string(), scripts.into_string());
    format!("{HEAD}<html lang=\"en\">{head}<body>\n{body}\n{scripts}</body></html>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page::{curves::COLORS, svg};

    /// Lines and dots of every colour are drawn, on a page as in a file of its own.
    #[test]
    fn every_colour_has_its_classes() {
        let own = |style: &str, class: &str, what: &str| {
            let rule = style.split(&format!(".{class}{{")).nth(1).unwrap_or_default();
            rule.starts_with(&format!("{what}:"))
        };
        let page = STYLE.replace(' ', "");
        let defined = (0..).take_while(|colour| page.contains(&format!("--c{colour}:"))).count();
        assert!(defined >= COLORS, "{defined}");
        for (style, colours) in [(page.as_str(), defined), (svg::STYLE, COLORS)] {
            for colour in 0..colours {
                assert!(own(style, &format!("c{colour}"), "stroke"), "c{colour}");
                assert!(own(style, &format!("f{colour}"), "fill"), "f{colour}");
            }
        }
    }
}
