//! What planned trials share. A sweep plans all its trials before the first one runs; thousands of them often
//! differ only in learning rates and seeds, so their plans, their programs and most tables of their specs are
//! equal.

use std::{collections::VecDeque, sync::Arc};

use crate::plan::Trial;

/// Number of trials to share with, the newest ones.
const KEPT: usize = 16;

#[derive(Default)]
pub struct SharedPlans(VecDeque<Trial>);

impl SharedPlans {
    /// Replaces what a trial has equal to an earlier one by that of the earlier one.
    pub fn share(&mut self, trial: &mut Trial) {
        if !self.0.iter().any(|kept| trial.share_with(kept)) {
            let kept = self.0.iter().flat_map(|kept| std::iter::once(&kept.programs).chain(&kept.peers));
            let kept: Vec<_> = kept.map(Arc::clone).collect();
            let plan = &mut *trial.plan;
            for programs in std::iter::once(&mut plan.programs).chain(&mut plan.peers) {
                if let Some(equal) = kept.iter().find(|kept| *kept == programs) {
                    *programs = Arc::clone(equal);
                }
            }
        }
        self.0.truncate(KEPT - 1);
        self.0.push_front(trial.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;
    use crate::{
        plan::Machine,
        run::{Datasets, Planned},
        spec,
    };

    #[test]
    fn equal_parts_of_trials_are_kept_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.toml");
        let text = "[data.synthetic_regression]\nweights = [1.0]\n[model]\nlayers = [{ linear = { out_features = 1 } }]\n\
                    loss = \"mse\"\n[optimizer.sgd]\nlr = 0.1\n";
        std::fs::write(&path, text).expect("a spec");
        let axes = ["trainer.max_epochs=1,2", "seed=1,2", "optimizer.sgd.lr=0.1,0.2"].map(str::to_owned);
        let experiment = spec::load(&path, &axes).unwrap_or_else(|_| panic!("a spec"));
        let machine = Machine::typical(Vec::new(), 1 << 30);
        let mut datasets = Datasets::new(&machine);
        let plan = |trial: &spec::TrialSpec| Trial::plan(&trial.spec, &mut datasets, &machine, 1).ok();
        let trials: Vec<Trial> = experiment.trials.iter().filter_map(plan).collect();
        let [first, second, third, .., last] = &trials[..] else { panic!("{} trials", trials.len()) };
        for other in [second, third] {
            assert!(ptr::eq(&*first.plan, &*other.plan));
            assert!(ptr::eq(&*first.spec.model, &*other.spec.model));
            assert!(ptr::eq(&*first.spec.logging, &*other.spec.logging));
        }
        assert!(!ptr::eq(&*first.plan, &*last.plan) && Arc::ptr_eq(&first.programs, &last.programs));
        let known = |trial: &Trial| (trial.steps, trial.spec.seed, trial.spec.optimizer.lr());
        assert_eq!(
            [first, second, third, last].map(known),
            [(32, 1, 0.1), (32, 1, 0.2), (32, 2, 0.1), (64, 2, 0.2)]
        );
    }
}
