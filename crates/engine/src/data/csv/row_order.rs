//! The order of a column's cells through a file: of dates and times, and of numbers, which may be times.

use std::cmp::Ordering;

/// Fewer values tell no order.
const FEWEST: usize = 3;

/// Seconds since 1970 from September 2001 to May 2033; milliseconds, microseconds and nanoseconds are a thousand times as many.
const SECONDS: [f64; 2] = [1e9, 2e9];

/// Year, month, day, hour, minute, second, nanosecond.
type Moment = [u32; 7];

/// The two orders of day and month where the year comes last.
const DAY_FIRST: [bool; 2] = [true, false];

/// How values change from the first row to the last; neighbours may be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// None is below the one before.
    Ascending,
    /// None is above the one before.
    Descending,
}

/// What is known after some of the cells.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    cells: usize,
    /// By [`DAY_FIRST`].
    dates: [Series<Moment>; 2],
    numbers: Series<f64>,
    /// Whether a number so far is no time since 1970 in each of four units.
    is_no_time: [bool; 4],
}

/// The values of one reading of the cells.
#[derive(Debug, Default)]
struct Series<T> {
    last: Option<T>,
    rises: usize,
    falls: usize,
    /// Whether a cell so far cannot be read so, or it neither ascends nor descends.
    is_over: bool,
}

impl<T: PartialOrd> Series<T> {
    fn take(&mut self, read: impl FnOnce() -> Option<T>) {
        if self.is_over {
            return;
        }
        let own = read();
        if let (Some(own), Some(last)) = (&own, &self.last) {
            match own.partial_cmp(last) {
                Some(Ordering::Greater) => self.rises += 1,
                Some(Ordering::Less) => self.falls += 1,
                _ => {}
            }
        }
        self.is_over = own.is_none() || (self.rises > 0 && self.falls > 0);
        self.last = own;
    }

    fn order(&self) -> Option<RowOrder> {
        let is_long = !self.is_over && self.rises + self.falls + 1 >= FEWEST;
        is_long.then_some(if self.falls == 0 { RowOrder::Ascending } else { RowOrder::Descending })
    }
}

impl Ordered {
    /// Takes the next cell, and its value if it is a number.
    pub(super) fn take(&mut self, cell: &str, number: Option<f64>) {
        self.cells += 1;
        for (series, day_first) in self.dates.iter_mut().zip(DAY_FIRST) {
            series.take(|| moment(cell, day_first));
        }
        let was_over = self.numbers.is_over;
        self.numbers.take(|| number);
        if let Some(value) = number.filter(|_| !was_over) {
            let units = [1.0, 1e3, 1e6, 1e9];
            for (is_no_time, unit) in self.is_no_time.iter_mut().zip(units) {
                *is_no_time |= !(SECONDS[0]..SECONDS[1]).contains(&(value / unit));
            }
        }
    }

    /// The order of all `rows` cells, if they have one; and whether they are times by their look.
    pub(super) fn found(&self, rows: usize) -> (Option<RowOrder>, bool) {
        if self.cells != rows {
            return (None, false);
        }
        let dates = self.dates.iter().find_map(Series::order);
        let numbers = self.numbers.order();
        (dates.or(numbers), dates.is_some() || (numbers.is_some() && self.is_no_time.contains(&false)))
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

/// Whether a cell is a date, or a date and a time of day.
pub(super) fn reads_as_date(cell: &str) -> bool {
    DAY_FIRST.iter().any(|day_first| moment(cell, *day_first).is_some())
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

    fn found(cells: &[&str]) -> (Option<RowOrder>, bool) {
        let mut column = Ordered::default();
        cells.iter().for_each(|cell| column.take(cell, cell.parse().ok()));
        column.found(cells.len())
    }

    #[test]
    fn times_are_in_order_as_they_are_written() {
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
            ["1700000000", "1700000000", "1700000060.5", "1700000120"],
            ["1700000000000", "1700000000001", "1700000060000", "1700000120000"],
            ["1/1/2024 12:05 AM", "1/1/2024 1:05 AM", "1/1/2024 12:05 PM", "1/1/2024 1:05 pm"],
        ] {
            assert_eq!(found(&cells), (Some(RowOrder::Ascending), true), "{cells:?}");
            let down: Vec<&str> = cells.iter().rev().copied().collect();
            assert_eq!(found(&down), (Some(RowOrder::Descending), true), "{down:?}");
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
            &["0.5", "0.75", "0.5"],
            &["5", "5", "5"],
        ] {
            assert_eq!(found(cells), (None, false), "{cells:?}");
        }
        for cells in
            [["0.5", "0.75", "3"], ["2007", "2008", "2009"], ["900000000", "1700000000", "1800000000"]]
        {
            assert_eq!(found(&cells), (Some(RowOrder::Ascending), false), "any numbers: {cells:?}");
        }
        let mut column = Ordered::default();
        ["2024-01-01", "2024-01-02", "2024-01-03"].iter().for_each(|cell| column.take(cell, None));
        assert_eq!([3, 4].map(|rows| column.found(rows).0.is_some()), [true, false], "a cell is missing");
    }
}
