//! Runs models on the CPU: rows arrive in blocks of any size and go through the validation program in
//! chunks, as during training. Each of several models reads the rows by itself, since it has a preprocessing of its own.

use std::{collections::VecDeque, sync::Arc};

use super::{
    PredictError, Trained,
    far::Far,
    mean::{MeanOutputs, rescaled},
    pass::Pass,
};
use crate::{
    data::{NewRows, RowBlock, Scale},
    plan::validation_rows,
    train::{DecisionRule, losses_of_rows},
    units,
};

/// Rows as they come out of the model, or of several.
pub struct Chunk<'a> {
    /// `[rows, outputs]`; of several models their mean, as outputs of the first.
    pub outputs: &'a [f32],
    /// `[rows, targets]`, each row with its weight if it has one.
    pub targets: &'a [f32],
    /// The cells that are kept beside the rows.
    pub kept: &'a [String],
    /// The outputs of each of several models, as outputs of the first.
    pub of_models: &'a [Vec<f32>],
}

/// Receives chunks of rows.
pub type Take<'a> = &'a mut dyn FnMut(&Chunk<'_>) -> Result<(), PredictError>;

/// Receives what one model makes of a chunk: its outputs, the targets, and the cells that are kept.
type TakeOne<'a> = &'a mut dyn FnMut(&[f32], &[f32], &[String]) -> Result<(), PredictError>;

/// Sends all rows through the models, chunk by chunk; `rows` has the same ones for each model. Returns the number of rows, the sum of
/// their losses and the number of correct predictions. `see` receives the rows as they come, `warn` warnings about them.
pub fn forward(
    models: &[Trained],
    rows: &mut [NewRows<'_>],
    see: &mut dyn FnMut(&RowBlock),
    warn: &mut dyn FnMut(String),
    take: Take<'_>,
) -> Result<(usize, [f64; 2]), PredictError> {
    let (mut not_finite, mut is_first) = (0, true);
    let mut take = |chunk: &Chunk<'_>| {
        let rows = chunk.outputs.chunks_exact(models[0].outputs);
        not_finite += rows.filter(|row| !row.iter().all(|y| y.is_finite())).count();
        take(chunk)
    };
    let chunk = validation_rows(models[0].spec.data.batch_size);
    let mut passes: Vec<Forward<'_>> = models.iter().map(|model| Forward::new(model, chunk)).collect();
    let mut means = ChunkMeans::new(models);
    let mut far = Far::new(&models[0].data);
    while let Some(blocks) = next_blocks(rows)? {
        far.see(&blocks[0]);
        see(&blocks[0]);
        if std::mem::take(&mut is_first) && !rows[0].unused().is_empty() {
            warn(format!("columns that the model does not use: {}", quoted(rows[0].unused())));
        }
        // The first model completes a chunk.
        for (place, (pass, block)) in passes.iter_mut().zip(blocks).enumerate().rev() {
            pass.push(block, &mut |outputs, targets, kept| {
                means.add(place, outputs, (targets, kept), &mut take)
            })?;
        }
    }
    let mut done = (0, [0.0; 2]);
    for (place, pass) in passes.into_iter().enumerate().rev() {
        done =
            pass.finish(&mut |outputs, targets, kept| means.add(place, outputs, (targets, kept), &mut take))?;
    }
    let done = (done.0, means.sums.unwrap_or(done.1));
    far.warnings().into_iter().for_each(&mut *warn);
    let counted = |(column, count): (String, usize), what: &str| {
        let [count, all] = [count, done.0].map(|count| units::count(count as u64));
        format!("`{column}`: {count} of {all} rows {what}")
    };
    let unknown = rows[0].unknown_categories().into_iter();
    unknown.for_each(|own| {
        warn(counted(own, "have no category of the training file, so its inputs are 0"));
    });
    let missing = rows[0].newly_missing().into_iter();
    missing.for_each(|own| {
        warn(counted(own, "have no number, which the training file never lacks: they take the mean"));
    });
    if not_finite > 0 {
        warn(format!("rows with an output that is not a finite number: {not_finite}"));
    }
    Ok(done)
}

/// The next rows, preprocessed for each model; `None` at the end.
fn next_blocks(rows: &mut [NewRows<'_>]) -> Result<Option<Vec<RowBlock>>, PredictError> {
    let blocks = rows.iter_mut().map(NewRows::next_block).collect::<Result<Vec<_>, _>>()?;
    let count = |block: &Option<RowBlock>| block.as_ref().map(|block| block.rows);
    if blocks.iter().any(|block| count(block) != count(&blocks[0])) {
        return Err(PredictError::RowsApart);
    }
    Ok(blocks.into_iter().collect())
}

/// The sum of the weighted losses of rows, and the number of correct predictions, as the validation program has them.
pub fn sums(trained: &Trained, outputs: &[f32], targets: &[f32]) -> [f64; 2] {
    let (kind, weighted) = (trained.spec.model.loss, trained.data.weight().is_some());
    let (count, width) = (trained.outputs, trained.data.target_width());
    let wide = |values: &[f32]| values.iter().map(|value| f64::from(*value)).collect::<Vec<f64>>();
    let losses = losses_of_rows(kind, &wide(outputs), &wide(targets), (count, weighted));
    let rows = || outputs.chunks_exact(count).zip(targets.chunks_exact(width));
    let weight = |actual: &[f32]| if weighted { f64::from(actual[width - 1]) } else { 1.0 };
    let loss = losses.iter().zip(rows()).map(|(loss, (_, actual))| weight(actual) * loss).sum();
    let is_hit =
        |(outputs, actual): &(&[f32], &[f32])| DecisionRule::default().class(outputs) == actual[0] as usize;
    let hits = if kind.classifies() { rows().filter(is_hit).count() } else { 0 };
    [loss, hits as f64]
}

/// Takes the mean of several models' outputs for a chunk.
struct ChunkMeans<'a> {
    models: &'a [Trained],
    /// The chunks of each model that the first has not come to.
    waiting: Vec<VecDeque<Vec<f32>>>,
    /// The sums for the means; `None` if there is one model, since its program has them.
    sums: Option<[f64; 2]>,
}

impl<'a> ChunkMeans<'a> {
    fn new(models: &'a [Trained]) -> Self {
        let waiting = models.iter().map(|_| VecDeque::new()).collect();
        Self { models, waiting, sums: (models.len() > 1).then_some([0.0; 2]) }
    }

    /// Adds a chunk of the model at `place`. That of the first is its last: then `take` receives the mean.
    fn add(
        &mut self,
        place: usize,
        outputs: &[f32],
        (targets, kept): (&[f32], &[String]),
        take: Take<'_>,
    ) -> Result<(), PredictError> {
        let Some(sums) = &mut self.sums else {
            return take(&Chunk { outputs, targets, kept, of_models: &[] });
        };
        self.waiting[place].push_back(outputs.to_vec());
        if place > 0 {
            return Ok(());
        }
        let first = &self.models[0];
        let scales = first.data.target_scales();
        let mut mean = MeanOutputs::new(first, outputs.len() / first.outputs);
        let mut of_models = Vec::new();
        for (model, waiting) in self.models.iter().zip(&mut self.waiting) {
            let own = waiting.pop_front().ok_or(PredictError::RowsApart)?;
            let from = model.data.target_scales();
            own.chunks_exact(first.outputs)
                .enumerate()
                .for_each(|(row, outputs)| mean.add(row, outputs, &from));
            let original = |scale: &Scale, y: f32| scale.original(y.into());
            of_models.push(rescaled(&own, first.outputs, (&from, &scales), original));
        }
        let outputs = &mean.outputs()[..];
        sums.iter_mut().zip(self::sums(first, outputs, targets)).for_each(|(sum, own)| *sum += own);
        take(&Chunk { outputs, targets, kept, of_models: &of_models })
    }
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
    fn new(trained: &'a Trained, chunk: usize) -> Self {
        Self { trained, pending: RowBlock::default(), chunk, pass: None, rows: 0 }
    }

    /// Adds rows and processes all complete chunks.
    fn push(&mut self, block: RowBlock, take: TakeOne<'_>) -> Result<(), PredictError> {
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
    fn finish(mut self, take: TakeOne<'_>) -> Result<(usize, [f64; 2]), PredictError> {
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
    take: TakeOne<'_>,
) -> Result<(), PredictError> {
    targets.resize(pass.rows * width, 0.0);
    let targets = Arc::new(targets);
    let prediction = pass.run(features, &targets)?;
    take(&prediction, &targets, kept)
}
