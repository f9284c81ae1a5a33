//! What the name of a table's column says of it: an identifier, a group, a weight of rows, or a time.

use crate::data::ColumnProfile;

/// Of fewer rows, many a column of whole numbers has another one in nearly every row.
pub(super) const ROWS_TO_DOUBT: usize = 50;

/// What has several rows in many a table, which are alike.
const GROUPS: [&str; 26] = [
    "person",
    "patient",
    "subject",
    "participant",
    "respondent",
    "proband",
    "individual",
    "student",
    "pupil",
    "employee",
    "user",
    "customer",
    "client",
    "member",
    "player",
    "driver",
    "household",
    "family",
    "school",
    "hospital",
    "clinic",
    "site",
    "animal",
    "specimen",
    "session",
    "device",
];

/// A column with fewer values may be of kinds, such as new and old customers.
const FEWEST_GROUPS: usize = 10;

/// Whether a name is one of an index or an identifier: `id`, `customer_id`, `CustomerID`, `Unnamed: 0`.
pub(super) fn is_of_identity(name: &str, rows: usize) -> bool {
    let words = words(name);
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["unnamed", number] => number.bytes().all(|byte| byte.is_ascii_digit()),
        ["id" | "uuid" | "guid", ..] | [.., "id" | "uuid" | "guid"] => true,
        ["rowid" | "rownum" | "rownumber"] => true,
        // An index may also be one of prices, in a short table.
        ["index" | "idx" | "row"] => rows >= ROWS_TO_DOUBT,
        ["row" | "record" | "line", "index" | "number" | "num" | "no" | "nr"] => true,
        _ => false,
    }
}

/// Whether its name says whose the rows are, such as `patient` or `Customer No`, and it has too many values for kinds of these.
pub(super) fn is_of_group(column: &ColumnProfile) -> bool {
    let words = words(&column.name);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let last = match words[..] {
        [.., last, "no" | "nr" | "num" | "number" | "code" | "key" | "name"] | [.., last] => last,
        [] => return false,
    };
    let tells = column.is_whole || !column.is_numeric();
    GROUPS.contains(&last) && tells && column.different >= FEWEST_GROUPS
}

/// Whether a name is one of weights of rows: `sample_weight`, `SurveyWeight`, `fnlwgt`.
pub(super) fn is_of_weight(name: &str) -> bool {
    let words = words(name);
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["weights" | "wgt" | "fnlwgt" | "pweight" | "exposure"] => true,
        [what, "weight" | "weights" | "wgt"] => [
            "sample",
            "sampling",
            "survey",
            "design",
            "row",
            "case",
            "observation",
            "obs",
            "frequency",
            "freq",
            "event",
            "final",
        ]
        .contains(&what),
        _ => false,
    }
}

/// The words of a name in lower case; a capital after a small letter, or before one, begins a word.
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let (mut words, mut word) = (Vec::new(), String::new());
    for (place, &letter) in letters.iter().enumerate() {
        let before = place.checked_sub(1).map(|place| letters[place]);
        let after = letters.get(place + 1);
        let begins = letter.is_uppercase()
            && (before.is_some_and(char::is_lowercase) || after.is_some_and(|after| after.is_lowercase()));
        if begins || !letter.is_alphanumeric() {
            words.push(std::mem::take(&mut word));
        }
        if letter.is_alphanumeric() {
            word.extend(letter.to_lowercase());
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// Whether numbers with this name are times, if they are in order.
pub(super) fn is_of_time(name: &str) -> bool {
    const TIMES: [&str; 9] =
        ["time", "timestamp", "date", "datetime", "day", "week", "month", "quarter", "year"];
    words(name).iter().any(|word| TIMES.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_say_whose_the_rows_are() {
        let is_of_group = |name: &str, different: usize, is_whole: bool| {
            let mut column = ColumnProfile::default();
            (column.name, column.numbers) = (name.to_owned(), 300);
            (column.different, column.is_whole) = (different, is_whole);
            is_of_group(&column)
        };
        for name in ["patient", "Patient", "CustomerNo", "study_subject", "Household Number", "site code"] {
            assert!(is_of_group(name, FEWEST_GROUPS, true), "{name}");
            assert!(!is_of_group(name, FEWEST_GROUPS - 1, true), "few values: {name}");
            assert!(!is_of_group(name, FEWEST_GROUPS, false), "decimals: {name}");
        }
        for name in
            ["", "patients", "patient_age", "users", "number", "website", "impatient", "customer type"]
        {
            assert!(!is_of_group(name, 40, true), "{name}");
        }
    }

    #[test]
    fn names_that_say_identity() {
        for name in [
            "id",
            "ID",
            "house_id",
            "id_house",
            "Customer ID",
            "customerId",
            "CustomerID",
            "PassengerId",
            "IDCustomer",
        ] {
            assert!(is_of_identity(name, ROWS_TO_DOUBT), "{name}");
        }
        for name in ["index", "Index", "uuid", "Unnamed: 0", "row", "Row Number", "row_no", "rowid"] {
            assert!(is_of_identity(name, ROWS_TO_DOUBT), "{name}");
        }
        for name in
            ["", "width", "paid", "acid", "Unnamed: x", "body_mass_index", "rows", "idle", "number", "Idaho"]
        {
            assert!(!is_of_identity(name, ROWS_TO_DOUBT), "{name}");
        }
    }
}
