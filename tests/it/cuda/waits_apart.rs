//! The tests of [`waits`](super::waits), each in a process of its own: the simulator's faults are those of a process.

use std::process::Command;

use super::Sim;

fn in_a_process_of_its_own(part: &str, variables: &[(&str, &str)]) {
    let Some(sim) = Sim::get() else { return };
    let mut command = Command::new(std::env::current_exe().unwrap());
    let (name, part) = part.split_once(' ').unwrap_or((part, ""));
    command.args(["--exact", &format!("cuda::waits::{name}"), "--ignored", "--nocapture"]);
    let all = [&[("PART", part), ("RUNNER_SIM_DEVICES", "2")], variables].concat();
    let output = sim.on(&mut command, &all).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{name} {part}: {text}");
}

#[test]
fn a_gpu_that_stands_still_is_given_up_in_time() {
    in_a_process_of_its_own("alone every", &[("RUNNER_SIM_FAIL", "stall:2")]);
}

/// Three sums connect the GPUs. Of the three of a step the first two start early, and the last is the rest.
#[test]
fn a_gpu_whose_early_sum_stands_still_is_given_up_in_time() {
    for sum in ["stall:4", "stall:6"] {
        in_a_process_of_its_own("alone early", &[("RUNNER_SIM_FAIL", sum)]);
    }
}

#[test]
fn a_gpu_alone_that_hangs_is_given_up_in_time_and_says_so() {
    // The first kernel of each GPU: no kernel after it starts there.
    let kernels: Vec<String> = (1..=36).map(|kernel| format!("hang:{kernel}")).collect();
    let variables = [
        ("RUNNER_SIM_DEVICES", "36"),
        ("RUNNER_SIM_FAIL", &kernels.join(",")),
        ("RUNNER_GPU_WAIT_S", "0.02"),
    ];
    in_a_process_of_its_own("hanging", &variables);
}

#[test]
fn a_trial_beside_one_that_hangs_frees_nothing() {
    in_a_process_of_its_own("beside", &[("RUNNER_SIM_FAIL", "hang:1"), ("RUNNER_GPU_WAIT_S", "0.02")]);
}

#[test]
fn a_trial_gets_the_memory_of_unused_rows_while_another_uploads() {
    // The rows take 6.0 MB, the trials 2.4 MB each, and 3.2 MB more the large one.
    let variables = [("RUNNER_SIM_MEMORY", "11300000"), ("RUNNER_SIM_SLOW", "h2d 3000000:1000000")];
    in_a_process_of_its_own("crowded", &variables);
}

#[test]
fn a_gpu_within_a_call_of_nccl_is_let_go() {
    in_a_process_of_its_own("inside", &[("RUNNER_SIM_NCCL_SECONDS", "3600")]);
}

#[test]
fn gpus_that_cannot_be_connected_say_so_before_the_first_step() {
    in_a_process_of_its_own("alone first", &[("RUNNER_SIM_FAIL", "stall:1")]);
}
