//! Devices that a spec asks for and that are not there.

use std::{collections::BTreeSet, fmt};

/// What a request asks for in vain, and what is used instead. As text it is a sentence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lack {
    pub(super) asked: Asked,
    /// `no GPU can be used (why): the run uses the CPU`.
    pub(super) instead: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    /// So many GPUs.
    Gpus(u32),
    /// GPUs of several trials, and the most of one.
    UpTo(u32),
    /// Devices by these names.
    Names(String),
}

impl Lack {
    /// The same for all trials of a sweep that differ from this one only in how many GPUs they ask for.
    pub fn joined(&self, all: &BTreeSet<&Self>) -> Self {
        let count = |lack: &Self| match lack.asked {
            Asked::Gpus(count) if lack.instead == self.instead => Some(count),
            _ => None,
        };
        let counts: BTreeSet<u32> = all.iter().filter_map(|lack| count(lack)).collect();
        match (&self.asked, counts.last()) {
            (Asked::Gpus(_), Some(most)) if counts.len() > 1 => {
                Self { asked: Asked::UpTo(*most), instead: self.instead.clone() }
            }
            _ => self.clone(),
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.asked {
            Asked::Gpus(1) => f.write_str("`devices.num_gpus` asks for 1 GPU")?,
            Asked::Gpus(count) => write!(f, "`devices.num_gpus` asks for {count} GPUs")?,
            Asked::UpTo(most) => write!(f, "`devices.num_gpus` asks for up to {most} GPUs")?,
            Asked::Names(names) => write!(f, "`devices.use` names {names}")?,
        }
        write!(f, ", but {}", self.instead)
    }
}
