//! `--pivot A,B`: a metric by two keys, folded over everything else.

use super::{
    ReportError,
    comparison::Comparison,
    grid::{self, Column},
    grouping::distinct,
    key::short,
    order::Question,
    ranking::Ranking,
};

impl Comparison {
    /// A table for each task: a row per value of the question's first key, a column per value of the second.
    ///
    /// # Errors
    /// A key is unknown, or there are not exactly two.
    pub fn pivot(&self, question: &Question, width: u16) -> Result<String, ReportError> {
        let mut sections: Vec<String> =
            self.judged_apart(question).map(|words| format!("{words}\n")).into_iter().collect();
        for ranking in self.pivoted(question)? {
            let table = grid::table(&ranking.pivot(), 1, width);
            sections.push(format!("{}\n{table}\n", self.verdict(&ranking, width)));
        }
        Ok(sections.join("\n"))
    }

    /// The rankings of a question with two keys.
    pub(super) fn pivoted(&self, question: &Question) -> Result<Vec<Ranking>, ReportError> {
        if question.by.len() != 2 {
            let message = "`--pivot` takes two keys: `--pivot lr,out_features`".to_owned();
            return Err(ReportError::Query { message, hint: None });
        }
        self.rankings(question)
    }
}

impl Ranking {
    /// A row per value of the first key, a column per value of the second.
    pub(super) fn pivot(&self) -> Vec<Column> {
        let values = |key: usize| {
            let mut values = distinct(self.settings.iter().map(|setting| setting.values[key].as_str()));
            let number = |value: &str| value.parse::<f64>().unwrap_or(f64::INFINITY);
            values.sort_by(|a, b| number(a).total_cmp(&number(b)).then_with(|| a.cmp(b)));
            values
        };
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        let names = short(&keys);
        let cell = |row: &str, column: &str| {
            let found = self.settings.iter().find(|setting| setting.values == [row, column]);
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
