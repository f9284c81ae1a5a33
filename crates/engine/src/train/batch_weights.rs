//! With weights of rows or classes: the weight of each batch, and what the losses of its rows are multiplied by, so that their
//! mean over rows is the weighted mean. It depends on which rows the batch has, on all devices together, so the host computes it, in f64.

use std::{io, ops::Range, sync::Arc};

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
    /// The weights of the batches that were filled in last.
    pub filled: Vec<f64>,
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
            filled: Vec::new(),
        })
    }

    /// Sets `loss_scale` of the steps from `step` on, counted from 0. It is 0 where the weights of a batch add up to 0: its loss
    /// and gradient are 0 then.
    ///
    /// # Errors
    /// Memory does not hold the order of an epoch.
    pub fn fill(&mut self, step: u64, hyper: &mut [Hyper]) -> io::Result<()> {
        self.filled.clear();
        for (step, hyper) in (step..).zip(hyper) {
            let (count, sum) = self.batch(step)?;
            hyper.loss_scale = if sum > 0.0 { (count as f64 / sum) as f32 } else { 0.0 };
            self.filled.push(sum);
        }
        Ok(())
    }

    /// The weight of the batches of these steps, counted from 0.
    ///
    /// # Errors
    /// Memory does not hold the order of an epoch.
    pub fn of_steps(&mut self, mut steps: Range<u64>) -> io::Result<f64> {
        steps.try_fold(0.0, |sum, step| Ok(sum + self.batch(step)?.1))
    }

    /// The rows of a step's batch, and the sum of their weights.
    fn batch(&mut self, step: u64) -> io::Result<(usize, f64)> {
        let rows = self.targets.len() / self.width;
        let per_epoch = rows.div_ceil(self.batch) as u64;
        self.begin(step / per_epoch + 1, rows)?;
        let first = (step % per_epoch) as usize * self.batch;
        let positions = first..rows.min(first + self.batch);
        let count = positions.len();
        let weight = |row: usize| f64::from(self.targets[(row + 1) * self.width - 1]);
        Ok((
            count,
            match self.seed {
                Some(_) => self.order[positions].iter().map(|row| weight(*row as usize)).sum(),
                None => positions.map(weight).sum(),
            },
        ))
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
