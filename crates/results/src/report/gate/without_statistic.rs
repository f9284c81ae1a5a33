//! The error of a condition on a metric without a statistic over the runs.

use super::super::{ReportError, comparison::Comparison, filter::Operator, metric::Metric};

/// The error of `condition`, of a metric and a bound, with what is meant; `None` if more is wrong, as in `0.1 < mean(x)` or `a < 1 and b < 2`.
pub(super) fn without_statistic(
    condition: &str,
    [metric, bound]: [&str; 2],
    operator: Operator,
    own: &Comparison,
) -> Option<ReportError> {
    let is_bound = |text: &str| text.trim().parse::<f64>().is_ok() || text.ends_with("baseline");
    let is_order = !matches!(operator, Operator::Equal | Operator::Differs);
    if !is_order || !is_bound(bound) || is_bound(metric) || metric.is_empty() || metric.contains('*') {
        return None;
    }
    let name = match Metric::nearest(metric, &own.runs) {
        Ok(name) => name,
        Err(unknown) => return Some(unknown),
    };
    let rest = condition.trim_start().strip_prefix(metric).unwrap_or_default();
    let hint = format!("write `mean({name}){rest}` or `median({name}){rest}`");
    Some(ReportError::query(format!("`{condition}` lacks `mean` or `median`"), Some(&hint)))
}
