//! Curves as an SVG drawing, for papers.

use super::{
    curves::{Chart, Line},
    html::Html,
    svg::{self, Frame, Svg, px},
};
use crate::report::plot::{Axis, tick_label};

/// Width and height without the legend, and the height of a line in the legend.
const SIZE: [f64; 3] = [640.0, 340.0, 18.0];

impl Chart {
    /// The same curves as on the page; `None` if there is no value.
    pub(super) fn drawing(&self) -> Option<Svg> {
        let (first, last) = (self.x.first().copied()?, self.x.last().copied()?);
        let few = self.colored();
        let others = self.others();
        let legend = few + usize::from(others.is_some());
        let [width, height, line_height] = SIZE;
        let x = Axis::new(first, last, 6, true);
        let frame = Frame::new(width, height, x, self.axis(6)?);
        let ticks = if last > first { frame.ticks() } else { vec![(frame.across(first), tick_label(first))] };
        let drawing = frame.draw([self.across, &self.title], &ticks, |html| {
            for (place, line) in self.lines.iter().enumerate().rev() {
                let color = if place < few { format!("{place}") } else { String::new() };
                self.curve(html, line, &frame, &color);
            }
            let coloured = self.lines[..few].iter().enumerate();
            let coloured = coloured.map(|(place, line)| (format!("c{place} main"), line.name.as_str()));
            let names = coloured.chain(others.iter().map(|name| ("faint".to_owned(), name.as_str())));
            for (place, (class, name)) in names.enumerate() {
                let y = height + line_height * place as f64 + 6.0;
                svg::line(html, &class, [74.0, y, 98.0, y]);
                svg::text(html, [106.0, y + 4.0], "start", name);
            }
        });
        Some(drawing.with_height(height + line_height * legend as f64 + 6.0))
    }

    fn curve(&self, html: &mut Html, line: &Line, frame: &Frame, color: &str) {
        let point = |(x, y): (&f64, &Option<f64>)| y.map(|y| [frame.across(*x), frame.up(y)]);
        let points = |values: &[Option<f64>]| self.x.iter().zip(values).filter_map(point).collect::<Vec<_>>();
        if let Some([low, high]) = line.band.as_ref().filter(|_| !color.is_empty()) {
            let (mut around, mut back) = (points(high), points(low));
            back.reverse();
            around.append(&mut back);
            let around: Vec<String> = around.iter().map(|[x, y]| format!("{x},{y}")).collect();
            let class = format!("f{color} band");
            html.empty("path", &[("class", &class), ("d", &format!("M{}Z", around.join("L")))]);
        }
        let class = if color.is_empty() { "faint".to_owned() } else { format!("c{color} main") };
        let points = points(&line.y);
        if let [point] = points[..] {
            let dot = if color.is_empty() { "dot".to_owned() } else { format!("f{color}") };
            svg::dot(html, &dot, point, 3.0, &line.name);
        }
        svg::polyline(html, &class, points.into_iter().map(|[x, y]| [px(x), px(y)]));
    }
}
