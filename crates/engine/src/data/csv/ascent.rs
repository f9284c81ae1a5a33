//! Whether the cells of a column are dates and times that ascend through a file. Numbers that ascend may be anything: a table that is
//! sorted by age is not in the order of time.

/// Fewer values tell no order.
const FEWEST: usize = 3;

/// Year, month, day, hour, minute, second, nanosecond.
type Moment = [u32; 7];

/// The two orders of day and month where the year comes last.
const DAY_FIRST: [bool; 2] = [true, false];

/// What is known after some of the cells.
#[derive(Debug, Default)]
pub(super) struct Ascending {
    cells: usize,
    /// The last cell read as a date, by [`DAY_FIRST`], and how many are above the one before.
    dates: [Option<(Moment, usize)>; 2],
    /// Whether a cell so far is no date, or below the one before.
    falls: [bool; 2],
}

impl Ascending {
    /// Takes the next cell.
    pub(super) fn take(&mut self, cell: &str) {
        self.cells += 1;
        let Self { dates, falls, .. } = self;
        for ((last, falls), day_first) in dates.iter_mut().zip(falls).zip(DAY_FIRST) {
            if !*falls {
                let read = moment(cell, day_first);
                let next =
                    read.map(|own| (own, last.map_or(0, |(last, rises)| rises + usize::from(own > last))));
                *falls = next.is_none_or(|(own, _)| last.is_some_and(|(last, _)| own < last));
                *last = next;
            }
        }
    }

    /// Whether all `rows` cells do.
    pub(super) fn found(&self, rows: usize) -> bool {
        let rises =
            |place: usize| self.dates[place].filter(|_| !self.falls[place]).map_or(0, |(_, rises)| rises);
        self.cells == rows && rises(0).max(rises(1)) + 1 >= FEWEST
    }
}

/// Reads `2024-06-04`, `2024-06`, `20240604`, `4.6.2024` or `6/4/2024`, perhaps with a time of day after a space, a comma or `T`, as
/// in `2024-06-04T13:05:10.25Z` or `6/4/2024 1:05 PM`. The distance to UTC is not read: in a file it changes by an hour at most.
fn moment(cell: &str, day_first: bool) -> Option<Moment> {
    let (date, time) = match cell.find(['T', ' ', ',']) {
        Some(end) => (&cell[..end], cell[end + 1..].trim()),
        None => (cell, ""),
    };
    let [year, month, day] = date_of(date, day_first)?;
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
    let [hour, minute, second, nano] = if time.is_empty() { [0; 4] } else { time_of(time)? };
    let is_time = hour < 24 && minute < 60 && second <= 60;
    (is_date && is_time).then_some([year, month, day, hour, minute, second, nano])
}

fn number(digits: &str) -> Option<u32> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn date_of(date: &str, day_first: bool) -> Option<[u32; 3]> {
    if date.len() == 8 && number(date).is_some() {
        let year = number(&date[..4]).filter(|year| (1900..2100).contains(year))?;
        return Some([year, number(&date[4..6])?, number(&date[6..])?]);
    }
    let parts: Vec<&str> = date.split(['-', '/', '.']).collect();
    let is_year = |part: &str| part.len() == 4;
    match parts[..] {
        [year, month] if is_year(year) && month.len() == 2 => Some([number(year)?, number(month)?, 1]),
        [year, month, day] if is_year(year) => Some([number(year)?, number(month)?, number(day)?]),
        [a, b, year] if is_year(year) => {
            let (day, month) = if day_first { (a, b) } else { (b, a) };
            Some([number(year)?, number(month)?, number(day)?])
        }
        _ => None,
    }
}

fn time_of(time: &str) -> Option<[u32; 4]> {
    let time = time.trim_end_matches("UTC").trim_end_matches('Z');
    let time = time.find(['+', '-']).map_or(time, |end| &time[..end]).trim();
    let upper = time.to_ascii_uppercase();
    let half = ["AM", "PM"].into_iter().find_map(|half| Some((half, upper.strip_suffix(half)?.trim_end())));
    let (half, time) = half.map_or((None, time), |(half, time)| (Some(half), time));
    let parts: Vec<&str> = time.split(':').collect();
    let ([hour, minute], second) = match parts[..] {
        [hour, minute] => ([hour, minute], "0"),
        [hour, minute, second] => ([hour, minute], second),
        _ => return None,
    };
    let hour = match (number(hour)?, half) {
        (hour, None) => hour,
        (hour @ 1..=12, Some(half)) => hour % 12 + if half == "PM" { 12 } else { 0 },
        _ => return None,
    };
    let (second, fraction) = second.split_once('.').unwrap_or((second, "0"));
    let nano = number(format!("{fraction:0<9}").get(..9)?)?;
    Some([hour, number(minute)?, number(second)?, nano])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(cells: &[&str]) -> bool {
        let mut column = Ascending::default();
        cells.iter().for_each(|cell| column.take(cell));
        column.found(cells.len())
    }

    #[test]
    fn dates_ascend_as_they_are_written() {
        for cells in [
            ["2024-01-31", "2024-02-01", "2024-02-01", "2024-03-01"],
            ["2024-01", "2024-02", "2024-12", "2025-01"],
            ["20231231", "20240101", "20240131", "20240201"],
            ["31.12.2023", "1.1.2024", "31.1.2024", "1.2.2024"],
            ["12/31/2023", "1/1/2024", "1/31/2024", "2/1/2024"],
            ["2024-01-01 09:59:59", "2024-01-01 10:00", "2024-01-01 10:00:00.5", "2024-01-01 10:00:00.75"],
            [
                "2024-01-01T00:00:00Z",
                "2024-01-01T00:00:01Z",
                "2024-01-01T12:00:00+02:00",
                "2024-01-02T00:00:00Z",
            ],
            ["1/1/2024 12:05 AM", "1/1/2024 1:05 AM", "1/1/2024 12:05 PM", "1/1/2024 1:05 pm"],
        ] {
            assert!(found(&cells), "{cells:?}");
            let down: Vec<&str> = cells.iter().rev().copied().collect();
            assert!(!found(&down), "{down:?}");
        }
    }

    #[test]
    fn what_tells_no_order() {
        for cells in [
            &["2024-01-01", "2024-01-02"][..],
            &["2024-01-01", "2024-01-01", "2024-01-02"],
            &["2024-01-01", "", "2024-01-02", "2024-01-03"],
            &["2024-13-01", "2024-13-02", "2024-13-03"],
            &["10:00", "10:01", "10:02"],
            &["1.2.3", "1.2.4", "1.2.5"],
            &["a", "b", "c"],
            &["é-1-2024", "日本語日本語日本", "T"],
            &["0.5", "0.75", "3"],
        ] {
            assert!(!found(cells), "{cells:?}");
        }
        let mut column = Ascending::default();
        ["2024-01-01", "2024-01-02", "2024-01-03"].iter().for_each(|cell| column.take(cell));
        assert!(column.found(3) && !column.found(4), "a cell is missing");
    }
}
