//! `sweep.stop`: ends unpromising trials early.

use super::super::{
    LabSpec, Spec,
    monitor::Monitor,
    reader::{choices, count, table},
};

choices! {
    /// When trials stop before their last epoch.
    pub enum Stop as "rule" {
        /// Successive halving: at `min_epochs`, and at each multiple of that by powers of `factor`, the best of the trials go on.
        Asha(Halving) = "asha",
    }
}

table! {
    /// Successive halving.
    #[derive(Copy)]
    pub struct Halving {
        /// What trials are judged by at the last validation before a rung: a metric that validations measure.
        pub metric: Monitor = Monitor::LOSS,
        /// Epochs until the first rung.
        pub min_epochs: u64 = 1 => count,
        /// One in `factor` trials goes on, for `factor` times the epochs.
        pub factor: u64 = 3 => |v| v.integer(2..=1000),
    }
}

impl Halving {
    /// The epochs, below `epochs`, at which trials are compared.
    pub fn rungs(self, epochs: u64) -> impl Iterator<Item = u64> {
        let next = move |rung: &u64| rung.checked_mul(self.factor);
        std::iter::successors(Some(self.min_epochs), next).take_while(move |rung| *rung < epochs)
    }

    /// The rank of the worst trial that goes on, of this number of trials at a rung.
    pub fn promoted(self, trials: usize) -> usize {
        (trials / self.factor as usize).max(1)
    }

    /// Pairs (epoch, trials): about how many of `trials` run up to each rung, then to the end, if all have
    /// `epochs` epochs.
    pub fn plan(self, trials: usize, epochs: u64) -> Vec<(u64, usize)> {
        let next = |left: &mut usize, rung| {
            let here = *left;
            *left = self.promoted(here);
            Some((rung, here))
        };
        self.rungs(epochs).chain([epochs]).scan(trials, next).collect()
    }
}

/// Whether trials of a kind can be compared.
pub(crate) trait Judged {
    /// Whether trials can be compared at the rungs.
    ///
    /// # Errors
    /// Why not, and a hint.
    fn check(&self, halving: &Halving) -> Result<(), [String; 2]>;

    /// Whether a trial ends with a value that a sampler can learn from.
    ///
    /// # Errors
    /// Why not, and a hint.
    fn check_value(&self) -> Result<(), [String; 2]>;
}

impl Judged for Spec {
    fn check(&self, halving: &Halving) -> Result<(), [String; 2]> {
        let refuse = |why: String, hint: &str| Err([why, hint.to_owned()]);
        let every = self.trainer.validate_every_epochs;
        if !self.data.has_validation() {
            return refuse("trials have no rows to validate on".to_owned(), &self.data.set_aside());
        }
        if every == 0 || !halving.min_epochs.is_multiple_of(every) {
            let why = format!("no validation stands at epoch {}", halving.min_epochs);
            return refuse(why, "set `trainer.validate_every_epochs = 1`");
        }
        let metric = halving.metric.metric();
        if metric.is_of_classes() && !self.model.loss.classifies() {
            return refuse(format!("{metric} needs classes"), "set `metric = \"validation.loss\"`");
        }
        if metric.is_of_numbers() && self.model.loss.classifies() {
            return refuse(format!("{metric} needs numeric targets"), "set `metric = \"validation.loss\"`");
        }
        let is_monitored = || self.monitors().any(|(_, monitor)| monitor == halving.metric);
        let is_measured = match halving.metric.target() {
            Some(_) => is_monitored(),
            None => !metric.needs_predictions() || self.scores().contains(&metric),
        };
        if !is_measured {
            let why = format!("no validation measures `{}`", halving.metric.column());
            return Err([why, format!("set `trainer.monitor = \"{}\"` too", halving.metric.name())]);
        }
        Ok(())
    }

    fn check_value(&self) -> Result<(), [String; 2]> {
        if self.trainer.validate_every_epochs > 0 && self.data.has_validation() {
            return Ok(());
        }
        let hint =
            "set aside rows, such as `validation_fraction = 0.2`, and `trainer.validate_every_epochs = 1`";
        Err(["it learns from validations, and trials have none".to_owned(), hint.to_owned()])
    }
}

impl Judged for LabSpec {
    fn check(&self, _: &Halving) -> Result<(), [String; 2]> {
        Err(["only trainings have epochs".to_owned(), "leave `sweep.stop` out".to_owned()])
    }

    fn check_value(&self) -> Result<(), [String; 2]> {
        Err([
            "it learns from validations, and only trainings have some".to_owned(),
            "use `random` or `sobol`".to_owned(),
        ])
    }
}
