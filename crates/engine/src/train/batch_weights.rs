//! With weights of rows or classes: what the losses of a step's rows are multiplied by, so that their mean over rows is the
//! weighted mean. It depends on which rows the batch has, on all devices together, so the host computes it, in f64.

use std::{io, sync::Arc};

use crate::{
    data::{Dataset, epoch_order},
    device::make_room,
    op::Hyper,
    plan::Trial,
};

pub(super) struct BatchWeights {
    /// `[rows, width]`: the targets of each training row, and last its weight.
    targets: Arc<Vec<f32>>,
    width: usize,
    batch: usize,
    /// What draws the orders, if rows are shuffled.
    seed: Option<u64>,
    /// The order of `epoch`.
    order: Vec<u32>,
    /// 0 before the first one.
    epoch: u64,
}

impl BatchWeights {
    /// `None` without weights.
    pub fn new(trial: &Trial, dataset: &Dataset) -> Option<Self> {
        dataset.weighted.then(|| Self {
            targets: Arc::clone(&dataset.train.targets),
            width: dataset.target_width(),
            batch: trial.programs.train.batch,
            seed: trial.spec.data.shuffle.then(|| trial.spec.shuffle_seed()),
            order: Vec::new(),
            epoch: 0,
        })
    }

    /// Sets `loss_scale` of the steps from `step` on, counted from 0. It is 0 where the weights of a batch add up to 0: its loss
    /// and gradient are 0 then.
    ///
    /// # Errors
    /// Memory does not hold the order of an epoch.
    pub fn fill(&mut self, step: u64, hyper: &mut [Hyper]) -> io::Result<()> {
        let rows = self.targets.len() / self.width;
        let per_epoch = rows.div_ceil(self.batch) as u64;
        for (step, hyper) in (step..).zip(hyper) {
            self.begin(step / per_epoch + 1, rows)?;
            let first = (step % per_epoch) as usize * self.batch;
            let positions = first..rows.min(first + self.batch);
            let count = positions.len();
            let weight = |row: usize| f64::from(self.targets[(row + 1) * self.width - 1]);
            let sum: f64 = match self.seed {
                Some(_) => self.order[positions].iter().map(|row| weight(*row as usize)).sum(),
                None => positions.map(weight).sum(),
            };
            hyper.loss_scale = if sum > 0.0 { (count as f64 / sum) as f32 } else { 0.0 };
        }
        Ok(())
    }

    fn begin(&mut self, epoch: u64, rows: usize) -> io::Result<()> {
        if let Some(seed) = self.seed.filter(|_| self.epoch != epoch) {
            self.order.clear();
            make_room(&mut self.order, rows, "their order")?;
            epoch_order(seed, epoch, rows as u32, &mut self.order);
            self.epoch = epoch;
        }
        Ok(())
    }
}
