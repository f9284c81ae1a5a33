//! What a run's time is spent on.

use crate::units::named;

named! {
    /// The parts of a run that `timing.csv` tells apart, in its order.
    #[derive(serde::Serialize, serde::Deserialize)]
    pub enum Phase {
        /// Fetching the rows of a batch, where they are copied.
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
        /// Metrics: computing, appending, moving, handing over.
        Log = "log",
        /// Copying the state of the training for a checkpoint.
        Checkpoint = "checkpoint",
        /// Giving several devices their steps, and being told that they are done.
        HandOver = "hand_over",
        /// Comparing what several devices hold.
        Digest = "digest",
        /// All else within the loop.
        Other = "other",
    }
}
