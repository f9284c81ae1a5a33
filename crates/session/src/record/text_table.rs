//! Tables as text, without lines between their cells.

use unicode_width::UnicodeWidthStr;

use crate::host::escape_line;

/// Two spaces between columns as wide as their widest cell; `is_number` names those that are aligned to the right.
pub fn aligned<S: AsRef<str>>(rows: &[Vec<S>], is_number: impl Fn(usize) -> bool) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| Some(row.get(column)?.as_ref().width())).max();
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<S>| {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let (cell, room) = (cell.as_ref(), " ".repeat(width - cell.as_ref().width()));
            let (left, right) = if is_number(column) { (room.as_str(), "") } else { ("", room.as_str()) };
            line += &[if column > 0 { "  " } else { "" }, left, cell, right].concat();
        }
        line.truncate(line.trim_end().len());
        line
    };
    rows.iter().map(line).collect()
}

/// A heading and a line per row, without empty columns. Columns for which `is_number` is true are
/// right-aligned.
pub fn lines(header: &[&str], rows: &[Vec<String>], is_number: impl Fn(usize) -> bool) -> Vec<String> {
    let is_known =
        |column: &usize| rows.iter().any(|row| row.get(*column).is_some_and(|cell| !cell.is_empty()));
    let known: Vec<usize> = (0..header.len()).filter(is_known).collect();
    let heading = known.iter().map(|&column| header[column].into()).collect();
    let cell = |row: &Vec<String>, column: usize| {
        row.get(column).map_or_else(String::new, |cell| escape_line(cell).into_owned())
    };
    let cells = |row: &Vec<String>| known.iter().map(|&column| cell(row, column)).collect();
    let all: Vec<Vec<String>> = std::iter::once(heading).chain(rows.iter().map(cells)).collect();
    aligned(&all, |place| is_number(known[place]))
}

/// Like [`text`], for a terminal of this width: columns that do not fit stand in further tables below, each with the first column.
pub fn within(
    width: usize,
    header: &[&str],
    rows: &[Vec<String>],
    is_number: impl Fn(usize) -> bool,
) -> String {
    let table = |columns: &[usize]| {
        let header: Vec<&str> = columns.iter().map(|&column| header[column]).collect();
        let cells = |row: &Vec<String>| columns.iter().map(|&column| row[column].clone()).collect();
        text(&header, &rows.iter().map(cells).collect::<Vec<_>>(), |place| is_number(columns[place]))
    };
    let mut tables: Vec<Vec<usize>> = vec![vec![0]];
    for column in 1..header.len() {
        let last = tables.len() - 1;
        tables[last].push(column);
        let is_wide = table(&tables[last]).lines().any(|line| line.width() > width);
        if is_wide && tables[last].len() > 2 {
            tables[last].pop();
            tables.push(vec![0, column]);
        }
    }
    tables.iter().map(|columns| table(columns)).collect::<Vec<_>>().join("\n")
}

/// Like [`lines()`], indented by two columns.
pub fn text(header: &[&str], rows: &[Vec<String>], is_number: impl Fn(usize) -> bool) -> String {
    lines(header, rows, is_number).iter().map(|line| format!("  {line}\n")).collect()
}
