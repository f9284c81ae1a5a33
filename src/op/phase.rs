//! What a run's time is spent on.

macro_rules! phases {
    ($($(#[$doc:meta])* $phase:ident = $name:literal,)*) => {
        /// The parts of a run that `timing.csv` tells apart, in its order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Phase {
            $($(#[$doc])* $phase,)*
        }

        impl Phase {
            pub const ALL: [Phase; [$($name),*].len()] = [$(Phase::$phase),*];

            /// The word in `timing.csv`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$phase => $name,)*
                }
            }
        }
    };
}

phases! {
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
    Checkpoint = "checkpoint",
    /// All else within the loop.
    Other = "other",
}
