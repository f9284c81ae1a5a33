//! `runner check --on FILE`: forecasts for a machine that is not here.

mod machines;

use super::process::Sandbox;

/// Seven instructions a step, four epochs of 4 steps, without a validation.
const SPEC: &str = "[devices]\nnum_gpus = 1\nengine = \"launch\"\n\
    [data]\nbatch_size = 64\nshuffle = false\nsynthetic_regression = { weights = [2.0, -3.4], train_rows = 256, validation_rows = 0 }\n\
    [model]\nlayers = [{ linear = { out_features = 1 } }]\nloss = \"mse\"\n\
    [optimizer.sgd]\nlr = 0.03\n[trainer]\nmax_epochs = 4\n";

/// Two GPUs on which nothing but launches, blocks and messages takes time: a launch 1 ms, a block 5 ms.
const MACHINE: &str = "[cpu]\ncores = 3\nmemory_bytes = 8e9\ninstruction_set = \"avx2\"\n\
    rates = { instruction_s = 1e-2, flops_per_s = 1e18, elementwise_per_s = 1e18, cache_bytes_per_s = 1e18, block_s = 0.0 }\n\
    [gpu]\nmodel = \"Some GPU\"\ncount = 2\nmemory_bytes = 1e9\ncompute_capability = \"8.0\"\nmultiprocessors = 100\n\
    clock_hz = 1e9\nshared_bytes = 160000\n\
    [gpu.rates]\nf32_flops_per_s = 1e18\nmemory_bytes_per_s = 1e18\ncache_bytes_per_s = 1e18\nh2d_bytes_per_s = 1e18\n\
    elementwise_per_s = 1e18\nlaunch_s = 1e-3\nnode_s = 1e-3\nblock_s = 5e-3\nh2d_latency_s = 0.0\nd2h_latency_s = 0.0\nsync_s = 0.0\n\
    [gpu.link]\nlatency_s = 0.05\nbytes_per_s = 1e18\n";

fn with_machine(spec: &str, machine: &str) -> Sandbox {
    let place = Sandbox::new(spec);
    std::fs::write(place.path().join("machine.toml"), machine).expect("a machine");
    place
}

/// What `check -q` with these arguments prints, all of it on standard output.
fn forecasts(place: &Sandbox, arguments: &[&str]) -> String {
    let ended = place.runner(&[&["check", "spec.toml", "--on", "machine.toml", "-q"], arguments].concat());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    ended.stdout
}

/// A step launches seven instructions and its end: 8 ms, and 0.04 ms of latency that engines have beyond their launches. The host hands
/// three blocks over for 16 steps, that is 0.94 ms a step; four where it reads each epoch's sum, and one more for the first step; 16 where it
/// reads each loss. Two GPUs launch one instruction less for the sum, and exchange two messages of 0.05 s.
#[test]
fn settings_cost_what_the_rates_of_the_machine_say() {
    let place = with_machine(SPEC, MACHINE);
    insta::assert_snapshot!(forecasts(&place, &[]), @r#"

    forecasts by the rates in machine.toml; nothing ran there
      setting                   engine   a step   rows/s     ratio     run  a step is bound by
      as it is                  launch  8.98 ms     7129     1.00x  447 ms  launch latency
      devices.num_gpus=2        launch   111 ms    578.6  0.08117x  2.07 s  all-reduce
      logging.policy=off        launch  8.98 ms     7129     1.00x  447 ms  launch latency
      logging.policy=per_epoch  launch  9.60 ms     6665     0.93x  457 ms  launch latency
      logging.policy=immediate  launch  13.0 ms     4908     0.69x  512 ms  launch latency
      data.placement=streamed   launch  9.60 ms     6665     0.93x  457 ms  launch latency
      data.batch_size=128       launch  9.92 ms  12.91 k     1.81x  382 ms  launch latency
      data.batch_size=256       launch  10.5 ms  24.29 k     3.41x  345 ms  launch latency
      `devices.num_gpus=0`: the engine `launch` runs on a GPU, and this run uses the CPU
      run: starting the GPU (300 ms), loading, steps, validations and some ms for the folder; data are read and kernels compiled before
      `data.batch_size` changes the training: expect other losses
    "#);
    insta::assert_snapshot!(forecasts(&place, &["devices.num_gpus=0,1,2", "devices.engine=auto", "optimizer.sgd.lr=0.1,0.2"]), @r#"

    forecasts by the rates in machine.toml; nothing ran there
      trial            num_gpus  lr   engine       a step   rows/s   ratio      run  a step is bound by
      0 and 1 like it  0         0.1  serial      70.0 ms    914.1   1.00x   1.12 s  call overhead
      2 and 1 like it  1         0.1  persistent   943 µs  67.90 k  74.29x  16.6 ms  launch latency
      4 and 1 like it  2         0.1  graph        111 ms    578.6   0.63x   1.77 s  all-reduce
      run: without starting the GPU once (300 ms): loading, steps, validations and some ms for the folder; data are read and kernels compiled before
    "#);
}

#[test]
fn the_page_is_that_of_the_other_machine() {
    let place = with_machine(SPEC, MACHINE);
    let ended = place.runner(&["check", "spec.toml", "--on", "machine.toml"]);
    let machine = "  machine    that of machine.toml: 2 GPUs of Some GPU; it is not here, so nothing is measured\n  devices    gpu:0\n";
    let step = "             about 8.98 ms by given rates, bound by launch latency\n";
    let memory = "40.0 MiB on the device, 954 MiB free\n";
    for line in [machine, step, memory] {
        assert!(ended.stdout.contains(line), "{line}{}", ended.stdout);
    }
    let ended = place.runner(&["check", "spec.toml", "--on", "machine.toml", "devices.num_gpus=3"]);
    assert!(ended.code == Some(3) && ended.stderr.contains("that machine has 2 GPUs"), "{ended:?}");
}

#[test]
fn a_machine_without_gpus_computes_on_its_cores() {
    let cpu = MACHINE
        .split("[gpu]")
        .next()
        .unwrap_or_default()
        .replace("instruction_s = 1e-2", "instruction_s = 0.0");
    let place = with_machine(&SPEC.replace("num_gpus = 1\nengine = \"launch\"\n", ""), &cpu);
    // Two products of 256 FLOP at 1 MFLOP/s, by three threads that share all of it, five barriers of 1 us, and 17 us for a small step.
    std::fs::write(
        place.path().join("machine.toml"),
        cpu.replace("1e18, elem", "1e6, product_scaling = 1.0, elem"),
    )
    .expect("a machine");
    insta::assert_snapshot!(forecasts(&place, &[]), @r#"

    forecasts by the rates in machine.toml; nothing ran there
      setting              engine  a step   rows/s  ratio      run  a step is bound by
      as it is             team    193 µs  332.2 k  1.00x  6.08 ms  arithmetic
      data.batch_size=128  team    363 µs  352.3 k  1.06x  5.91 ms  arithmetic
      data.batch_size=256  team    705 µs  363.3 k  1.09x  5.82 ms  arithmetic
      run: loading, steps, validations and some ms for the folder; data are read and kernels compiled before
      `data.batch_size` changes the training: expect other losses
    "#);
}

#[test]
fn what_is_wrong_with_a_description_is_shown_in_it() {
    let place = Sandbox::new(SPEC);
    let told = |text: &str| {
        std::fs::write(place.path().join("machine.toml"), text).expect("a machine");
        let ended = place.runner(&["check", "spec.toml", "--on", "machine.toml"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        ended.stderr
    };
    let with = |from: &str, to: &str| {
        assert!(MACHINE.contains(from), "{from}");
        told(&MACHINE.replace(from, to))
    };
    let all = [
        with("node_s = 1e-3", "nods_s = 1e-3"),
        with("node_s = 1e-3", "node_s = -1.0"),
        with("launch_s = 1e-3", "launch_s = 3.6"),
        with("f32_flops_per_s = 1e18", "f32_flops_per_s = 82.6"),
        with("memory_bytes = 1e9", "memory_bytes = 24"),
        with("f32_flops_per_s = 1e18\n", ""),
        with("[gpu.link]\nlatency_s = 0.05\nbytes_per_s = 1e18\n", ""),
        with("count = 2", "count = 0"),
        with("\"8.0\"", "\"8\""),
        with("\"8.0\"", "\"-1.5\""),
        with("memory_bytes = 1e9", "memory = 1e9"),
        with("cores = 3", "cores = \"3\""),
        with("\"avx2\"", "\"sse\""),
        told("[gpu"),
        told(""),
    ];
    insta::assert_snapshot!(all.join("\n"), @r#"
    error: there is no rate `nods_s`
      --> machine.toml:21:1
       |
    21 | nods_s = 1e-3
       | ^
       |
       = hint: did you mean `node_s`?

    error: expected seconds below 0.1, such as 3.6e-6, found -1
      --> machine.toml:21:10
       |
    21 | node_s = -1.0
       |          ^

    error: expected seconds below 0.1, such as 3.6e-6, found 3.6
      --> machine.toml:20:12
       |
    20 | launch_s = 3.6
       |            ^

    error: expected FLOP/s, such as 46.8e12, found 82.6
      --> machine.toml:15:19
       |
    15 | f32_flops_per_s = 82.6
       |                   ^

    error: expected bytes, such as 24e9, found 24
     --> machine.toml:9:16
      |
    9 | memory_bytes = 24
      |                ^

    error: the rate `f32_flops_per_s` of `[gpu.rates]` is missing
     --> machine.toml:6:1
      |
    6 | [gpu]
      | ^
      |
      = hint: a data sheet has it; `runner devices -o FILE` writes measured ones

    error: `[gpu.link]` is missing: what sums over several GPUs take
     --> machine.toml:8:9
      |
    8 | count = 2
      |         ^
      |
      = hint: give its `latency_s` and `bytes_per_s`

    error: expected a number from 1 to 1024, found 0
     --> machine.toml:8:9
      |
    8 | count = 0
      |         ^

    error: expected a compute capability, such as "9.0"
      --> machine.toml:10:22
       |
    10 | compute_capability = "8"
       |                      ^

    error: expected a compute capability, such as "9.0"
      --> machine.toml:10:22
       |
    10 | compute_capability = "-1.5"
       |                      ^

    error: there is no key `memory`, expected one of `model`, `count`, `memory_bytes`, `compute_capability`, `multiprocessors`, `clock_hz`, `shared_bytes`, `rates`, `link`
     --> machine.toml:9:1
      |
    9 | memory = 1e9
      | ^

    error: invalid type: string "3", expected a whole number
     --> machine.toml:2:9
      |
    2 | cores = "3"
      |         ^

    error: expected one of `avx512`, `avx2`, `portable`, found `sse`
     --> machine.toml:4:19
      |
    4 | instruction_set = "sse"
      |                   ^

    error: unclosed table, expected `]`
     --> machine.toml:1:5
      |
    1 | [gpu
      |     ^

    error: it describes no machine
    --> machine.toml:1:1
     = hint: give it a table `[gpu]` or `[cpu]`
    "#);
    let ended = place.runner(&["check", "spec.toml", "--on", "nowhere.toml"]);
    insta::assert_snapshot!(ended.stderr, @r#"
    error: the description of the machine cannot be read: no such file or directory
    --> nowhere.toml
     = hint: `runner devices -o FILE` writes that of a machine; docs/forecasts.md says how to write one
    "#);
    for (arguments, message) in
        [(&["--advise"][..], "--advise"), (&["--virtual-gpus", "2"], "--virtual-gpus")]
    {
        let ended = place.runner(&[&["check", "spec.toml", "--on", "machine.toml"], arguments].concat());
        assert!(ended.code == Some(2) && ended.stderr.contains(message), "{ended:?}");
    }
}

/// Where only products and copies to the GPU take time: 1 GFLOP/s, 4 in tf32, and 1 MB/s.
const SLOW: &str = "[gpu]\nmodel = \"Slow GPU\"\nmemory_bytes = 1e9\ncompute_capability = \"8.0\"\nmultiprocessors = 100\n\
    clock_hz = 1e9\nshared_bytes = 160000\n\
    [gpu.rates]\nf32_flops_per_s = 1e9\ntf32_flops_per_s = 4e9\nmemory_bytes_per_s = 1e18\ncache_bytes_per_s = 1e18\nh2d_bytes_per_s = 1e6\n\
    d2h_bytes_per_s = 1e18\nelementwise_per_s = 1e18\nlaunch_s = 0.0\nblock_s = 0.0\nh2d_latency_s = 0.0\nd2h_latency_s = 0.0\nsync_s = 0.0\n";

/// Steps of 64 and 36 rows, and 250 rows to validate on at once. A row's products take 6.022 MFLOP, in a validation 2.01: 301 ms for a
/// step in the mean, and 503 ms for a validation. 4.03 MB of parameters and 7 kB of rows are copied.
const WIDE: &str = "[devices]\nnum_gpus = 1\nengine = \"launch\"\n\
    [data]\nbatch_size = 64\nshuffle = false\nsynthetic_regression = { weights = [1.0, 2.0, 3.0, 4.0], train_rows = 100, validation_rows = 250 }\n\
    [model]\nlayers = [{ linear = { out_features = 1000 } }, { linear = { out_features = 1000 } }, { linear = { out_features = 1 } }]\nloss = \"mse\"\n\
    [optimizer.sgd]\nlr = 0.03\n[trainer]\nmax_epochs = 10\n";

#[test]
fn the_last_batch_counts_its_rows_and_a_validation_its_own_work() {
    let place = with_machine(WIDE, SLOW);
    insta::assert_snapshot!(forecasts(&place, &[]), @r#"

    forecasts by the rates in machine.toml; nothing ran there
      setting                   engine  a step  rows/s  ratio     run  a step is bound by
      as it is                  launch  301 ms   166.0  1.00x  15.4 s  arithmetic
      logging.policy=off        launch  301 ms   166.0  1.00x  15.4 s  arithmetic
      logging.policy=per_epoch  launch  301 ms   166.0  1.00x  15.4 s  arithmetic
      logging.policy=immediate  launch  301 ms   166.0  1.00x  15.4 s  arithmetic
      data.placement=streamed   launch  301 ms   166.0  1.00x  15.4 s  arithmetic
      devices.precision=tf32    launch  105 ms   474.3  2.86x  8.21 s  arithmetic
      `devices.num_gpus=0`: the engine `launch` runs on a GPU, and this run uses the CPU
      run: starting the GPU (300 ms), loading, steps, validations and some ms for the folder; data are read and kernels compiled before
    "#);
    // What is done between steps ends with them.
    let page = |more: &[&str]| {
        let ended = place.runner(&[&["check", "spec.toml", "--on", "machine.toml"], more].concat());
        let time = ended.stdout.lines().find(|line| line.starts_with("  time ")).unwrap_or_default();
        time.to_owned()
    };
    assert_eq!(
        page(&[]),
        "  time       roughly 15 s by given rates: 20 steps of 301 ms, 10 validations of 503 ms"
    );
    let limited = page(&["trainer.max_time='2s'", "trainer.max_epochs=1000000", "checkpoint.every_steps=1"]);
    assert_eq!(
        limited,
        "  time       at most roughly 6.8 s by given rates: 4 steps of 301 ms, 2 validations of 503 ms"
    );
}

/// Of docs/forecasts.md: 3.59 us were measured.
#[test]
fn a_small_net_takes_on_an_h200_about_what_was_measured() {
    let place = Sandbox::new("");
    let spec = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/digits.toml");
    let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/machines/nvidia-h200.toml");
    let layers =
        "model.layers=[{ linear = { out_features = 32 } }, \"relu\", { linear = { out_features = 10 } }]";
    let more = [
        "devices.num_gpus=1",
        "data.batch_size=32",
        "trainer.max_epochs=10000",
        "data.idx.validation_fraction=0.0",
        "logging.metrics=[\"loss\"]",
    ];
    let ended = place.runner(&[&["check", spec, "--on", machine, "-q", layers][..], &more].concat());
    assert!(ended.stdout.contains("\n  as it is                  compiled  3.44 µs "), "{ended:?}");
}

#[test]
fn threads_and_jobs_are_those_of_the_machine() {
    let place = with_machine(SPEC, MACHINE);
    let check = |more: &[&str]| {
        place.runner(&[&["check", "spec.toml", "--on", "machine.toml", "devices.engine=auto"], more].concat())
    };
    let ended = check(&["devices.num_gpus=0", "--threads", "64"]);
    let warning =
        "warning: `--threads 64` is more than that machine's 3 cores: threads beyond them only wait\n";
    assert_eq!(ended.stderr, warning);
    // As many as there are cores, which share two GPUs.
    let ended = check(&["optimizer.sgd.lr=0.1,0.2,0.3,0.4", "--jobs", "auto"]);
    assert!(ended.stdout.contains("  `--jobs auto` runs 3 trials at a time: up to "), "{}", ended.stdout);
}

/// Five trials at three places take as long as two.
#[test]
fn trials_end_in_rounds() {
    let place = with_machine(SPEC, MACHINE);
    let arguments = ["devices.num_gpus=0", "devices.engine=serial", "seed=0..5", "--jobs", "3"];
    let ended = place.runner(&[&["check", "spec.toml", "--on", "machine.toml"][..], &arguments].concat());
    let time = "  time       roughly 2.2 s by given rates: 5 trials of 1.12 s, 3 at a time\n";
    assert!(ended.stdout.contains(time), "{}", ended.stdout);
    // A CPU and a GPU work beside each other; the GPU is started first.
    let arguments = ["devices.num_gpus=0,1", "devices.engine=auto", "trainer.max_epochs=8", "--jobs", "2"];
    let ended = place.runner(&[&["check", "spec.toml", "--on", "machine.toml"][..], &arguments].concat());
    let time = "  time       roughly 2.5 s by given rates: 2 trials of ";
    assert!(ended.stdout.contains(time), "{}", ended.stdout);
}

/// Trials with `graph` have a GPU each, whatever `--jobs` says: 16 take eight turns of 129 s. Those of one block share them.
#[test]
fn trials_that_keep_a_gpu_take_turns() {
    let place = with_machine(SPEC, MACHINE);
    let time = |engine: &str| {
        let arguments = [
            "check",
            "spec.toml",
            "--on",
            "machine.toml",
            "--jobs",
            "16",
            engine,
            "trainer.max_epochs=4000",
            "seed=0..16",
        ];
        let ended = place.runner(&arguments);
        ended.stdout.lines().find(|line| line.starts_with("  time ")).unwrap_or_default().to_owned()
    };
    assert_eq!(
        time("devices.engine=graph"),
        "  time       roughly 16 min 40 s by given rates: 16 trials of 2 min 09 s, 2 at a time"
    );
    assert_eq!(
        time("devices.engine=persistent"),
        "  time       less than a second by given rates: 16 trials of 97.0 ms, 16 at a time"
    );
}
