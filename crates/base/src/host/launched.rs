//! Which of a job's processes this one is, according to the environment variables of its launcher.

use super::variable;

/// A process in a job of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    pub rank: usize,
    /// Number of processes in the job.
    pub size: usize,
    pub by: Launcher,
}

/// What started the processes, and with it how they find each other for MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    OpenMpi,
    /// MPICH and its family, or Slurm with PMI.
    Mpich,
    /// Slurm with PMIx.
    SlurmPmix,
    /// Slurm without either: the processes cannot find each other.
    Slurm,
    /// `torchrun` and its like, which bring no MPI.
    Torch,
}

impl Launched {
    /// Describes this process; `None` if it is alone.
    pub fn here() -> Option<Self> {
        Self::by(|name| variable(name)?.into_string().ok())
    }

    fn by(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| variable(name)?.parse::<usize>().ok();
        // `mpirun` within a Slurm job inherits that job's variables.
        let slurm = if variable("PMIX_RANK").is_some() { Launcher::SlurmPmix } else { Launcher::Slurm };
        let launchers = [
            (Launcher::OpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
            (Launcher::Mpich, "PMI_RANK", "PMI_SIZE"),
            // A batch script also has a rank and a number of tasks it may start; only a job step has this
            // variable.
            (slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
        ];
        // Common names: only beside an address to meet at do they mean processes that are to train together.
        let torch = variable("MASTER_ADDR").map(|_| (Launcher::Torch, "RANK", "WORLD_SIZE"));
        let found = launchers
            .into_iter()
            .chain(torch)
            .find_map(|(by, rank, size)| Some(Self { rank: number(rank)?, size: number(size)?, by }));
        found.filter(|found| found.size > 1 && found.rank < found.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(variables: &[(&str, &str)]) -> Option<(usize, usize, Launcher)> {
        let found = Launched::by(|name| Some(variables.iter().find(|(key, _)| *key == name)?.1.to_owned()));
        found.map(|Launched { rank, size, by }| (rank, size, by))
    }

    #[test]
    fn launchers_are_told_apart() {
        let step = [("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_NTASKS", "4")];
        assert_eq!(by(&step), Some((3, 4, Launcher::Slurm)));
        assert_eq!(by(&[&step[..], &[("PMIX_RANK", "3")]].concat()), Some((3, 4, Launcher::SlurmPmix)));
        let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "2")];
        assert_eq!(by(&[&step[..], &pmi].concat()), Some((1, 2, Launcher::Mpich)));
        let open = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "8"), ("PMIX_RANK", "0")];
        assert_eq!(by(&[&step[..], &open].concat()), Some((0, 8, Launcher::OpenMpi)));
        let torch = [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "h1")];
        assert_eq!(by(&torch), Some((1, 2, Launcher::Torch)));
        assert_eq!(by(&torch[..2]), None);
    }

    /// A Slurm batch script may start tasks, but is not one of them.
    #[test]
    fn a_process_that_is_alone_is_not_launched() {
        assert_eq!(by(&[]), None);
        assert_eq!(by(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]), None);
        assert_eq!(by(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")]), None);
        assert_eq!(by(&[("PMI_RANK", "x"), ("PMI_SIZE", "2")]), None);
        assert_eq!(by(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")]), None);
    }
}
