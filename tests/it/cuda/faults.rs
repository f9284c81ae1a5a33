//! Errors are full sentences, are reported before the start where possible, and never crash.

use super::{LINREG, Sim, flow::STEADY, has_real_driver};
use crate::{
    ends::side_by_side,
    process::{Folder, Sandbox},
};

/// Asserts that a run is rejected before it starts: exit code, message, no folder.
#[track_caller]
fn refused(sim: &Sim, arguments: &[&str], variables: &[(&str, &str)], code: i32, message: &str) {
    let ran = sim.run(&Sandbox::new(LINREG), arguments, variables);
    assert_eq!((ran.ended.code, ran.ended.stderr.as_str()), (Some(code), message));
    assert!(Folder::within(&ran.runs).is_none(), "a folder was made");
}

#[test]
fn no_driver_and_no_device() {
    let missing = |why: &str| {
        format!(
            "error: `gpu:0` is not there\n --> spec.toml:4:12\n  |\n4 | num_gpus = 1\n  |            ^ no GPU can be used \
             ({why})\n  |\n  = hint: `devices.on_missing = \"clamp\"` uses the devices that are there, the CPU where \
             none is\n"
        )
    };
    if !has_real_driver() {
        let empty = tempfile::tempdir().unwrap();
        let why = missing("no NVIDIA driver: libcuda.so.1 is not there");
        refused(&Sim::at(empty.path()), &[], &[], 3, &why);
        let place = Sandbox::new(LINREG);
        let clamped = Sim::at(empty.path()).run(&place, &["devices.on_missing=clamp"], &[]);
        assert_eq!(clamped.ended_by(0).summary("devices_used"), "cpu");
    }
    let Some(sim) = Sim::get() else { return };
    let why = missing("the NVIDIA driver is there, but no GPU that it can use");
    refused(&sim, &[], &[("RUNNER_SIM_DEVICES", "0")], 3, &why);
}

#[test]
fn an_old_driver() {
    let Some(all) = Sim::get() else { return };
    let old = tempfile::tempdir().unwrap();
    // A library without any of the driver's functions.
    std::fs::copy(all.libraries.join("libnvidia-ml.so.1"), old.path().join("libcuda.so.1")).unwrap();
    let ended = Sim::at(old.path()).runner(&Sandbox::new(LINREG), &["devices"], &[]);
    let text = &ended.stdout[ended.stdout.find("\ngpu\n").unwrap()..];
    let reported = "is too old: it has no function cuInit (a driver for CUDA 11.4 or newer has)";
    assert!(
        text.starts_with("\ngpu\n  none: the NVIDIA driver cannot be used: looked for libcuda.so.1 in "),
        "{text}"
    );
    assert!(text.contains(reported), "{text}");
}

#[test]
fn no_compiler() {
    let Some((sim, _folder)) = Sim::only(&["libcuda.so.1"]) else { return };
    let message = "error: `gpu:0` cannot be used: NVRTC, the CUDA run-time compiler, is not there: looked for \
                   libnvrtc.so.13, libnvrtc.so.12 in $RUNNER_CUDA_PATH (not set), the loader's path, $VIRTUAL_ENV (not \
                   set), $CONDA_PREFIX (not set), /usr/local/cuda/lib64; `pip install nvidia-cuda-nvrtc` in an active \
                   virtual environment, or install the CUDA toolkit, or name its folder in $RUNNER_CUDA_PATH\n";
    refused(&sim, &[], &[], 2, message);
}

#[test]
fn memory_that_is_not_there() {
    let Some(sim) = Sim::get() else { return };
    let fails = |what: &'static str| [("RUNNER_SIM_FAIL", what)];
    let end = "CUDA_ERROR_OUT_OF_MEMORY (out of memory); lower `data.batch_size`, set `data.placement = \"streamed\"`, or \
               end what else uses the GPU\n";
    let text = format!("error: `gpu:0` failed while taking 5440 bytes for parameters and activations: {end}");
    refused(&sim, &[], &fails("alloc:1"), 2, &text);
    let text =
        format!("error: `gpu:0` failed while taking 448 bytes of pinned host memory for the log: {end}");
    refused(&sim, &[], &fails("pinned:1"), 2, &text);
}

#[test]
fn a_job_that_does_not_fit_names_the_batch_that_would() {
    let Some(sim) = Sim::get() else { return };
    let wide =
        "model.layers=[{ linear = { out_features = 20000 } }, \"tanh\", { linear = { out_features = 1 } }]";
    let memory = [("RUNNER_SIM_MEMORY", "100000000")];
    let short = ["trainer.max_steps=1", "trainer.validate_every_epochs=0"];
    let arguments = [wide, short[0], short[1], "data.batch_size=500"];
    let ended = sim.run(&Sandbox::new(LINREG), &arguments, &memory).ended;
    let message = "error: the job needs 117 MiB of memory on `gpu:0` for parameters, activations and data, and 91.4 MiB \
                   are free\n --> argument 4:1:17\n  |\n1 | data.batch_size=500\n  |                 ^^^\n  |\n  = hint: \
                   `data.batch_size = ";
    assert_eq!(ended.code, Some(2));
    let rest = ended.stderr.strip_prefix(message).unwrap_or_else(|| panic!("{}", ended.stderr));
    let batch: u32 = rest.strip_suffix("` would fit\n").unwrap().parse().unwrap();
    let with = |batch: u32| {
        let size = format!("data.batch_size={batch}");
        sim.run(&Sandbox::new(LINREG), &[wide, short[0], short[1], &size], &memory).ended.code
    };
    // A smaller batch may fuse its update into the products, which needs no gradient buffers.
    assert_eq!((with(batch), with(batch + 5)), (Some(0), Some(2)), "{batch}");
}

#[test]
fn a_launch_that_fails_ends_the_run_with_all_rows_before_it() {
    let Some(sim) = Sim::get() else { return };
    let why = "`gpu:0` failed while launching the kernel `op_linear`: CUDA_ERROR_LAUNCH_FAILED (unspecified launch \
               failure); the GPU is lost to this process; look at `dmesg` and `nvidia-smi -q`, and try `devices.engine = \
               \"launch\"`";
    let arguments = ["devices.engine=launch", "logging.policy=immediate", "-q"];
    // A step is five kernels plus its end: this fails the second kernel of the fifth step.
    let place = Sandbox::new(LINREG);
    let ran = sim.run(&place, &arguments, &[("RUNNER_SIM_FAIL", "launch:26")]);
    let folder = ran.folder();
    assert_eq!((ran.ended.code, ran.ended.stderr.as_str()), (Some(1), format!("error: {why}\n").as_str()));
    assert_eq!(folder.summary("status"), "failed");
    assert_eq!(folder.metrics().rows.len(), 4, "the steps before it");
}

/// A kernel that never ends: the run ends after the time limit and keeps the results before it.
#[test]
fn a_gpu_that_hangs_ends_the_run_with_all_rows_before_it() {
    let Some(sim) = Sim::get() else { return };
    // The launch that contains the tenth step, under `immediate`.
    let cases = [("persistent", 10), ("cooperative", 10), ("graph", 9 * 6 + 3), ("launch", 9 * 6 + 3)];
    side_by_side(cases, |(engine, kernel)| {
        let engine = format!("devices.engine={engine}");
        let fails = format!("hang:{kernel}");
        let variables = [("RUNNER_SIM_FAIL", fails.as_str()), ("RUNNER_GPU_WAIT_S", "2")];
        let arguments = [engine.as_str(), "logging.policy=immediate", "-q"];
        let place = Sandbox::new(LINREG);
        let ran = sim.run(&place, &arguments, &variables);
        let folder = ran.folder();
        let start = "error: `gpu:0` hangs while running step 10: it has not ended within ";
        let end = ", and the last step that it was given is 10; look at `dmesg` and `nvidia-smi -q`; where it is only \
                   slow, `RUNNER_GPU_WAIT_S` sets for how many seconds it is waited for at least\n";
        let said = &ran.ended.stderr;
        assert!(said.starts_with(start) && said.ends_with(end), "{engine}: {said}");
        let metrics = folder.metrics();
        assert_eq!((ran.ended.code, metrics.rows.len()), (Some(1), 9), "{engine}: the steps before it");
        assert_eq!(metrics.column("step"), ["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
        assert_eq!((folder.summary("status"), folder.summary("steps")), ("failed".into(), "9".into()));
        assert_eq!(folder.summary("final_train_loss"), metrics.cell(8, "loss"));
        // Measurements up to the hang are reported.
        let timing = folder.table("timing.csv").only("clock", "device");
        let steps: Vec<&str> = timing.column("count").into_iter().take(1).collect();
        assert_eq!(steps, ["9"], "{engine}");
    });
}

/// Rows of finished blocks are read from a GPU even though it hangs.
#[test]
fn a_gpu_that_hangs_leaves_the_rows_of_blocks_that_are_done() {
    let Some(sim) = Sim::get() else { return };
    // While step times are unknown, blocks have one step, then two, then more; the third block does not end.
    let cases = [("persistent", 3), ("cooperative", 3), ("graph", 3 * 6 + 3), ("launch", 3 * 6 + 3)];
    side_by_side(cases, |(engine, kernel)| {
        let engine = format!("devices.engine={engine}");
        let arguments = [engine.as_str(), "-q"];
        let (place, fails) = (Sandbox::new(LINREG), format!("hang:{kernel}"));
        let whole = sim.run(&place, &arguments, &[]).ended_by(0).metrics();
        let variables = [("RUNNER_SIM_FAIL", fails.as_str()), ("RUNNER_GPU_WAIT_S", "2"), STEADY];
        let ran = sim.run(&place, &arguments, &variables);
        let folder = ran.folder();
        let said = &ran.ended.stderr;
        assert!(said.starts_with("error: `gpu:0` hangs while running steps 4 to "), "{engine}: {said}");
        let metrics = folder.metrics();
        assert_eq!((ran.ended.code, metrics.column("step")), (Some(1), vec!["1", "2", "3"]), "{engine}");
        assert_eq!(metrics.column("loss"), whole.column("loss")[..3], "{engine}");
        assert_eq!(["status", "steps"].map(|name| folder.summary(name)), ["failed", "3"], "{engine}");
        assert_eq!(folder.table("timing.csv").only("clock", "device").cell(0, "count"), "3", "{engine}");
    });
}

/// A driver call that never returns cannot be cancelled. So the process ends, and keeps the rows up to then.
#[test]
fn a_driver_that_does_not_come_back_ends_the_process() {
    let Some(sim) = Sim::get() else { return };
    // Each step takes longer than the interval at which rows are flushed.
    let cases =
        [("persistent", 10, "launch"), ("graph", 9 * 6 + 3, "h2d"), ("launch", 9 * 6 + 3, "launch op_loss")];
    side_by_side(cases, |(engine, launch, slow)| {
        let engine = format!("devices.engine={engine}");
        let (fails, slow) = (format!("stuck:{launch}"), format!("{slow}:30000"));
        let variables =
            [("RUNNER_SIM_FAIL", fails.as_str()), ("RUNNER_GPU_WAIT_S", "2"), ("RUNNER_SIM_SLOW", &slow)];
        let place = Sandbox::new(LINREG);
        let ran = sim.run(&place, &[engine.as_str(), "logging.policy=immediate", "-q"], &variables);
        let folder = ran.folder();
        let start = "error: `gpu:0` hangs while in a call of the driver: it has not ended within ";
        let end = ", and the last step that it was given is 10; look at `dmesg` and `nvidia-smi -q`; where it is only slow, \
                   `RUNNER_GPU_WAIT_S` sets for how many seconds it is waited for at least\n";
        let said = &ran.ended.stderr;
        assert!(said.starts_with(start) && said.ends_with(end), "{engine}: {said}");
        let metrics = folder.metrics();
        assert_eq!(ran.ended.code, Some(1), "{engine}");
        assert_eq!(metrics.column("step"), ["1", "2", "3", "4", "5", "6", "7", "8", "9"], "{engine}");
        assert!(folder.text("timing.csv").lines().count() <= 1, "{engine}: nobody was left to tell of times");
    });
}

/// After a GPU hangs, later trials on it are not run; those on other devices are.
#[test]
fn a_gpu_that_hangs_is_not_used_by_the_trials_that_follow() {
    let Some(sim) = Sim::get() else { return };
    let grid = r#"sweep.grid={ "optimizer.sgd.lr" = [0.03, 0.02], "devices.use" = [["gpu:0"], ["gpu:1"]] }"#;
    let place = Sandbox::new(&LINREG.replace("num_gpus = 1\n", ""));
    let arguments = [grid, "devices.engine=persistent", "-q"];
    let variables = [("RUNNER_SIM_DEVICES", "2"), ("RUNNER_SIM_FAIL", "hang:2"), ("RUNNER_GPU_WAIT_S", "2")];
    let ran = sim.run(&place, &arguments, &variables);
    let sweep = ran.folder().table("sweep.csv");
    assert_eq!(
        (ran.ended.code, sweep.column("status")),
        (Some(1), vec!["failed", "finished", "failed", "finished"])
    );
    assert!(sweep.cell(0, "reason").starts_with("`gpu:0` hangs while "), "{}", sweep.cell(0, "reason"));
    let refused =
        "`gpu:0` cannot be used: it hangs since it was used before: end this process, and look at `dmesg`";
    assert_eq!(sweep.cell(2, "reason"), refused);
}

#[test]
fn a_wait_that_is_no_number_of_seconds() {
    let Some(sim) = Sim::get() else { return };
    for wrong in ["soon", "-1", "0", "inf", "NaN"] {
        let message = format!(
            "error: `gpu:0` cannot be used: `RUNNER_GPU_WAIT_S` is `{wrong}`, and must be a number of seconds above 0, such \
             as 600\n"
        );
        refused(&sim, &["-q"], &[("RUNNER_GPU_WAIT_S", wrong)], 2, &message);
    }
}

#[test]
fn copies_modules_graphs_and_waits_that_fail() {
    let Some(sim) = Sim::get() else { return };
    let cases = [
        (
            "copy:5",
            "persistent",
            "copying 128 bytes to it: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was",
        ),
        (
            "module:1",
            "persistent",
            "loading its kernels: CUDA_ERROR_INVALID_IMAGE (device kernel image is invalid)",
        ),
        (
            "alloc:10",
            "persistent",
            "taking 4000 bytes for training features: CUDA_ERROR_OUT_OF_MEMORY (out of memory); lower",
        ),
        ("graph:1", "graph", "making a graph of its steps: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"),
        (
            "launch:2",
            "cooperative",
            "launching the kernel `interpret_grid`: CUDA_ERROR_LAUNCH_FAILED (unspecified launch",
        ),
        (
            "synchronize:2",
            "persistent",
            "reading the log: CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure)",
        ),
    ];
    for (fails, engine, words) in cases {
        let engine = format!("devices.engine={engine}");
        let ended = sim.run(&Sandbox::new(LINREG), &[&engine, "-q"], &[("RUNNER_SIM_FAIL", fails)]).ended;
        assert!(matches!(ended.code, Some(1 | 2)), "{fails}: {ended:?}");
        let start = format!("error: `gpu:0` failed while {words}");
        assert!(ended.stderr.starts_with(&start), "{fails}: {}", ended.stderr);
    }
}

/// The matrix library fails: while kernels are selected, during the run, or because memory is short.
#[test]
fn large_products_that_fail() {
    let Some(sim) = Sim::get() else { return };
    let layers = r#"model.layers=[{ linear = { out_features = 1300 } }, { linear = { out_features = 600 } }, { linear = { out_features = 1 } }]"#;
    let arguments = [layers, "data.batch_size=32", "trainer.max_epochs=1", "devices.engine=launch", "-q"];
    let failed = "error: `gpu:0` failed while multiplying matrices by cuBLASLt: CUBLAS_STATUS_EXECUTION_FAILED (the kernel \
                  failed); look at `nvidia-smi` and `dmesg`, or run on the CPU by `devices.num_gpus = 0`\n";
    // Selection tries three products of a step and one of the validation; then two steps run, and the first
    // product of the third fails.
    for (fails, code) in [("matmul:3", 2), ("matmul:15", 1)] {
        let place = Sandbox::new(LINREG);
        let ran = sim.run(&place, &arguments, &[("RUNNER_SIM_FAIL", fails)]);
        assert_eq!((ran.ended.code, ran.ended.stderr.as_str()), (Some(code), failed), "{fails}");
        if code == 1 {
            assert_eq!(ran.folder().summary("status"), "failed");
        }
    }
    let ended = sim.run(&Sandbox::new(LINREG), &arguments, &[("RUNNER_SIM_FAIL", "alloc:6")]).ended;
    let message = "error: `gpu:0` failed while taking 33554432 bytes for the working memory of products: \
                   CUDA_ERROR_OUT_OF_MEMORY (out of memory); lower `data.batch_size`, set `data.placement = \"streamed\"`, \
                   or end what else uses the GPU\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), message));
}

#[test]
fn what_only_a_gpu_has_is_refused_on_the_cpu_and_the_other_way_round() {
    let Some(sim) = Sim::get() else { return };
    let cases = [
        (
            "devices.precision=tf32",
            0,
            "`precision = \"tf32\"` needs a GPU, and this run uses the CPU",
            19,
            4,
            "leave it out: the CPU computes in f32",
        ),
        (
            "devices.engine=graph",
            0,
            "the engine `graph` runs on a GPU, and this run uses the CPU",
            16,
            5,
            "leave it out, or `auto`: the plan picks one of the CPU's",
        ),
        (
            "devices.engine=team",
            1,
            "the engine `team` runs on the CPU, and this run uses a GPU",
            16,
            4,
            "leave `devices.engine` out, or `auto`: the plan picks one that fits",
        ),
    ];
    for (argument, gpus, what, column, length, hint) in cases {
        let (bars, marks) = (" ".repeat(column), "^".repeat(length));
        let message = format!(
            "error: {what}\n --> argument 1:1:{column}\n  |\n1 | {argument}\n  |{bars}{marks}\n  |\n  = hint: {hint}\n"
        );
        refused(&sim, &[argument, &format!("devices.num_gpus={gpus}")], &[], 2, &message);
    }
    let large = "model.layers=[{ linear = { out_features = 3000 } }, { linear = { out_features = 1 } }]";
    let ended = sim.run(&Sandbox::new(LINREG), &[large, "devices.engine=persistent"], &[]).ended;
    assert_eq!(ended.code, Some(2));
    let words = "in shared memory, and a block of this GPU has 215 KiB";
    assert!(ended.stderr.lines().next().unwrap_or_default().ends_with(words), "{}", ended.stderr);
}
