//! The error of a condition on a metric without a statistic over the runs.

use super::super::{ReportError, comparison::Comparison, metric::Metric};

/// The error of `condition`, which begins with `metric`, with what is meant.
pub(super) fn without_statistic(condition: &str, metric: &str, own: &Comparison) -> ReportError {
    let name = match Metric::nearest(metric, &own.runs) {
        Ok(name) => name,
        Err(unknown) => return unknown,
    };
    let bound = condition.trim_start().strip_prefix(metric).unwrap_or_default();
    let hint = format!("write `mean({name}){bound}` or `median({name}){bound}`");
    ReportError::query(format!("`{condition}` lacks `mean` or `median`"), Some(&hint))
}
