//! Writes HTML and SVG markup. Names of elements and attributes are constants of the program; everything else
//! is escaped.

use std::fmt::{Display, Write};

/// Attributes of an element.
pub(super) type Attributes<'a> = &'a [(&'static str, &'a dyn Display)];

/// Elements without an end tag.
const EMPTY: [&str; 9] = ["meta", "line", "rect", "circle", "path", "polyline", "br", "wbr", "col"];

/// A piece of a page.
#[derive(Clone, Default)]
pub(super) struct Html(String);

impl Html {
    /// Adds an element with the content that `inner` writes.
    pub(super) fn with(
        &mut self,
        tag: &'static str,
        attributes: Attributes<'_>,
        inner: impl FnOnce(&mut Self),
    ) {
        self.begin(tag, attributes);
        self.0.push('>');
        inner(self);
        let _ = write!(self.0, "</{tag}>"); // writing to a String cannot fail
    }

    fn begin(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.0.push('<');
        self.0.push_str(tag);
        for (name, value) in attributes {
            let _ = write!(self.0, " {name}=\""); // writing to a String cannot fail
            self.text(&value.to_string());
            self.0.push('"');
        }
    }

    /// Adds an element that contains text.
    pub(super) fn words(&mut self, tag: &'static str, attributes: Attributes<'_>, text: &str) {
        self.with(tag, attributes, |html| html.text(text));
    }

    /// Adds a paragraph.
    pub(super) fn prose(&mut self, class: &str, text: &str) {
        self.with("p", &[("class", &class)], |html| html.sentences(text));
    }

    /// Adds sentences; text between backticks becomes `code`.
    pub(super) fn sentences(&mut self, text: &str) {
        for (place, part) in text.split('`').enumerate() {
            if place % 2 == 1 { self.words("code", &[], part) } else { self.text(part) }
        }
    }

    /// Adds an element without content.
    pub(super) fn empty(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        if !EMPTY.contains(&tag) {
            return self.with(tag, attributes, |_| {});
        }
        self.begin(tag, attributes);
        self.0.push_str("/>");
    }

    pub(super) fn text(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                c => self.0.push(c),
            }
        }
    }

    /// Adds a `<script>` or `<style>` with the program's own text.
    pub(super) fn code(&mut self, tag: &'static str, nonce: &str, text: &'static str) {
        let _ = write!(self.0, "<{tag} nonce=\"{nonce}\">{text}</{tag}>");
    }

    /// Adds data for scripts, as JSON in which no `<` can end the element.
    pub(super) fn data(&mut self, id: &'static str, json: &str) {
        let json = json.replace('<', "\\u003c");
        let _ = write!(self.0, "<script type=\"application/json\" id=\"{id}\">{json}</script>");
    }

    pub(super) fn append(&mut self, other: Self) {
        self.0.push_str(&other.0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_comes_in_is_escaped() {
        let mut html = Html::default();
        html.with("p", &[("title", &"\"><script>")], |html| html.text("</p><script>alert('1') & co"));
        html.data("data", r#"["</script><b>"]"#);
        insta::assert_snapshot!(html.into_string(), @r#"<p title="&quot;&gt;&lt;script&gt;">&lt;/p&gt;&lt;script&gt;alert(&#39;1&#39;) &amp; co</p><script type="application/json" id="data">["\u003c/script>\u003cb>"]</script>"#);
    }
}
