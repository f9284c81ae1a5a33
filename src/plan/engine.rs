//! The engines that run steps, and the choice between the CPU's; [`super::gpu`] chooses a GPU's.

use super::{LowerBound, TEAM_MARGIN};
use crate::{spec::EngineChoice, units};

/// What runs the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// One CPU thread.
    Serial,
    /// A team of CPU threads.
    Team,
    /// One block of a GPU keeps the trial in its shared memory and runs hundreds of steps per launch.
    Persistent,
    /// All blocks of one GPU launch interpret the program together.
    Cooperative,
    /// Steps are captured once as a CUDA graph and replayed.
    Graph,
    /// Every instruction is a separate, timed launch.
    Launch,
}

impl Engine {
    /// Whether it runs on a GPU, asynchronously to the host.
    pub fn is_gpu(self) -> bool {
        matches!(self, Self::Persistent | Self::Cooperative | Self::Graph | Self::Launch)
    }

    /// The word in `summary.csv`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::Team => "team",
            Self::Persistent => "persistent",
            Self::Cooperative => "cooperative",
            Self::Graph => "graph",
            Self::Launch => "launch",
        }
    }
}

/// A team pays if its barriers cost less than sharing the work saves.
pub(super) fn on_the_cpu(choice: EngineChoice, lower_bound: &LowerBound, threads: usize) -> (Engine, String) {
    // Work beside a step is not shared.
    let [alone, together] = [1, threads].map(|threads| lower_bound.settled_s(threads));
    let of_file = match lower_bound.fetch {
        Some(fetch) if fetch.in_step => ", with rows at typical rates of a file",
        _ => "",
    };
    match choice {
        EngineChoice::Serial => (Engine::Serial, "the spec asks for it".into()),
        EngineChoice::Team if threads > 1 => (Engine::Team, "the spec asks for it".into()),
        _ if threads <= 1 => (Engine::Serial, "there is one thread".into()),
        _ if together < TEAM_MARGIN * alone => (
            Engine::Team,
            format!(
                "a step of {} shared by {threads} threads may take {}{of_file}",
                units::seconds(alone),
                units::seconds(together)
            ),
        ),
        _ => {
            let alone = units::seconds(alone);
            (Engine::Serial, format!("a step of {alone} is too short for threads to share{of_file}"))
        }
    }
}
