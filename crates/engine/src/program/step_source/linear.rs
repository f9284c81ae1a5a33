//! The source of the step of a linear regression, which one warp does in its registers (`kernels/linear.cuh`).

use super::{
    BiasGradient, FLAG_CHUNK, FLAG_ORDERED, Gather, Linear, Log, LogTarget, Loss, Mean, Op, Record, Step,
    StepOptions, StepSource, WeightGradient,
};

/// Threads: a warp that trains, and those that fetch rows.
const THREADS: u32 = 160;

/// The most numbers of a batch that a lane has at once.
const MOST_OWN: usize = 64;

/// Steps whose rows are fetched together.
const CHUNK: usize = 16;

/// The rule of an update that is folded into the gradients.
const FOLDED: &str = "Sgd{hyper, 0.0f, false, 0}";

/// Approximate cycles of a step, of an exchange between lanes, and of a multiply-add.
const CYCLES: [f64; 3] = [60.0, 36.0, 2.0];

/// The parts of a step, if there are no others.
#[derive(Default)]
struct Parts<'a> {
    linear: Option<&'a Linear>,
    loss: Option<&'a Loss>,
    mean: Option<&'a Mean>,
    /// The records of the gradients, and whether the update is folded into them.
    weight: Option<(&'a Record, bool)>,
    bias: Option<&'a Record>,
    logs: bool,
    sums: bool,
    /// Whether the instructions begin with rows of the data, by this record.
    gather: Option<&'a Record>,
}

impl<'a> Parts<'a> {
    fn new(step: &Step<'a>) -> Option<Self> {
        let mut parts = Self::default();
        for (instruction, record) in step.program.instructions.iter().zip(step.records) {
            match &instruction.op {
                Op::Gather(Gather { first: 0, .. }) => parts.gather = Some(record),
                Op::Linear(op @ Linear { outputs: 1, activation: None, pre: None, .. }) => {
                    parts.linear.is_none().then_some(())?;
                    parts.linear = Some(op);
                }
                Op::Loss(op @ Loss { width: 1, weighted: false, hits: None, .. })
                    if !op.kind.classifies() =>
                {
                    parts.loss = Some(op);
                }
                Op::Mean(mean) => {
                    parts.mean.is_none().then_some(())?;
                    parts.mean = Some(mean);
                }
                Op::WeightGradient(WeightGradient { update, .. }) => parts.weight = Some((record, *update)),
                Op::BiasGradient(BiasGradient { .. }) => parts.bias = Some(record),
                Op::Update(_) if step.learning.is_some() => {}
                Op::Log(Log { cells, to }) if cells.len == 1 => match to {
                    LogTarget::Row(_) => parts.logs = true,
                    LogTarget::Sums { rows, .. } if *rows == step.program.rows => parts.sums = true,
                    LogTarget::Sums { .. } => return None,
                    LogTarget::Flag => {}
                },
                _ => return None,
            }
        }
        Some(parts)
    }
}

/// The source, if the program is such a step and a batch fits registers. It serves the smaller batch at the end of an
/// epoch as well.
pub fn source(step: &Step<'_>, options: &StepOptions<'_>) -> Option<StepSource> {
    let parts = Parts::new(step)?;
    let Parts { logs, sums, bias, .. } = parts;
    let (linear, loss, gather) = (parts.linear?, parts.loss?, parts.gather?);
    let (weight, is_folded) = parts.weight?;
    let mean = parts.mean?;
    let (batch, inputs) = (step.program.rows, linear.inputs);
    let lanes = batch.div_ceil(8).next_power_of_two().clamp(8, 32);
    let own = batch.div_ceil(lanes);
    let slots = lanes * own;
    let elements = 2 * CHUNK * ((inputs + 2) * slots + 6);
    let is_whole = step.program.batch == batch && gather.flags & FLAG_CHUNK == 0 && mean.of == loss.per_row;
    let fits = own * (inputs + 2) <= MOST_OWN && elements <= options.room;
    let learns = is_folded || step.learning.is_some();
    if !(is_whole && fits && learns) {
        return None;
    }
    let (rule, stride) = step.learning.as_ref().map_or((FOLDED, 0), |own| (own.rule.as_str(), own.stride));
    // The places of a parameter and of its first state value.
    let places = |to: u64| {
        let own = step.learning.as_ref();
        own.map_or([to, 0], |own| {
            let offset = to - own.gradients;
            [own.values + offset, own.state.map_or(0, |state| state + offset)]
        })
    };
    let [weight, weight_state] = places(weight.at[2]);
    let [bias_at, bias_state] = bias.map_or([0, 0], |bias| places(bias.at[1]));
    let (has_bias, ordered, kind) = (bias.is_some(), gather.flags & FLAG_ORDERED != 0, loss.kind as i32);
    let text = format!(
        "struct Program {{\n    static const int INPUTS = {inputs}, BATCH = {batch}, LANES = {lanes}, CHUNK = {CHUNK}, LOSS = \
         {kind};\n    static const bool HAS_BIAS = {has_bias}, ORDERED = {ordered}, LOGS = {logs}, SUMS = {sums};\n    static \
         const u64 WEIGHT = {weight}, BIAS = {bias_at}, WEIGHT_STATE = {weight_state}, BIAS_STATE = {bias_state}, STRIDE = \
         {stride};\n    static __device__ __forceinline__ auto rule(const Hyper& hyper) {{ return {rule}; }}\n}};\nextern \
         \"C\" __global__ void __launch_bounds__({THREADS}, 1) steps(float* arena, Run* run, unsigned*, float*, int steps) \
         {{\n    linear_steps<Program>(arena, run, steps);\n}}\n",
    );
    let terms = (own * 2 * (inputs + 2)) as f64;
    let cycles = CYCLES[0] + CYCLES[1] * (lanes as f64).log2() + CYCLES[2] * terms;
    Some(StepSource { text, blocks: 1, threads: THREADS, elements, ahead: 0, barriers: 0, cycles })
}
