//! What a run's time is spent on.

/// The parts of a run that `timing.csv` tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Fetching the rows of a batch, where they are copied.
    Data,
    Upload,
    /// From features to predictions.
    Forward,
    Loss,
    /// Gradients of all parameters.
    Backward,
    /// Summing gradients over devices.
    AllReduce,
    Optimizer,
    /// A full step, if its phases cannot be separated.
    Step,
    Validation,
    /// Metrics: computing, appending, moving, handing over.
    Log,
    Checkpoint,
    /// All else within the loop.
    Other,
}

impl Phase {
    /// All phases in the order of `timing.csv`.
    pub const ALL: [Phase; 12] = [
        Phase::Data,
        Phase::Upload,
        Phase::Forward,
        Phase::Loss,
        Phase::Backward,
        Phase::AllReduce,
        Phase::Optimizer,
        Phase::Step,
        Phase::Validation,
        Phase::Log,
        Phase::Checkpoint,
        Phase::Other,
    ];

    /// The word in `timing.csv`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Upload => "upload",
            Self::Forward => "forward",
            Self::Loss => "loss",
            Self::Backward => "backward",
            Self::AllReduce => "all_reduce",
            Self::Optimizer => "optimizer",
            Self::Step => "step",
            Self::Validation => "validation",
            Self::Log => "log",
            Self::Checkpoint => "checkpoint",
            Self::Other => "other",
        }
    }
}
