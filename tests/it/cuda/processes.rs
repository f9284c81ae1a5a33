//! Several processes train together, each on a GPU: the stand-in libraries of GPUs and of MPI, with the program's own
//! processes.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Instant,
};

use super::{LINREG, Sim, parity::MLP, plus};
use crate::{
    ends::{LIMIT, send, side_by_side, wait_until},
    process::{Ended, Folder, Ran, Sandbox, tensors},
};

/// The stand-ins without NCCL, so that sums go through the host's memory.
pub const WITHOUT_NCCL: [&str; 3] = ["libcuda.so.1", "libnvrtc.so.12", "libcublasLt.so.12"];

/// A training whose ranks are to be disturbed: checkpoints, and epochs that take longer than a busy machine to notice one.
const SLOW: [&str; 2] = ["checkpoint.every_epochs=1", "devices.host_timeout=2s"];
const SLOWLY: (&str, &str) = ("RUNNER_SIM_SLOW", "launch advance:40000,h2d 192:60000");

pub type Variables<'a> = &'a [(&'a str, &'a str)];

/// The ranks of a job.
pub struct Job {
    pub ranks: Vec<Child>,
    runs: PathBuf,
    _sockets: tempfile::TempDir,
}

impl Job {
    /// Starts a process for each rank, with variables of its own; each sees two GPUs.
    pub fn start(sim: &Sim, place: &Sandbox, arguments: &[&str], ranks: &[Variables<'_>]) -> Self {
        let (commands, runs): (Vec<_>, Vec<_>) = ranks.iter().map(|_| place.prepared(arguments)).unzip();
        Self::of(sim, commands, ranks, runs[0].clone())
    }

    /// Goes on with a run.
    fn resume(sim: &Sim, place: &Sandbox, run: &Folder, ranks: usize) -> Ended {
        let arguments = ["run", "-q", "--resume", run.0.to_str().unwrap()];
        let commands = (0..ranks).map(|_| place.command(&arguments)).collect();
        Self::of(sim, commands, &vec![&[][..]; ranks], PathBuf::new()).end().ended
    }

    fn of(sim: &Sim, commands: Vec<Command>, variables: &[Variables<'_>], runs: PathBuf) -> Self {
        let sockets = tempfile::tempdir().unwrap();
        let mpi = crate::kernels::driver::folder().unwrap().join("libmpi_sim.so");
        let size = commands.len().to_string();
        let start = |(rank, mut command): (usize, Command)| {
            let rank_text = rank.to_string();
            let common = [
                ("RUNNER_MPI", mpi.to_str().unwrap()),
                ("RUNNER_SIM_JOB", sockets.path().to_str().unwrap()),
                ("RUNNER_SIM_DEVICES", "2"),
                ("OMPI_COMM_WORLD_RANK", &rank_text),
                ("OMPI_COMM_WORLD_SIZE", &size),
            ];
            let command = sim.on(&mut command, &[&common, variables[rank]].concat());
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        Self { ranks: commands.into_iter().enumerate().map(start).collect(), runs, _sockets: sockets }
    }

    /// Waits until rank 0 has saved a checkpoint.
    pub fn wait_for_checkpoint(&mut self) {
        let is_there = || {
            let folder = Folder::within(&self.runs)?.0.join("checkpoints");
            let mut names = fs::read_dir(folder).ok()?.map(|entry| entry.unwrap().file_name());
            names.any(|name| name.to_string_lossy().starts_with("step-")).then_some(())
        };
        wait_until(&mut self.ranks[0], || is_there().is_some());
    }

    /// How rank 0 ended. The others have ended in order, or with the job.
    pub fn end(self) -> Ran {
        let mut ranks = self.ranks.into_iter();
        let first = Ended::from_output(ranks.next().unwrap().wait_with_output().unwrap());
        for other in ranks {
            let other = Ended::from_output(other.wait_with_output().unwrap());
            assert_eq!(other.stdout, "", "{other:?}");
        }
        Ran { ended: first, runs: self.runs }
    }

    /// How rank 0 ended, after which the others are killed.
    pub fn end_first(mut self) -> Ran {
        let first = Ended::from_output(self.ranks.remove(0).wait_with_output().unwrap());
        for mut other in self.ranks {
            other.kill().unwrap();
            other.wait().unwrap();
        }
        Ran { ended: first, runs: self.runs }
    }
}

/// What a rank is called.
pub fn name(rank: usize) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    format!("rank:{rank}@{}", host.trim())
}

pub const TWO: [Variables<'_>; 2] = [&[], &[]];
/// The third one finds a GPU, too.
pub const THREE: [Variables<'_>; 3] = [&[("RUNNER_SIM_DEVICES", "3")]; 3];

/// How gradients are summed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sums {
    Nccl,
    Host,
}

/// Ragged batches, three processes whose shares differ, dropout, clipping: the bits of one process with as many GPUs. The
/// stand-in for NCCL adds in the order of ranks, as the host does.
#[test]
fn gpus_of_processes_learn_what_those_of_one_process_do() {
    let (Some(with), Some((without, _folder))) = (Sim::get(), Sim::only(&WITHOUT_NCCL)) else { return };
    for (sums, engine, spec, ranks) in [
        (Sums::Host, "launch", LINREG, &TWO[..]),
        (Sums::Host, "launch", MLP, &THREE),
        (Sums::Nccl, "graph", LINREG, &THREE),
        (Sums::Nccl, "graph", MLP, &TWO),
        (Sums::Nccl, "launch", MLP, &TWO),
    ] {
        let what = format!("{} processes, {sums:?}, {engine}", ranks.len());
        let sim = if sums == Sums::Nccl { &with } else { &without };
        let (place, n) = (Sandbox::new(spec), ranks.len());
        let [gpus, engine] = [format!("devices.num_gpus={n}"), format!("devices.engine={engine}")];
        let variables = [("RUNNER_SIM_DEVICES", "3"), ("RUNNER_SIM_PEER", "0")];
        // Within epochs, too.
        let every = match sums {
            Sums::Host => "trainer.validate_every_steps=7",
            Sums::Nccl => "trainer.validate_every_epochs=1",
        };
        let one = sim.run(&place, &[&gpus, &engine, every, "-q"], &variables).ended_by(0);
        let _ = fs::remove_file(sim.log());
        let many = Job::start(sim, &place, &[&engine, every, "-q"], ranks).end().ended_by(0);
        assert_eq!(many.numbers(), one.numbers(), "{what}");
        assert_eq!(tensors(&many.model()), tensors(&one.model()), "{what}");
        let names: Vec<_> = (0..n).map(name).collect();
        assert_eq!(many.summary("devices_used"), names.join(";"));
        assert_eq!(many.summary("devices_requested"), n.to_string());
        let log = many.text("run.log");
        let way = match sums {
            Sums::Nccl => "INFO  gradients are summed by NCCL: each GPU belongs to a process of its own\n",
            Sums::Host => {
                "WARN  gradients are summed through the host's memory, with a wait in every step: NCCL is not there; each \
                 GPU belongs to a process of its own\n"
            }
        };
        assert!(log.contains(way), "{what}: {log}");
        for (rank, name) in names.iter().enumerate() {
            let leads = if rank == 0 { " leads" } else { "" };
            let uuid = format!("GPU-63757369-6d00-0000-0000-00000000000{rank}");
            let line = format!("INFO  {name}{leads}: Simulated GPU, {uuid}");
            assert!(log.contains(&line), "{line}\n{log}");
        }
        same_transfers(&one, &many, &names);
        // Every rank's steps are timed by its own GPU.
        let phase = if engine.ends_with("graph") { "step" } else { "optimizer" };
        let timed = many.table("timing.csv").only("clock", "device").only("phase", phase);
        let steps: f64 = many.summary("steps").parse().unwrap();
        assert_eq!(
            (timed.column("device"), timed.f64s("count")),
            (names.iter().map(String::as_str).collect(), vec![steps; n])
        );
        // All let go of each other in order, which takes all of them.
        let ends = sim.calls().into_iter().filter(|call| call.starts_with("nccl "));
        let mut ends: Vec<_> = ends.collect();
        ends.sort();
        let want = match sums {
            Sums::Nccl => [vec!["nccl destroy"; n], vec!["nccl id"]].concat(),
            Sums::Host => Vec::new(),
        };
        assert_eq!(ends, want, "{what}");
    }
}

/// Each GPU of a process is given what a GPU of one process is.
fn same_transfers(one: &Folder, many: &Folder, names: &[String]) {
    for purpose in ["dataset", "batch", "parameters", "constants", "gradients"] {
        let bytes = |run: &Folder, device: &str| {
            let rows = run.table("transfers.csv").only("kind", "h2d").only("purpose", purpose);
            rows.only("to", device).f64s("bytes")
        };
        for (rank, name) in names.iter().enumerate() {
            assert_eq!(bytes(many, name), bytes(one, &format!("gpu:{rank}")), "{purpose} to {name}");
        }
    }
}

/// In one line each, and without a folder.
#[test]
fn what_cannot_be_is_refused_by_rank() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let [first, second, third] = [0, 1, 2].map(name);
    let one_gpu: Variables<'_> = &[("RUNNER_SIM_DEVICES", "1")];
    let no_gpu: Variables<'_> = &[("RUNNER_SIM_DEVICES", "0")];
    let each = "each process of several trains on its CPU or on one GPU\n  = hint: set `devices.num_gpus = 1`, and start a \
                process for each GPU; or start one process, which takes all GPUs of its host";
    let Some((without, _folder)) = Sim::only(&WITHOUT_NCCL) else { return };
    let without = [("LD_LIBRARY_PATH", without.libraries.to_str().unwrap())];
    let unlike = |what: &str| {
        format!("`{second}` cannot take part: its device and engine ({what}) are not those of `{first}`")
    };
    let cases: [(&[&str], &[Variables<'_>], i32, String); 11] = [
        (&["devices.num_gpus=2"], &TWO, 2, each.to_owned()),
        (&["devices.num_gpus=all"], &TWO, 2, each.to_owned()),
        (&["--virtual-gpus", "1"], &TWO, 3, "virtual GPUs train in one process only".to_owned()),
        (
            &["data.placement=streamed"],
            &TWO,
            2,
            "rows are brought in chunks to the GPUs of one process only: with several, each GPU holds all rows".to_owned(),
        ),
        (
            &[],
            &[one_gpu, one_gpu],
            2,
            format!(
                "`{second}` cannot take part: `{first}` has taken its GPU-63757369-6d00-0000-0000-000000000000: start one \
                 process for each GPU"
            ),
        ),
        (
            &[],
            &[&[], &[], &[]],
            2,
            format!("`{third}` cannot take part: its host shows 2 GPUs, and 2 processes before it take them"),
        ),
        (
            &[],
            &[&[], no_gpu],
            2,
            format!(
                "`{second}` cannot take part: `gpu:0` is not there: no GPU can be used (the NVIDIA driver is there, but no \
                 GPU that it can use)"
            ),
        ),
        (&["devices.on_missing=clamp"], &[&[], no_gpu], 2, unlike("a CPU")),
        (&[], &[&[], &without], 2, unlike("`launch`, without NCCL")),
        (&[], &[&[], &[("RUNNER_SIM_NCCL_VERSION", "22903")]], 2, unlike("`graph`, NCCL 2.29")),
        // Once all are there, and before there is a folder.
        (
            &[],
            &[&[], &[("RUNNER_SIM_FAIL", "nccl:1")]],
            2,
            format!(
                "`{second}`, connecting with the GPUs of the other processes: NCCL cannot connect the GPUs: a call of the \
                 system failed (ncclSystemError); NCCL_DEBUG=WARN makes it say more"
            ),
        ),
    ];
    for (arguments, ranks, code, message) in cases {
        let ran = Job::start(&sim, &place, &plus(arguments, "-q"), ranks).end();
        assert_eq!(ran.ended.code, Some(code), "{:?}", ran.ended);
        let said = ran.ended.stderr.split_once("error: ").unwrap_or_default().1;
        assert!(said.starts_with(&message), "{said}\n{message}");
        assert_eq!(ran.ended.stderr.matches("error: ").count(), 1, "{:?}", ran.ended);
        assert!(!ran.runs.exists(), "{arguments:?} leaves a folder");
    }
}

/// Its own words, by its own name.
#[test]
fn a_gpu_that_fails_ends_the_training_of_all() {
    let (Some(with), Some((without, _folder))) = (Sim::get(), Sim::only(&WITHOUT_NCCL)) else { return };
    let (place, second) = (Sandbox::new(LINREG), name(1));
    let hangs = format!("`{second}` hangs while in a call of the driver: it has not ended within ");
    for (sim, fault, words) in [
        (&without, "launch:40", format!("`{second}` failed while launching the kernel `")),
        (&without, "stuck:40", hangs),
        (&with, "replay:5", format!("`{second}` failed while launching a graph of its steps: ")),
    ] {
        let rank: Variables<'_> = &[("RUNNER_SIM_FAIL", fault), ("RUNNER_GPU_WAIT_S", "2")];
        // How long a GPU may hang follows the slowest block so far, and the other rank must not lose patience before.
        let patient = ["-q", "devices.host_timeout=60s"];
        let run = Job::start(sim, &place, &patient, &[&[], rank]).end().ended_by(1);
        assert_eq!(run.summary("status"), "failed");
        let log = run.text("run.log");
        let last = log.lines().rfind(|line| line.contains(" ERROR ")).unwrap();
        assert!(last.contains(&format!(": {words}")), "{last}");
    }
}

/// A rank that is killed or frozen is named, in time, and the run goes on from its checkpoint as if nothing had been.
#[test]
fn a_lost_rank_ends_the_training_within_the_limit() {
    let (Some(with), Some((without, _folder))) = (Sim::get(), Sim::only(&WITHOUT_NCCL)) else { return };
    let (place, second) = (Sandbox::new(LINREG), name(1));
    let cases = [
        (&without, "launch", "-KILL", None),
        (&with, "graph", "-STOP", None),
        (&with, "graph", "-KILL", None),
        // A network says at once that something is wrong, and not where.
        (&with, "graph", "-KILL", Some(("RUNNER_SIM_NCCL_DEATHS", "1"))),
        (&with, "launch", "-STOP", None),
    ];
    side_by_side(cases, |(sim, engine, signal, more)| {
        let what = format!("{engine}, {signal}, {more:?}");
        let engine = format!("devices.engine={engine}");
        let arguments = [&SLOW[..], &["trainer.max_epochs=6", &engine, "-q"]].concat();
        let whole = Job::start(sim, &place, &arguments, &TWO).end().ended_by(0);
        let variables: Vec<_> = [SLOWLY].into_iter().chain(more).collect();
        let mut job = Job::start(sim, &place, &arguments, &[&variables, &variables]);
        job.wait_for_checkpoint();
        send(signal, &job.ranks[1]);
        let begun = Instant::now();
        let run = job.end_first().ended_by(1);
        let took = begun.elapsed();
        assert!(took < LIMIT, "{what}: {took:?}");
        assert_eq!(run.summary("status"), "failed");
        let log = run.text("run.log");
        let last = log.lines().rfind(|line| line.contains(" ERROR ")).unwrap();
        let lost = format!(
            "`{second}` is lost: no sign of life for 2.00 s; it was killed, is frozen, or its link is cut"
        );
        assert!(last.contains(&format!("`{}`, step ", name(0))) && last.ends_with(&lost), "{what}: {last}");
        Job::resume(sim, &place, &run, 2).ended_by(0);
        assert_eq!(run.numbers(), whole.numbers(), "{what}");
        assert_eq!(tensors(&run.model()), tensors(&whole.model()), "{what}");
    });
}

/// Of three ranks the other two say so, and end.
#[test]
fn without_rank_0_the_others_end() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let slow: Variables<'_> = &[SLOWLY, THREE[0][0]];
    side_by_side(["graph", "launch"], |engine| {
        let engine = format!("devices.engine={engine}");
        let arguments = [&SLOW[..], &["trainer.max_epochs=100", &engine, "-q"]].concat();
        let mut job = Job::start(&sim, &place, &arguments, &[slow; 3]);
        job.wait_for_checkpoint();
        send("-STOP", &job.ranks[0]);
        for (rank, other) in job.ranks.split_off(1).into_iter().enumerate() {
            let ended = Ended::from_output(other.wait_with_output().unwrap());
            let lost = format!(
                "error: `{}`: `{}` is lost: no sign of life for 2.00 s; it was killed, is frozen, or its link is cut\n",
                name(rank + 1),
                name(0)
            );
            assert_eq!((ended.code, ended.stderr), (Some(1), lost), "{engine}");
        }
        job.ranks[0].kill().unwrap();
        job.ranks[0].wait().unwrap();
    });
}
