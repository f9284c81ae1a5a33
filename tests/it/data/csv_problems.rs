//! `csv`: rejected files and their messages.

use runner::{
    data::Task,
    spec::{Csv, Missing},
};

use super::{
    csv::{Folder, HOLES, names, read},
    memory,
};

#[test]
fn missing_cells_are_told() {
    let folder = Folder::new(HOLES);
    let spec = Csv { categorical: names(&["kind"]), ..folder.spec("y") };
    assert_eq!(
        folder.problems(spec.clone(), Task::Regression),
        "\
missing cell in column `a`
  --> rows.csv:3:1 | ,x,2
  hint: `data.csv.missing = \"mean\"` fills such cells, `\"drop\"` leaves their rows out
missing cell in column `kind`
  --> rows.csv:4:3 | 5,NA,3
  hint: `data.csv.missing = \"mean\"` fills such cells, `\"drop\"` leaves their rows out
missing cell in column `a`
  --> rows.csv:5:1 | null,y,4
  hint: `data.csv.missing = \"mean\"` fills such cells, `\"drop\"` leaves their rows out
missing cell in the target column `y`
  --> rows.csv:6:5 | 3,x,nan
  hint: `data.csv.missing = \"mean\"` and `\"drop\"` leave such rows out; a target is never filled
"
    );
}

#[test]
fn a_text_column_is_told_once() {
    let rows: String = (0..30).map(|i| format!("{i},NEAR BAY,{i}\n")).collect();
    let folder = Folder::new(format!("a,ocean,y\n{rows}"));
    assert_eq!(
        folder.problems(folder.spec("y"), Task::Regression),
        "\
`NEAR BAY` in column `ocean` is not a number
  --> rows.csv:2:3 | 0,NEAR BAY,0
  label: the first of 30 such cells in column `ocean`
  hint: add `ocean` to `data.csv.categorical` (one-hot) or to `data.csv.ignore`
"
    );
}

#[test]
fn bad_cells_are_told_one_by_one() {
    let folder = Folder::new("ä,b,y\nüü,1,1\n2,inf,2\n3,1e39,1.5x\n4,\"1,5\",4\n5,5,5\n");
    assert_eq!(
        folder.problems(folder.spec("y"), Task::Regression),
        "\
`üü` in column `ä` is not a number
  --> rows.csv:2:1 | üü,1,1
  hint: correct the cell; if it stands for a missing value, name it in `data.csv.missing_values`
`inf` in column `b` is not a finite number
  --> rows.csv:3:3 | 2,inf,2
`1e39` in column `b` is too large for f32
  --> rows.csv:4:3 | 3,1e39,1.5x
`1.5x` in the target column `y` is not a number
  --> rows.csv:4:8 | 3,1e39,1.5x
  hint: for classes use `loss = \"cross_entropy\"`
`1,5` in column `b` is not a number
  --> rows.csv:5:3 | 4,\"1,5\",4
  hint: write decimals with a point, thousands without a mark; or `data.csv.decimal = \",\"` if all decimals come after commas
"
    );
}

#[test]
fn numbers_with_another_mark_are_told() {
    let folder = Folder::new("a;y\n1.5;1,5\n1.234,5;2\n31.12.2024;3\n4;4\n5;5\n6;6\n");
    let spec = Csv { delimiter: ';', decimal: ',', ..folder.spec("y") };
    assert_eq!(
        folder.problems(spec, Task::Regression),
        "\
`1.5` in column `a` is not a number
  --> rows.csv:2:1 | 1.5;1,5
  hint: write decimals with a comma, as `decimal` says, thousands without a mark
`1.234,5` in column `a` is not a number
  --> rows.csv:3:1 | 1.234,5;2
  hint: write decimals with a comma, as `decimal` says, thousands without a mark
`31.12.2024` in column `a` is not a number
  --> rows.csv:4:1 | 31.12.2024;3
  hint: correct the cell; if it stands for a missing value, name it in `data.csv.missing_values`
"
    );
}

#[test]
fn at_most_twenty_problems_are_told() {
    let header: String = (0..30).map(|i| format!("c{i},")).collect();
    let folder = Folder::new(format!("{header}y\n{}1\n", "x,".repeat(30)));
    let text = folder.problems(folder.spec("y"), Task::Regression);
    assert_eq!(text.matches("is not a number").count(), 20);
    assert!(text.ends_with("30 cells and lines are wrong; these were the first\n  --> rows.csv\n"), "{text}");
}

#[test]
fn a_cut_file_is_told() {
    let folder = Folder::new("a,b,y\n1,2,3\n4,5");
    assert_eq!(
        folder.problems(folder.spec("y"), Task::Regression),
        "\
2 cells in this line: expected 3, as in the first
  --> rows.csv:3 | 4,5
  hint: the file ends within this line: it may have been cut while it was copied
"
    );
    let folder = Folder::new("a,y\r\n1,2\r\n1,2,3\r\n1\r\n");
    assert_eq!(
        folder.problems(folder.spec("y"), Task::Regression),
        "\
3 cells in this line: expected 2, as in the first
  --> rows.csv:3 | 1,2,3
  hint: a cell that holds a `,` must be quoted
1 cell in this line: expected 2, as in the first
  --> rows.csv:4 | 1
"
    );
    // Lines that end as they did on a Macintosh.
    let folder = Folder::new("a,y\r1,2\r1,2,3\rx,4\r");
    assert_eq!(
        folder.problems(folder.spec("y"), Task::Regression),
        "\
3 cells in this line: expected 2, as in the first
  --> rows.csv:3 | 1,2,3
  hint: a cell that holds a `,` must be quoted
`x` in column `a` is not a number
  --> rows.csv:4:1 | x,4
  hint: correct the cell; if it stands for a missing value, name it in `data.csv.missing_values`
"
    );
    let folder = Folder::new("a,y\n1,2\n\"3,4\n5,6\n");
    assert_eq!(
        folder.problems(folder.spec("y"), Task::Regression),
        "\
a quoted cell is never closed
  --> rows.csv:3:1 | \"3,4
  hint: close it with `\"`; within quotes a quote is written `\"\"`
"
    );
    let folder = Folder::new("a,\"y\n1,2\n3,4\n");
    assert_eq!(
        folder.problems(folder.spec("y"), Task::Regression),
        "\
a quoted cell is never closed
  --> rows.csv:1:3 | a,\"y
  hint: close it with `\"`; within quotes a quote is written `\"\"`
"
    );
}

#[test]
fn a_file_without_rows_is_told() {
    for (body, expected) in [
        ("", "an empty file: expected a line of column names\n  --> rows.csv\n"),
        ("\n\n", "an empty file: expected a line of column names\n  --> rows.csv\n"),
        ("a,y\n", "a header and no rows\n  --> rows.csv\n"),
        ("a,y", "a header and no rows\n  --> rows.csv\n"),
    ] {
        let folder = Folder::new(body);
        assert_eq!(folder.problems(folder.spec("y"), Task::Regression), expected);
    }
    let folder = Folder::new("a,y\n,1\n2,\n");
    assert_eq!(
        folder.problems(Csv { missing: Missing::Drop, ..folder.spec("y") }, Task::Regression),
        "\
all 2 rows have missing cells
  --> rows.csv
  hint: `data.csv.missing = \"mean\"` fills them, `data.csv.ignore` leaves columns out
"
    );
    let folder = Folder::new("a,y\n,1\n,2\n");
    assert_eq!(
        folder.problems(Csv { missing: Missing::Mean, ..folder.spec("y") }, Task::Regression),
        "\
column `a` has no number in any training row
  --> rows.csv
  hint: leave it out: add `a` to `data.csv.ignore`
"
    );
}

#[test]
fn text_that_is_not_utf8_is_told() {
    let folder = Folder::new(b"a,y\n1,2\nx\xc3\xa4\xff,3\n");
    assert_eq!(
        folder.problems(folder.spec("y"), Task::Regression),
        "not UTF-8: byte `ff`\n  --> rows.csv:3:3\n  hint: save the file as UTF-8\n"
    );
}

#[test]
fn unknown_names_are_told() {
    let folder = Folder::new("longitude,latitude,median_house_value\n1,2,3\n");
    let spec = Csv {
        features: Some(names(&["longitude", "lattitude"])),
        categorical: names(&["ocean"]),
        ignore: names(&["longitude"]),
        ..folder.spec("medain_house_value")
    };
    assert_eq!(
        folder.problems(spec, Task::Regression),
        "\
no column `medain_house_value` in `rows.csv`
  --> data.csv.target
  hint: did you mean `median_house_value`?
no column `ocean` in `rows.csv`
  --> data.csv.categorical.0
  hint: the columns are `longitude`, `latitude`, `median_house_value`
column `longitude` is named twice, here and in `data.csv.ignore.0`
  --> data.csv.features.0
  hint: a column has one purpose
no column `lattitude` in `rows.csv`
  --> data.csv.features.1
  hint: did you mean `latitude`?
"
    );
    let folder = Folder::new("1.5,2\n3,4\n");
    assert_eq!(
        folder.problems(folder.spec("price"), Task::Regression),
        "\
no column `price` in `rows.csv`
  --> data.csv.target
  hint: the first line holds only numbers: if it is no header, `data.csv.header = false`
"
    );
    let folder = Folder::new("a;y\n3;4\n");
    assert_eq!(
        folder.problems(folder.spec("y"), Task::Regression),
        "\
no column `y` in `rows.csv`
  --> data.csv.target
  hint: cells seem to be separated otherwise: `data.csv.delimiter = ';'`
"
    );
}

#[test]
fn columns_that_cannot_be_told_apart_are_told() {
    let folder = Folder::new(",a,a,y\n1,2,3,4\n");
    assert_eq!(
        folder.problems(folder.spec("y"), Task::Regression),
        "\
columns 2 and 3 are both named `a`
  --> rows.csv:1:4 | ,a,a,y
  hint: rename one of them
column 1 has no name
  --> rows.csv:1:1 | ,a,a,y
  hint: name it, or leave it out with `data.csv.ignore = [\"\"]`
"
    );
    let folder = Folder::new(",a,,b,b,y\n1,2,9,8,8,3\n");
    let made = read(Csv { ignore: names(&["", "b"]), ..folder.spec("y") }, Task::Regression);
    assert_eq!(memory(&made.train), [2.0]);
}

#[test]
fn a_file_that_cannot_be_read_is_told() {
    let folder = Folder::new("a,y\n1,2\n");
    let spec = Csv { path: folder.path("row.csv"), ..folder.spec("y") };
    assert_eq!(
        folder.problems(spec, Task::Regression),
        "\
cannot read `row.csv`: no such file or directory
  --> data.csv.path
  hint: a relative path is taken from the folder of the spec; `data.csv.path=PATH` names another file
"
    );
    let spec = Csv { path: folder.path("."), ..folder.spec("y") };
    assert_eq!(
        folder.problems(spec, Task::Regression),
        "\
cannot read `.`: it is a folder: expected a regular file
  --> data.csv.path
  hint: name a file in it
"
    );
}

#[test]
fn an_identifier_is_no_category() {
    let rows: String = (0..5000).map(|i| format!("id{i},{i}\n")).collect();
    let folder = Folder::new(format!("id,y\n{rows}"));
    assert_eq!(
        folder.problems(Csv { categorical: names(&["id"]), ..folder.spec("y") }, Task::Regression),
        "\
column `id` has 5000 categories: expected at most 4096
  --> rows.csv
  hint: a column that names single rows is better left to `data.csv.ignore`
"
    );
}
