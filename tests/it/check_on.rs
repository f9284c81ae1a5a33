//! `runner check --on FILE`: forecasts for a machine that is not here.

use super::process::Sandbox;

/// Seven instructions a step, four epochs of 4 steps, without a validation.
const SPEC: &str = "[devices]\nnum_gpus = 1\nengine = \"launch\"\n\
    [data]\nbatch_size = 64\nshuffle = false\nsynthetic_regression = { weights = [2.0, -3.4], train_rows = 256, validation_rows = 0 }\n\
    [model]\nlayers = [{ linear = { out_features = 1 } }]\nloss = \"mse\"\n\
    [optimizer.sgd]\nlr = 0.03\n[trainer]\nmax_epochs = 4\n";

/// Two GPUs on which nothing but launches, blocks and messages takes time: a launch 1 ms, a block 5 ms.
const MACHINE: &str = "[cpu]\ncores = 3\nmemory_bytes = 8e9\ninstruction_set = \"avx2\"\n\
    rates = { instruction_s = 1.0, flops_per_s = 1e18, elementwise_per_s = 1e18, cache_bytes_per_s = 1e18, block_s = 0.0 }\n\
    [gpu]\nmodel = \"Some GPU\"\ncount = 2\nmemory_bytes = 1e9\ncompute_capability = \"8.0\"\nmultiprocessors = 100\n\
    clock_hz = 1e9\nshared_bytes = 160000\n\
    [gpu.rates]\nf32_flops_per_s = 1e18\nmemory_bytes_per_s = 1e18\ncache_bytes_per_s = 1e18\nh2d_bytes_per_s = 1e18\n\
    elementwise_per_s = 1e18\nlaunch_s = 1e-3\nnode_s = 1e-3\nblock_s = 5e-3\nh2d_latency_s = 0.0\nd2h_latency_s = 0.0\nsync_s = 0.0\n\
    [gpu.link]\nlatency_s = 0.5\nbytes_per_s = 1e18\n";

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
/// reads each loss. Two GPUs exchange two messages of 0.5 s.
#[test]
fn settings_cost_what_the_rates_of_the_machine_say() {
    let place = with_machine(SPEC, MACHINE);
    insta::assert_snapshot!(forecasts(&place, &[]), @r#"

    forecasts by the rates in machine.toml; nothing ran there
      setting                   engine   a step   rows/s      ratio     run  a step is bound by
      as it is                  launch  8.98 ms     7129      1.00x  447 ms  launch latency
      devices.num_gpus=2        launch   1.01 s    63.33  0.008883x  16.5 s  all-reduce
      logging.policy=off        launch  8.98 ms     7129      1.00x  447 ms  launch latency
      logging.policy=per_epoch  launch  9.60 ms     6665      0.93x  457 ms  launch latency
      logging.policy=immediate  launch  13.0 ms     4908      0.69x  512 ms  launch latency
      data.placement=streamed   launch  9.60 ms     6665      0.93x  457 ms  launch latency
      devices.precision=tf32    launch  8.98 ms     7129      1.00x  447 ms  launch latency
      devices.precision=bf16    launch  8.98 ms     7129      1.00x  447 ms  launch latency
      data.batch_size=128       launch  9.92 ms  12.91 k      1.81x  382 ms  launch latency
      data.batch_size=256       launch  10.5 ms  24.29 k      3.41x  345 ms  launch latency
      `devices.num_gpus=0`: the engine `launch` runs on a GPU, and this run uses the CPU
      run: starts the GPU, copies the rows, trains and validates; data are read and kernels compiled before
      `data.batch_size` changes the training: expect other losses
    "#);
    insta::assert_snapshot!(forecasts(&place, &["devices.num_gpus=0,1,2", "devices.engine=auto", "optimizer.sgd.lr=0.1,0.2"]), @r#"

    forecasts by the rates in machine.toml; nothing ran there
      trial            num_gpus  lr   engine      a step   rows/s  ratio         run  a step is bound by
      0 and 1 like it  0         0.1  serial      7.00 s    9.143  1.00x  1 min 52 s  call overhead
      2 and 1 like it  1         0.1  persistent  943 µs  67.90 k  7427x      317 ms  launch latency
      4 and 1 like it  2         0.1  graph       1.01 s    63.33  6.93x      16.5 s  all-reduce
      run: starts the GPU, copies the rows, trains and validates; data are read and kernels compiled before
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
    assert!(ended.code == Some(3) && ended.stderr.contains("this machine has 2 GPUs"), "{ended:?}");
}

#[test]
fn a_machine_without_gpus_computes_on_its_cores() {
    let cpu = MACHINE
        .split("[gpu]")
        .next()
        .unwrap_or_default()
        .replace("instruction_s = 1.0", "instruction_s = 0.0");
    let place = with_machine(&SPEC.replace("num_gpus = 1\nengine = \"launch\"\n", ""), &cpu);
    // Two products of 256 FLOP at 1 MFLOP/s, by three threads that share all of it, and five barriers of 1 us.
    std::fs::write(
        place.path().join("machine.toml"),
        cpu.replace("1e18, elem", "1e6, product_scaling = 1.0, elem"),
    )
    .expect("a machine");
    insta::assert_snapshot!(forecasts(&place, &[]), @r#"

    forecasts by the rates in machine.toml; nothing ran there
      setting              engine  a step   rows/s  ratio      run  a step is bound by
      as it is             team    176 µs  364.3 k  1.00x  5.81 ms  arithmetic
      data.batch_size=128  team    346 µs  369.6 k  1.01x  5.77 ms  arithmetic
      data.batch_size=256  team    688 µs  372.3 k  1.02x  5.75 ms  arithmetic
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
        with("f32_flops_per_s = 1e18\n", ""),
        with("[gpu.link]\nlatency_s = 0.5\nbytes_per_s = 1e18\n", ""),
        with("count = 2", "count = 0"),
        with("\"8.0\"", "\"8\""),
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

    error: `node_s` is a finite number of at least 0
      --> machine.toml:21:10
       |
    21 | node_s = -1.0
       |          ^

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
    error: the description of the machine cannot be read: No such file or directory (os error 2)
    --> nowhere.toml
     = hint: `runner devices -o FILE` writes that of a machine; docs/measurement.md says how to write one
    "#);
    for (arguments, message) in
        [(&["--advise"][..], "--advise"), (&["--virtual-gpus", "2"], "--virtual-gpus")]
    {
        let ended = place.runner(&[&["check", "spec.toml", "--on", "machine.toml"], arguments].concat());
        assert!(ended.code == Some(2) && ended.stderr.contains(message), "{ended:?}");
    }
}

/// What `devices -o` writes of this machine is read again.
#[test]
fn a_machine_describes_itself() {
    let place = Sandbox::new(&SPEC.replace("num_gpus = 1\nengine = \"launch\"\n", ""));
    let ended = place.runner(&["devices", "-o", "machine.toml"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "wrote machine.toml\n"), "{ended:?}");
    let here = place.runner(&["check", "spec.toml"]).stdout;
    let there = place.runner(&["check", "spec.toml", "--on", "machine.toml"]).stdout;
    assert!(there.contains("  machine    that of machine.toml: no GPU; "), "{there}");
    let row = |page: &str, name: &str| page.lines().find(|line| line.starts_with(name)).map(str::to_owned);
    for name in ["  devices ", "  engine ", "  steps "] {
        assert_eq!(row(&there, name), row(&here, name), "{there}{here}");
    }
    assert!(there.contains("by typical rates") || there.contains("by given rates"), "{there}");
}
