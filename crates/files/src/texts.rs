//! Short texts kept together in one: millions of them, for a sweep with 100,000 trials, would each take dozens of bytes more.

use std::ops::Index;

/// Texts by their positions.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    all: Box<str>,
    /// Where each ends; they come from files of less than 4 GiB.
    ends: Box<[u32]>,
}

impl Texts {
    pub fn get(&self, place: usize) -> Option<&str> {
        let end = *self.ends.get(place)?;
        let begin = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.all.get(begin as usize..end as usize)
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).filter_map(|place| self.get(place))
    }
}

impl Index<usize> for Texts {
    type Output = str;

    fn index(&self, place: usize) -> &str {
        self.get(place).unwrap_or_default()
    }
}

impl<T: AsRef<str>> FromIterator<T> for Texts {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        let (mut all, mut ends) = (String::new(), Vec::new());
        for text in texts {
            all += text.as_ref();
            ends.push(all.len() as u32);
        }
        Self { all: all.into(), ends: ends.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_as_they_were() {
        let texts: Texts = ["a", "", "µs, \"x\"", "0.5"].into_iter().collect();
        assert_eq!(texts.iter().collect::<Vec<_>>(), ["a", "", "µs, \"x\"", "0.5"]);
        assert_eq!([texts.get(2), texts.get(4)], [Some("µs, \"x\""), None]);
        assert_eq!(&texts[3], "0.5");
        assert_eq!(Texts::default().iter().count(), 0);
    }
}
