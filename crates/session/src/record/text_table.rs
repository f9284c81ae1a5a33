//! A table as text, without lines between its cells.

use comfy_table::{CellAlignment, ColumnConstraint, Table, presets};

use crate::host::escape_line;

/// A heading and a line per row, without empty columns. Columns for which `is_number` is true are
/// right-aligned.
pub fn lines(header: &[&str], rows: &[Vec<String>], is_number: impl Fn(usize) -> bool) -> Vec<String> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table.add_rows(rows.iter().map(|row| row.iter().map(|cell| escape_line(cell))));
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if is_number(place) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if rows.iter().all(|row| row.get(place).is_none_or(String::is_empty)) {
            column.set_constraint(ColumnConstraint::Hidden);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Like [`lines()`], indented by two columns.
pub fn text(header: &[&str], rows: &[Vec<String>], is_number: impl Fn(usize) -> bool) -> String {
    lines(header, rows, is_number).iter().map(|line| format!("  {line}\n")).collect()
}
