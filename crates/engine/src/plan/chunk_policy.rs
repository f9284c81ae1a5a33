//! Whether a trial's rows are resident on their device, are fetched by its steps, or come in chunks.

use super::{
    chunks::Chunks,
    dataset_info::DatasetInfo,
    footprint::Rows,
    machine::Machine,
    read_cost,
    run_length::{RunLength, validation_chunk},
};
use crate::{
    program::Programs,
    spec::{EngineChoice, Precision, Problem, Source, Spec},
};

/// What decides how a trial's rows are divided into chunks.
#[derive(Clone, Copy)]
pub(super) struct ChunkPolicy<'a> {
    pub spec: &'a Spec,
    pub facts: DatasetInfo,
    pub on_cpu: bool,
    /// Whether rows are brought to devices in chunks though the host's memory holds them.
    pub streams: bool,
    /// Several processes, each of which reads its own rows one by one.
    pub over_hosts: bool,
    /// Threads that the host may use.
    pub threads: usize,
    pub machine: &'a Machine,
    /// Whether large products are a GPU library's, which depends on the engine.
    pub by_library: bool,
}

impl ChunkPolicy<'_> {
    /// Refuses to bring rows in chunks to the GPUs of other processes.
    pub fn check(&self) -> Result<(), Problem> {
        let Self { facts, on_cpu, over_hosts, streams, .. } = *self;
        let in_chunks = facts.in_file() || streams;
        if on_cpu || !over_hosts || !in_chunks {
            return Ok(());
        }
        let problem = Problem::at_key(
            "data.placement",
            "rows are brought in chunks to the GPUs of one process only: with several, each GPU holds all rows",
        );
        Err(problem.hint("use `placement = \"resident\"`, or the CPUs, which read rows from their files"))
    }

    /// The chunks of steps on `batch` rows; `None` if rows stay where they are computed with, or steps fetch them. The CPU
    /// fetches rows one by one or many together, as is quicker; other devices have a memory of their own, to which rows are
    /// brought.
    pub fn chunks(&self, batch: usize) -> Option<Chunks> {
        let Self { spec, facts, .. } = *self;
        if self.over_hosts {
            return None;
        }
        let length = RunLength::new(spec, facts, batch);
        let validation_batch = validation_chunk(facts, batch);
        if self.on_cpu {
            let memory = self.machine.memory_available;
            let chunks = Chunks::together(facts, &length, validation_batch, memory);
            let threads = if spec.devices.engine == EngineChoice::Serial { 1 } else { self.threads };
            let rows = (spec.data.shuffle, chunks);
            return read_cost::together(facts, &length, rows, (threads, &self.machine.rates));
        }
        let away = facts.in_file() || self.streams;
        away.then(|| Chunks::new(facts, &length, validation_batch, self.machine))
    }

    /// The same policy, if all rows were kept in memory.
    pub fn resident(&self) -> Self {
        Self { facts: DatasetInfo { file_row_bytes: None, ..self.facts }, ..*self }
    }

    /// Where the rows of these programs are kept.
    pub fn rows(&self, programs: &Programs, chunks: Option<Chunks>) -> Rows {
        let Self { spec, facts, .. } = *self;
        let of_one_file = matches!(&spec.data.source, Source::Npy(npy) if npy.validation_features.is_none());
        let are_split = of_one_file && facts.validation_rows > 0;
        let validates = programs.validate.is_some();
        let fixed = self.machine.gpus.iter().map(|gpu| gpu.limits.fixed_bytes).max().unwrap_or(0);
        let saves_checkpoints = spec.checkpoint.is_some();
        let is_resident = chunks.is_none() && !facts.in_file();
        let at_once = || RunLength::new(spec, facts, programs.train.batch).stretch(spec, 0);
        let orders = if is_resident { at_once() } else { 1 };
        Rows {
            facts,
            orders: if spec.data.shuffle { orders } else { 0 },
            are_split,
            chunks,
            validates,
            saves_checkpoints,
            ranks_outputs: validates && spec.scores().iter().any(|metric| metric.ranks_outputs()),
            rounds_to_bf16: spec.devices.precision == Precision::Bf16,
            by_library: self.by_library,
            gpu_fixed_bytes: fixed,
        }
    }
}
