//! Whether a trial's rows stay where they are computed with, are fetched by its steps, or come in chunks.

use super::{
    Chunks, DatasetInfo, Machine,
    footprint::Rows,
    read_cost::{self, ReadPlan},
    run_length::RunLength,
    validation_chunk,
};
use crate::{
    program::Programs,
    spec::{EngineChoice, Placement, Source, Spec},
};

/// What decides how a trial's rows are cut.
#[derive(Clone, Copy)]
pub(super) struct ChunkPolicy<'a> {
    pub spec: &'a Spec,
    pub facts: DatasetInfo,
    /// Whether the CPU alone computes.
    pub on_cpu: bool,
    /// Threads that the host may use.
    pub threads: usize,
    pub machine: &'a Machine,
}

impl ChunkPolicy<'_> {
    /// How steps on so many rows go over them.
    pub fn course(&self, batch: usize) -> RunLength {
        RunLength::new(self.spec, self.facts, batch)
    }

    /// The chunks of steps on so many rows; `None` where rows stay where they are computed with, or steps fetch them. The
    /// CPU fetches them from where they are, one by one or many together, as it is quicker; every other device has a
    /// memory of its own, to which they are brought.
    pub fn chunks(&self, batch: usize) -> Option<Chunks> {
        let Self { spec, facts, .. } = *self;
        let (course, validation_batch) = (self.course(batch), validation_chunk(facts, batch));
        if self.on_cpu {
            let memory = self.machine.memory_available;
            let chunks = Chunks::together(facts, &course, validation_batch, memory);
            let threads = if spec.devices.engine == EngineChoice::Serial { 1 } else { self.threads };
            let way = ReadPlan { shuffle: spec.data.shuffle, chunks: Some(chunks) };
            return read_cost::together(facts, &course, way, (threads, &self.machine.speed()));
        }
        let away = facts.in_file() || spec.data.placement == Placement::Streamed;
        away.then(|| Chunks::new(facts, &course, validation_batch))
    }

    /// The same rows, kept in memory.
    pub fn resident(&self) -> Self {
        Self { facts: DatasetInfo { file_row_bytes: None, ..self.facts }, ..*self }
    }

    /// Where the rows of those programs are.
    pub fn rows(&self, programs: &Programs, chunks: Option<Chunks>) -> Rows {
        let Self { spec, facts, .. } = *self;
        let of_one_file = matches!(&spec.data.source, Source::Npy(npy) if npy.validation_features.is_none());
        let are_split = of_one_file && facts.validation_rows > 0;
        let validates = programs.validate.is_some();
        Rows { facts, shuffle: spec.data.shuffle, are_split, chunks, validates }
    }
}
