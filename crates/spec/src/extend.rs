//! A sweep that goes on with more trials: those that it had keep their numbers.

use std::collections::{HashMap, VecDeque};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{
    Loaded,
    experiment::{Experiment, TrialSpec},
    resolved::{changes, to_toml},
};

/// Why a sweep cannot go on as another one, and the way out.
#[derive(Debug)]
pub struct NotExtended {
    /// What would be different.
    pub message: String,
    /// The way out.
    pub hint: &'static str,
}

const KEEPS: &str = "a sweep that goes on keeps its trials, and takes more values of its axes or more `sweep.trials`; run the spec anew for others";

impl Loaded {
    /// How many trials there are.
    pub fn count(&self) -> usize {
        match self {
            Self::Train(experiment) => experiment.trials.len(),
            Self::Lab(experiment) => experiment.trials.len(),
        }
    }

    /// First 8 hex digits of SHA-256 over the resolved specs of all trials.
    pub fn hash8(&self) -> String {
        match self {
            Self::Train(experiment) => experiment.hash8(),
            Self::Lab(experiment) => experiment.hash8(),
        }
    }

    /// These trials with their numbers, then those of `larger` that are not among them.
    ///
    /// # Errors
    /// `larger` lacks some of these trials, or would judge them in another way.
    pub fn extended(&self, larger: Self) -> Result<Self, NotExtended> {
        match (self, larger) {
            (Self::Train(own), Self::Train(larger)) => Ok(Self::Train(Box::new(own.extended(*larger)?))),
            (Self::Lab(own), Self::Lab(larger)) => Ok(Self::Lab(Box::new(own.extended(*larger)?))),
            _ => Err(NotExtended { message: "a sweep keeps its `kind`".to_owned(), hint: KEEPS }),
        }
    }
}

impl<S: Serialize> Experiment<S> {
    fn extended(&self, mut larger: Self) -> Result<Self, NotExtended> {
        let mut places: HashMap<_, VecDeque<usize>> = HashMap::new();
        for trial in &larger.trials {
            places.entry(larger.identity(trial)).or_default().push_back(trial.index);
        }
        let mut number = vec![None; larger.trials.len()];
        let mut lost = Vec::new();
        for trial in &self.trials {
            match places.get_mut(&self.identity(trial)).and_then(VecDeque::pop_front) {
                Some(place) => number[place] = Some(trial.index),
                None => lost.push(trial),
            }
        }
        if let [first, others @ ..] = &lost[..] {
            let others = match others.len() {
                0 => String::new(),
                1 => " (and 1 more trial)".to_owned(),
                more => format!(" (and {more} more trials)"),
            };
            return Err(NotExtended { message: larger.lacks(self, first) + &others, hint: KEEPS });
        }
        if self.stop != larger.stop {
            return Err(NotExtended { message: "a sweep keeps its `sweep.stop`".to_owned(), hint: KEEPS });
        }
        larger.trials.sort_by_key(|trial| number[trial.index].unwrap_or(usize::MAX)); // new ones stay in their order
        larger.trials.iter_mut().enumerate().for_each(|(index, trial)| trial.index = index);
        Ok(larger)
    }

    /// What tells a trial from others: its resolved spec. One that is drawn later has another in the end.
    fn identity(&self, trial: &TrialSpec<S>) -> (bool, [u8; 32]) {
        (trial.index < self.known, Sha256::digest(to_toml(&trial.spec)).into())
    }

    /// In what this experiment differs that lacks a trial of another.
    fn lacks(&self, other: &Self, lost: &TrialSpec<S>) -> String {
        let own = other.values(lost);
        let values = other.axes.iter().zip(&own).filter(|(_, value)| !value.is_empty());
        let values: Vec<String> = values.map(|(key, value)| format!("`{key}` = `{value}`")).collect();
        if values.is_empty() {
            return format!("trial {} would be gone", lost.index); // it has values once it is drawn
        }
        let is_twin = |trial: &&TrialSpec<S>| {
            trial.repeat == lost.repeat && self.axes == other.axes && self.values(trial) == own
        };
        let changed = self.trials.iter().find(is_twin).map(|twin| changes(&lost.spec, &twin.spec));
        match changed.and_then(|changes| changes.into_iter().next()) {
            Some((key, was, is)) => {
                let [was, is] = [was, is].map(|value| value.unwrap_or_else(|| "absent".to_owned()));
                format!("trial {} would change: its `{key}` was {was}, and would be {is}", lost.index)
            }
            None => format!("trial {} would be gone: {}", lost.index, values.join(", ")),
        }
    }
}
