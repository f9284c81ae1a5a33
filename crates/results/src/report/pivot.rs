//! `--pivot A,B`: a metric by two keys, folded over everything else.

use std::collections::HashMap;

use super::{
    ReportError,
    comparison::Comparison,
    grid::{self, Column},
    grouping::levels,
    key::short,
    order::Question,
    ranking::{Candidate, Ranking},
};

impl Comparison {
    /// A table for each task: a row per value of the question's first key, a column per value of the second.
    ///
    /// # Errors
    /// A key is unknown, or there are not exactly two.
    pub fn pivot(&self, question: &Question, width: u16) -> Result<String, ReportError> {
        let mut sections: Vec<String> =
            self.judged_apart(question).map(|words| format!("{words}\n")).into_iter().collect();
        let rankings = self.pivoted(question)?;
        for ranking in &rankings {
            let table = grid::table(&ranking.pivot(), 1, width);
            let caveats = self.caveats_of(ranking).into_iter().map(|words| format!("  {words}\n"));
            let caveats: String = caveats.collect();
            sections.push(format!("{}{caveats}\n{table}\n", self.verdict(ranking, &[], width)));
        }
        let is_measured = rankings.iter().any(|ranking| !ranking.metric.is_learned);
        let virtual_times = self.virtual_times().filter(|_| is_measured);
        Ok(sections.join("\n") + &virtual_times.map(|words| format!("  {words}\n")).unwrap_or_default())
    }

    /// The rankings of a question with two keys.
    pub(super) fn pivoted(&self, question: &Question) -> Result<Vec<Ranking>, ReportError> {
        if question.by.len() != 2 {
            return Err(ReportError::query("`--pivot` takes two keys: `--pivot lr,out_features`", None));
        }
        self.rankings(question)
    }
}

impl Ranking {
    /// A row per value of the first key, a column per value of the second.
    pub(super) fn pivot(&self) -> Vec<Column> {
        let values = |key: usize| levels(self.settings.iter().map(|setting| setting.values[key].as_str()));
        let by_values: HashMap<_, &Candidate> =
            self.settings.iter().map(|own| (&own.values[..], own)).collect();
        let names = short(&self.keys);
        let cell = |row: &str, column: &str| {
            let found = by_values.get(&[row.to_owned(), column.to_owned()][..]);
            found.map(|found| self.metric.with_interval(found.value, found.interval)).unwrap_or_default()
        };
        let rows = values(0);
        // An axis that does not vary there has no value.
        let label = |value: &str| if value.is_empty() { "-" } else { value }.to_owned();
        let mut columns = vec![Column::of_numbers(names[0], rows.iter().map(|row| label(row)))];
        for value in values(1) {
            let cells = rows.iter().map(|row| cell(row, value));
            columns.push(Column::of_numbers(&format!("{} {}", names[1], label(value)), cells));
        }
        columns
    }
}
