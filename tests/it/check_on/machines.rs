//! Forecasts of jobs that are larger than this machine, and of several machines; files that machines write of themselves.

use super::{MACHINE, SLOW, SPEC, with_machine};
use crate::process::{Ended, Sandbox};

/// 40 GB of rows, on machines of 1 and 100 GB: what is planned does not have to be made.
#[test]
fn rows_of_a_plan_are_not_made() {
    let large = SLOW.replace("1e9\ncompute", "100e9\ncompute");
    let place = Sandbox::new(SPEC);
    let source = "data.synthetic_regression={ features = 99, train_rows = 100_000_000, validation_rows = 0 }";
    let host = "[cpu]\ncores = 2\nmemory_bytes = 200e9\ninstruction_set = \"avx2\"\n";
    for (file, text) in [("machine.toml", large.as_str()), ("small.toml", SLOW)] {
        std::fs::write(place.path().join(file), format!("{host}{text}")).expect("a machine");
    }
    let check = |file: &str| place.runner(&["check", "spec.toml", "--on", file, source]);
    let ended = check("machine.toml");
    // 100 numbers a row.
    let rows =
        "             100,000,000 rows to train on, none to validate on; 37.3 GiB resident on the device\n";
    assert!(ended.code == Some(0) && ended.stdout.contains(rows), "{ended:?}");
    let ended = check("small.toml");
    assert!(ended.code == Some(0) && ended.stdout.contains("; streamed in chunks of "), "{ended:?}");
}

#[test]
fn machines_stand_side_by_side() {
    let place = with_machine(SPEC, MACHINE);
    let cores = "[cpu]\ncores = 2\nmemory_bytes = 8e9\ninstruction_set = \"avx2\"\nrates = { instruction_s = 1e-3 }\n";
    for (file, text) in [("slow.toml", SLOW), ("cores.toml", cores)] {
        std::fs::write(place.path().join(file), text).expect("a machine");
    }
    let on = ["--on", "machine.toml", "--on", "cores.toml", "--on", "slow.toml"];
    let table = |more: &[&str]| {
        let ended = place.runner(&[&["check", "spec.toml"], &on[..], more].concat());
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
        ended.stdout
    };
    // The machine of two GPUs takes what its own table says.
    insta::assert_snapshot!(table(&[]), @r#"

    forecasts by the rates of each machine's file; nothing ran there
      machine  devices  engine   a step   rows/s     run  ratio  memory               a step is bound by
      machine  1 GPU    launch  8.98 ms     7129  447 ms  1.00x  40.0 MiB of 954 MiB  launch latency
      slow     1 GPU    launch  1.43 µs  44.64 M  306 ms  6262x  40.0 MiB of 954 MiB  launch latency
      cores cannot run it: `gpu:0` is not there
      run: starting GPUs, loading, steps, validations and some ms for a folder; data are read and kernels compiled before
    "#);
    insta::assert_snapshot!(table(&["devices.engine=auto", "devices.num_gpus=all", "optimizer.sgd.lr=0.1,0.2", "data.batch_size=64,256"]), @r#"

    forecasts by the rates of each machine's file; nothing ran there
      machine  devices       engine       a step   rows/s   sweep   ratio  memory               a step is bound by
      machine  2 GPUs        graph        111 ms    578.6  4.76 s   1.00x  40.0 MiB of 954 MiB  all-reduce
      cores    1 of 2 cores  serial      7.02 ms     9120  287 ms  16.59x  4.9 KiB of 7.5 GiB   call overhead
      slow     1 GPU         persistent  5.03 µs  12.72 M  319 ms  14.94x  40.0 MiB of 954 MiB  barriers
      devices, engine, step and memory are those of the first trial
      sweep: starting GPUs, loading, steps, validations and some ms for a folder; data are read and kernels compiled before
    "#);
    insta::assert_snapshot!(table(&["devices.engine=auto", "devices.num_gpus=1,2"]), @r#"

    forecasts by the rates of each machine's file; nothing ran there
      machine  devices  engine       a step   rows/s   sweep  ratio  memory               a step is bound by
      machine  1 GPU    persistent   943 µs  67.90 k  2.09 s  1.00x  40.0 MiB of 954 MiB  launch latency
      slow     1 GPU    persistent  5.03 µs  12.72 M  305 ms         40.0 MiB of 954 MiB  barriers
      cores cannot run it: `gpu:0` is not there
      slow: 1 trial skipped: `gpu:1` is not there
      devices, engine, step and memory are those of the first trial
      sweep: starting GPUs, loading, steps, validations and some ms for a folder; data are read and kernels compiled before
    "#);
    insta::assert_snapshot!(table(&["devices.engine=auto", "devices.num_gpus=0", "devices.hosts=2", "--threads", "8"]), @r#"

    forecasts by the rates of each machine's file; nothing ran there
      machine: `--threads 8` is more than its 3 cores: threads beyond them only wait
      machine: none: only trials on the devices of one host are foretold; `--hosts` is for several
      cores: `--threads 8` is more than its 2 cores: threads beyond them only wait
      cores: none: only trials on the devices of one host are foretold; `--hosts` is for several
      slow: `--threads 8` is more than its 2 cores: threads beyond them only wait
      slow: none: only trials on the devices of one host are foretold; `--hosts` is for several
    "#);
    let on = ["--on", "slow.toml", "--on", "cores.toml"];
    let ended = place.runner(&[&["check", "spec.toml", "devices.num_gpus=2"], &on[..]].concat());
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""), "{ended:?}");
    insta::assert_snapshot!(ended.stderr, @r#"
    warning: slow cannot run it: `gpu:1` is not there
    warning: cores cannot run it: `gpu:0`, `gpu:1` are not there
    error: `gpu:1` is not there
     --> argument:1:18
      |
    1 | devices.num_gpus=2
      |                  ^ that machine has 1 GPU
      |
      = hint: `gpu.count` and `[gpu.link]` in its file describe more GPUs; `devices.on_missing = "clamp"` uses the devices that are there, the CPU where none is
    "#);
}

/// What `devices -o` writes of this machine is read again.
#[test]
fn a_machine_describes_itself() {
    let place = Sandbox::new(&SPEC.replace("num_gpus = 1\nengine = \"launch\"\n", ""));
    // Also where there are GPUs.
    let mut command = place.command(&["devices", "-o", "machine.toml"]);
    let ended = Ended::from_output(command.env("CUDA_VISIBLE_DEVICES", "").output().expect("it starts"));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "wrote machine.toml\n"), "{ended:?}");
    let here = place.runner(&["check", "spec.toml"]).stdout;
    let there = place.runner(&["check", "spec.toml", "--on", "machine.toml"]).stdout;
    assert!(there.contains("  machine    that of machine.toml: no GPU; "), "{there}");
    let row = |page: &str, name: &str| {
        let line = page.lines().find(|line| line.starts_with(name));
        line.unwrap_or_else(|| panic!("{name}: {page}")).to_owned()
    };
    for name in ["  devices ", "  engine ", "  steps "] {
        assert_eq!(row(&there, name), row(&here, name), "{there}{here}");
    }
    let again = place.runner(&["devices", "-o", "machine.toml"]);
    let refused = "error: `machine.toml` is there already\n  = hint: name another file, or remove it first\n";
    assert_eq!((again.code, again.stderr.as_str()), (Some(2), refused));
    // Measured rates of all names, among them one that not every processor has.
    let path = place.path().join("machine.toml");
    let text = std::fs::read_to_string(&path).expect("a machine");
    let text = text.split("[cpu.rates]").next().unwrap_or_default().to_owned()
        + "\n[cpu.rates]\nflops_per_s = 1e11\nbf16_flops_per_s = 2e11\nelementwise_per_s = 2e10\ncache_bytes_per_s = 6e10\n\
           memory_bytes_per_s = 1e10\nproduct_scaling = 0.9\nmemory_scaling = 0.5\ninstruction_s = 2e-8\nbarrier_s = 1e-6\nblock_s = 0.0\nnoise = 0.03\n";
    std::fs::write(&path, text).expect("a machine");
    let there = place.runner(&["check", "spec.toml", "--on", "machine.toml"]);
    assert!(there.stdout.contains(" by given rates, bound by "), "{there:?}");
}
