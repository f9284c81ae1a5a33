//! What a run's time is spent on.

use crate::units::named;

named! {
    /// The parts of a run that `timing.csv` distinguishes, in its order.
    #[derive(serde::Serialize, serde::Deserialize)]
    pub enum Phase {
        /// Fetching the rows of a batch, if they are copied.
        Data = "data",
        Upload = "upload",
        /// From features to predictions.
        Forward = "forward",
        /// The loss and its gradient.
        Loss = "loss",
        Backward = "backward",
        /// Summing gradients over devices.
        AllReduce = "all_reduce",
        /// Clipping and the update.
        Optimizer = "optimizer",
        /// A full step, if its phases cannot be separated.
        Step = "step",
        Validation = "validation",
        /// Metrics: computing, appending, reading, handing over.
        Log = "log",
        /// Copying the state of the training for a checkpoint.
        Checkpoint = "checkpoint",
        /// Judging the run at a rung of its sweep, and waiting there for the trials before it.
        Rung = "rung",
        /// Giving several devices their steps, and waiting for their answers.
        HandOver = "hand_over",
        /// Comparing the parameters of several devices.
        Digest = "digest",
        /// Everything else within the loop.
        Other = "other",
    }
}
