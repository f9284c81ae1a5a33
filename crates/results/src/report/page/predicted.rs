//! A run's predictions compared with the true values: points for numbers, a confusion matrix for classes.

use std::path::Path;

use super::{
    Content,
    confusion::Matrix,
    html::Html,
    svg::{self, Frame},
};
use crate::{files::csv_file, record::command_line, report::plot::Axis, units};

/// Maximum number of targets with a chart.
const MOST_TARGETS: usize = 8;

/// The model's predictions for its run's validation rows.
pub enum Predicted {
    /// Predictions of numbers, with a list per target.
    Numbers {
        /// Describes the rows and the weights.
        of: String,
        /// Only every n-th row is kept.
        every: usize,
        /// In the order of the model's outputs.
        targets: Vec<Pairs>,
    },
    /// Counts of rows by actual and predicted class.
    Classes {
        /// Describes the rows and the weights.
        of: String,
        /// Whether they are test rows, which come before the validation rows of `confusion.csv`.
        are_test: bool,
        /// The classes.
        names: Vec<String>,
        /// Row by row: actual class, then predicted class.
        counts: Vec<u64>,
    },
}

/// A target's true and predicted values.
pub struct Pairs {
    /// The column's name, or `target`.
    pub name: String,
    /// True and predicted values, in the units of the training file.
    pub points: Vec<[f64; 2]>,
    /// R² over all rows.
    pub r2: f64,
    /// Root mean square error over all rows.
    pub rmse: f64,
}

impl Content<'_> {
    /// Adds the confusion matrix of the test rows, else that in a single run's folder, or else the predictions.
    pub(super) fn predicted(&mut self, predicted: Option<&Predicted>) {
        let read = |path: &Path| Ok(Some(csv_file::read(path)?));
        let are_test = matches!(predicted, Some(Predicted::Classes { are_test: true, .. }));
        let has_file = self.comparison.runs.len() == 1 && !are_test;
        match has_file.then(|| self.file_of(0, "confusion.csv", read)).flatten() {
            Some(file) => {
                let names = |names: &mut dyn Iterator<Item = &str>| names.map(str::to_owned).collect();
                let predicted: Vec<String> = names(&mut file.columns.iter().skip(1));
                let actual: Vec<String> = names(&mut file.rows.iter().filter_map(|row| row.get(0)));
                let cells = file.rows.iter().flat_map(|row| row.iter().skip(1));
                let counts: Vec<u64> = cells.map(|count| count.parse().unwrap_or(0)).collect();
                let of = self.rows_of_confusion(counts.iter().sum());
                self.confusion(&of, &Matrix { actual: &actual, predicted: &predicted, counts: &counts });
            }
            None => match predicted {
                Some(Predicted::Classes { of, names, counts, .. }) => {
                    self.confusion(of, &Matrix { actual: names, predicted: names, counts });
                }
                Some(Predicted::Numbers { of, every, targets }) => {
                    self.section("predicted", "Predicted against true", |content, html| {
                        content.points(html, targets);
                        let every =
                            if *every > 1 { format!("; one of {every} is drawn") } else { String::new() };
                        let more = targets.len().saturating_sub(MOST_TARGETS);
                        let more =
                            if more > 0 { format!("; {more} more targets are not") } else { String::new() };
                        html.prose("note", &format!("{of}{every}{more}."));
                    });
                }
                None => {}
            },
        }
    }

    /// The command that says which columns a run's model relies on: that takes too long for a page.
    pub(super) fn importance(&mut self) {
        let run = &self.comparison.runs[0];
        // Without test rows, others must be named.
        let has_test = run.axis("data.split.test").is_some_and(|test| test.parse() != Ok(0.0));
        let words = ["runner", "evaluate", &run.path].into_iter();
        let command = command_line(words.chain((!has_test).then_some("DATA")).chain(["--importance"]));
        let of = if has_test { "the test rows" } else { "the rows of the file DATA" };
        let words = format!(
            "`{command}` prints how much worse the model is with the values of each column permuted among {of}."
        );
        self.section("importance", "Which columns matter", |_, html| html.prose("note", &words));
    }

    fn points(&mut self, html: &mut Html, targets: &[Pairs]) {
        html.with("div", &[("class", &"panels")], |html| {
            for target in targets.iter().take(MOST_TARGETS) {
                let values = || target.points.iter().flatten().copied().filter(|value| value.is_finite());
                let (low, high) =
                    (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
                if low > high {
                    continue;
                }
                let axis = || Axis::new(low, high, 5, true);
                let frame = Frame::new(340.0, 320.0, axis(), axis()).with_large_figures();
                let drawing = frame.draw(["true", "predicted"], &frame.ticks(), |html| {
                    let ends = [low, high].map(|end| [frame.across(end), frame.up(end)]);
                    svg::polyline(html, "ideal", ends.into_iter());
                    for &[actual, predicted] in
                        target.points.iter().filter(|pair| pair.iter().all(|v| v.is_finite()))
                    {
                        let at = [frame.across(actual), frame.up(predicted)];
                        html.empty(
                            "circle",
                            &[("class", &"f0 point"), ("cx", &at[0]), ("cy", &at[1]), ("r", &2.5)],
                        );
                    }
                });
                let (r2, rmse) = (units::number(target.r2), units::number(target.rmse));
                let title = format!("{}: R\u{b2} {r2}, RMSE {rmse}", target.name);
                let label =
                    format!("Predicted against true values of {title}; the line is where both are equal");
                self.figure(html, (&format!("predicted-{}", target.name), &title, &label), drawing);
            }
        });
    }
}
