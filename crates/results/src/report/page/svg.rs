//! Charts as SVG: a frame with axes and marks. Colours are CSS classes, so that screens and print can have
//! different ones.

use super::html::{Attributes, Html};
use crate::report::plot::{Axis, tick_label};

/// The beginning of every file: a file that begins otherwise is never replaced by one.
pub const HEAD: &str = "<!-- made by `runner report` -->\n";

/// The style of a figure in its own file: Okabe and Ito's colours on white.
pub(super) const STYLE: &str = "text{font:12px Helvetica,Arial,sans-serif;fill:#222}.soft{fill:#555}line,polyline{fill:none}\
.grid{stroke:#ddd}.axis{stroke:#333}.f0{fill:#0072b2}.f1{fill:#d55e00}.f2{fill:#009e73}.f3{fill:#cc79a7}.f4{fill:#e69f00}\
.f5{fill:#56b4e9}.f6{fill:#5c5c5c}.c0{stroke:#0072b2}.c1{stroke:#d55e00}.c2{stroke:#009e73}.c3{stroke:#cc79a7}\
.c4{stroke:#e69f00}.c5{stroke:#56b4e9}.c6{stroke:#5c5c5c}.faint{stroke:#ccc}.dot{fill:#999}.hollow{fill:none;stroke:#999}.band{stroke:none;opacity:.2}\
.ideal{stroke:#777;stroke-dasharray:5 4}.main{stroke-width:1.6}.point{opacity:.45}.strong{fill:#fff}\
.h0{fill:#f3f7fb}.h1{fill:#e1ecf6}.h2{fill:#cde0f0}.h3{fill:#b4d1e8}.h4{fill:#96bfdd}.h5{fill:#75abd1}.h6{fill:#5596c4}\
.h7{fill:#3478ab}.h8{fill:#2369a0}.h9{fill:#0f5288}circle[class^=h]{stroke:#777}";

/// A rectangle with two axes.
pub(super) struct Frame {
    width: f64,
    height: f64,
    x: Axis,
    y: Axis,
    /// Formats a value beside an axis.
    label: fn(f64) -> String,
}

/// Margins of a frame: top, right, bottom, left.
const MARGINS: [f64; 4] = [10.0, 24.0, 44.0, 74.0];

/// The width of a digit.
const CHARACTER: f64 = 6.7;

impl Frame {
    pub(super) fn new(width: f64, height: f64, x: Axis, y: Axis) -> Self {
        Self { width, height, x, y, label: tick_label }
    }

    /// Uses labels such as `30 M`, for large values.
    pub(super) fn with_large_figures(self) -> Self {
        Self { label: large_label, ..self }
    }

    /// The horizontal position of a value.
    pub(super) fn across(&self, value: f64) -> f64 {
        self.at(self.x.place(value))
    }

    /// The horizontal position of a share (0 to 1) of the axis.
    pub(super) fn at(&self, share: f64) -> f64 {
        px(MARGINS[3] + share * (self.width - MARGINS[1] - MARGINS[3]))
    }

    /// The vertical position of a value.
    pub(super) fn up(&self, value: f64) -> f64 {
        px(self.height - MARGINS[2] - self.y.place(value) * (self.height - MARGINS[0] - MARGINS[2]))
    }

    /// Draws the chart: axes with their names, then the marks. `ticks` are horizontal positions with labels.
    pub(super) fn draw(
        &self,
        [across, up]: [&str; 2],
        ticks: &[(f64, String)],
        marks: impl FnOnce(&mut Html),
    ) -> Svg {
        let mut html = Html::default();
        let (left, right) = (self.at(0.0), self.at(1.0));
        let (top, bottom) = (MARGINS[0], self.height - MARGINS[2]);
        for &tick in self.y.ticks.iter().filter(|tick| (-1e-9..=1.0 + 1e-9).contains(&self.y.place(**tick))) {
            let y = self.up(tick);
            line(&mut html, "grid", [left, y, right, y]);
            text(&mut html, [left - 8.0, y + 4.0], "end", &(self.label)(tick));
        }
        line(&mut html, "axis", [left, bottom, right, bottom]);
        let mut free = f64::NEG_INFINITY;
        for (x, label) in ticks {
            line(&mut html, "axis", [*x, bottom, *x, bottom + 4.0]);
            // No label covers another.
            let half = label.chars().count() as f64 * CHARACTER / 2.0;
            if x - half >= free {
                text(&mut html, [*x, bottom + 18.0], "middle", label);
                free = x + half + CHARACTER;
            }
        }
        text(&mut html, [px(f64::midpoint(left, right)), self.height - 6.0], "middle", across);
        let place = format!("translate(12 {}) rotate(-90)", px(f64::midpoint(top, bottom)));
        let attributes: Attributes<'_> =
            &[("transform", &place), ("text-anchor", &"middle"), ("class", &"soft")];
        html.words("text", attributes, up);
        marks(&mut html);
        Svg::new(self.width, self.height, html)
    }

    /// Ticks of the horizontal axis.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let ticks = self.x.ticks.iter().filter(|tick| (-1e-9..=1.0 + 1e-9).contains(&self.x.place(**tick)));
        ticks.map(|&tick| (self.across(tick), (self.label)(tick))).collect()
    }
}

/// A drawing.
pub(super) struct Svg {
    width: f64,
    height: f64,
    marks: Html,
    /// Above the drawing in a file of its own; a page has it as a caption.
    heading: Option<String>,
}

/// The height of a heading.
const HEADING: f64 = 26.0;

impl Svg {
    pub(super) fn new(width: f64, height: f64, marks: Html) -> Self {
        Self { width, height, marks, heading: None }
    }

    pub(super) fn with_height(self, height: f64) -> Self {
        Self { height, ..self }
    }

    /// With words that say what colours mean.
    pub(super) fn with_heading(self, words: &str) -> Self {
        Self { heading: Some(words.to_owned()), ..self }
    }

    /// Embeds the drawing in a page.
    pub(super) fn inline(self, html: &mut Html, label: &str) {
        let view = format!("0 0 {} {}", self.width, self.height);
        let attributes: Attributes<'_> = &[
            ("viewBox", &view),
            ("width", &self.width),
            ("height", &self.height),
            ("role", &"img"),
            ("aria-label", &label),
        ];
        html.with("svg", attributes, |html| html.append(self.marks));
    }

    /// The drawing as a file of its own.
    pub(super) fn file(&self, title: &str) -> String {
        let mut html = Html::default();
        let above = if self.heading.is_some() { HEADING } else { 0.0 };
        let needed =
            self.heading.as_ref().map_or(0.0, |words| words.chars().count() as f64 * CHARACTER + 16.0);
        let (width, height) = (px(self.width.max(needed)), self.height + above);
        let view = format!("0 0 {width} {height}");
        let attributes: Attributes<'_> = &[
            ("xmlns", &"http://www.w3.org/2000/svg"),
            ("viewBox", &view),
            ("width", &width),
            ("height", &height),
        ];
        html.with("svg", attributes, |html| {
            html.words("title", &[], title);
            html.words("style", &[], STYLE);
            html.empty("rect", &[("width", &width), ("height", &height), ("fill", &"#fff")]);
            if let Some(words) = &self.heading {
                html.words("text", &[("x", &8), ("y", &18)], words);
            }
            let place = format!("translate(0 {above})");
            html.with("g", &[("transform", &place)], |html| html.append(self.marks.clone()));
        });
        format!("{HEAD}{}\n", html.into_string())
    }
}

pub(super) fn line(html: &mut Html, class: &str, [x1, y1, x2, y2]: [f64; 4]) {
    html.empty("line", &[("class", &class), ("x1", &x1), ("y1", &y1), ("x2", &x2), ("y2", &y2)]);
}

/// A dot; its title is shown on hover.
pub(super) fn dot(html: &mut Html, class: &str, [x, y]: [f64; 2], radius: f64, title: &str) {
    html.with("circle", &[("class", &class), ("cx", &x), ("cy", &y), ("r", &radius)], |html| {
        html.words("title", &[], title);
    });
}

pub(super) fn text(html: &mut Html, [x, y]: [f64; 2], anchor: &str, words: &str) {
    html.words("text", &[("x", &x), ("y", &y), ("text-anchor", &anchor), ("class", &"soft")], words);
}

/// Lines through some points.
pub(super) fn polyline(html: &mut Html, class: &str, points: impl Iterator<Item = [f64; 2]>) {
    let points: Vec<String> = points.map(|[x, y]| format!("{x},{y}")).collect();
    html.empty("polyline", &[("class", &class), ("points", &points.join(" "))]);
}

/// `500 k`, `30 M`; smaller values unchanged.
fn large_label(value: f64) -> String {
    let (scale, unit) = match value.abs() {
        size if size >= 1e12 => (1e12, " T"),
        size if size >= 1e9 => (1e9, " G"),
        size if size >= 1e6 => (1e6, " M"),
        size if size >= 1e4 => (1e3, " k"),
        _ => (1.0, ""),
    };
    format!("{}{unit}", tick_label(value / scale))
}

/// A coordinate, rounded to the digits that a screen can show.
pub(super) fn px(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_label_covers_another() {
        let axis = || Axis::new(0.0, 1.0, 2, true);
        let frame = Frame::new(300.0, 200.0, axis(), axis());
        let drawn = |ticks: &[f64]| {
            let ticks: Vec<(f64, String)> = ticks.iter().map(|x| (*x, "0.0257297".to_owned())).collect();
            let svg = frame.draw(["x", "y"], &ticks, |_| {}).file("title");
            svg.matches("0.0257297").count()
        };
        assert_eq!(drawn(&[100.0, 170.0, 240.0]), 3);
        assert_eq!(drawn(&[100.0, 140.0, 180.0]), 2);
    }
}
