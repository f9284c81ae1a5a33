//! Runs the model on the CPU: rows arrive in blocks of any size and go through the validation program in
//! chunks, as during training.

use std::sync::Arc;

use super::{PredictError, Trained, far::Far, pass::Pass};
use crate::{
    data::{NewRows, RowBlock},
    plan::validation_rows,
    units,
};

/// Receives a chunk's predictions (`[rows, outputs]`), its targets, and the cells that are kept beside it.
pub type Take<'a> = &'a mut dyn FnMut(&[f32], &[f32], &[String]) -> Result<(), PredictError>;

/// Sends all rows through the model, chunk by chunk. Returns the number of rows, the sum of their losses and
/// the number of correct predictions. `see` receives the rows as they come, `warn` warnings about them.
pub fn forward(
    trained: &Trained,
    rows: &mut NewRows<'_>,
    see: &mut dyn FnMut(&RowBlock),
    warn: &mut dyn FnMut(String),
    take: Take<'_>,
) -> Result<(usize, [f64; 2]), PredictError> {
    let (mut forward, mut not_finite, mut is_first) = (Forward::new(trained), 0, true);
    let mut take = |predictions: &[f32], targets: &[f32], kept: &[String]| {
        let rows = predictions.chunks_exact(trained.outputs);
        not_finite += rows.filter(|row| !row.iter().all(|y| y.is_finite())).count();
        take(predictions, targets, kept)
    };
    let mut far = Far::new(&trained.data);
    while let Some(block) = rows.next_block()? {
        far.see(&block);
        see(&block);
        if std::mem::take(&mut is_first) && !rows.unused().is_empty() {
            warn(format!("columns that the model does not use: {}", quoted(rows.unused())));
        }
        forward.push(block, &mut take)?;
    }
    let done = forward.finish(&mut take)?;
    far.warnings().into_iter().for_each(&mut *warn);
    for (column, count) in rows.unknown_categories() {
        let [count, all] = [count, done.0].map(|count| units::count(count as u64));
        warn(format!(
            "`{column}`: {count} of {all} rows have no category of the training file, so its inputs are 0"
        ));
    }
    if not_finite > 0 {
        warn(format!("rows with an output that is not a finite number: {not_finite}"));
    }
    Ok(done)
}

/// Quotes names for a sentence; if there are many, only the first ones.
pub fn quoted(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// A model with its pending rows.
struct Forward<'a> {
    trained: &'a Trained,
    /// Rows that do not yet fill a chunk.
    pending: RowBlock,
    /// Rows per chunk.
    chunk: usize,
    pass: Option<Pass>,
    rows: usize,
}

impl<'a> Forward<'a> {
    fn new(trained: &'a Trained) -> Self {
        let chunk = validation_rows(trained.spec.data.batch_size);
        Self { trained, pending: RowBlock::default(), chunk, pass: None, rows: 0 }
    }

    /// Adds rows and processes all complete chunks.
    fn push(&mut self, block: RowBlock, take: Take<'_>) -> Result<(), PredictError> {
        let (width, targets) = (self.trained.features, self.trained.data.target_width());
        self.pending.features.extend_from_slice(&block.features);
        self.pending.targets.extend_from_slice(&block.targets);
        self.pending.rows += block.rows;
        let each = block.kept.len() / block.rows.max(1);
        self.pending.kept.extend(block.kept);
        let (chunk, mut done) = (self.chunk, 0);
        while self.pending.rows - done >= chunk {
            let features = self.pending.features[done * width..(done + chunk) * width].to_vec();
            let own = self.pending.targets.get(done * targets..(done + chunk) * targets);
            let own = own.unwrap_or_default().to_vec();
            let pass = match &mut self.pass {
                Some(pass) => pass,
                none => none.insert(Pass::new(self.trained, chunk)?),
            };
            run(
                pass,
                targets,
                (features, own),
                &self.pending.kept[done * each..(done + chunk) * each],
                take,
            )?;
            done += chunk;
        }
        self.rows += block.rows;
        self.pending.rows -= done;
        self.pending.features.drain(..done * width);
        self.pending.kept.drain(..done * each);
        self.pending.targets.drain(..(done * targets).min(self.pending.targets.len()));
        Ok(())
    }

    /// Processes the last, incomplete chunk. Returns the number of all rows, the sum of their losses and the
    /// number of correct predictions.
    fn finish(mut self, take: Take<'_>) -> Result<(usize, [f64; 2]), PredictError> {
        let mut sums = self.pass.as_mut().map_or(Ok([0.0; 2]), Pass::sums)?;
        let RowBlock { rows, features, targets, kept } = self.pending;
        if rows > 0 {
            let mut last = Pass::new(self.trained, rows)?;
            run(&mut last, self.trained.data.target_width(), (features, targets), &kept, take)?;
            sums.iter_mut().zip(last.sums()?).for_each(|(sum, own)| *sum += own);
        }
        Ok((self.rows, sums))
    }
}

/// Runs a chunk. Rows without targets get zeros as targets, and a loss that is ignored.
fn run(
    pass: &mut Pass,
    width: usize,
    (features, mut targets): (Vec<f32>, Vec<f32>),
    kept: &[String],
    take: Take<'_>,
) -> Result<(), PredictError> {
    targets.resize(pass.rows * width, 0.0);
    let targets = Arc::new(targets);
    let prediction = pass.run(features, &targets)?;
    take(&prediction, &targets, kept)
}
