//! `runner devices`: the GPUs, matched by UUID between CUDA and NVML, and what is missing and why.

use super::{LINREG, Sim, has_real_driver};
use crate::process::Sandbox;

/// The lines after the CPU's.
fn section(sim: &Sim, variables: &[(&str, &str)]) -> String {
    let ended = sim.runner(&Sandbox::new(LINREG), &["devices"], variables).ended_by(0);
    let text = ended.stdout;
    let text = text[text.find("\ngpu").unwrap() + 1..].to_owned();
    // Folders differ between test runs.
    text.replace(sim.libraries.to_str().unwrap(), "LIBRARIES")
        .replace(sim.kernels().to_str().unwrap(), "KERNELS")
}

#[test]
fn without_a_driver_it_says_so_in_one_line() {
    if has_real_driver() {
        return;
    }
    let empty = tempfile::tempdir().unwrap();
    let text = section(&Sim::at(empty.path()), &[]);
    assert_eq!(
        text,
        "gpu\n  none: no NVIDIA driver: libcuda.so.1 is not there\n  looked for libcuda.so.1 in $RUNNER_CUDA_PATH (not \
         set), the loader's path, $VIRTUAL_ENV (not set), $CONDA_PREFIX (not set), /usr/local/cuda/lib64\n"
    );
}

#[test]
fn a_driver_without_a_gpu_is_told_apart_from_no_driver() {
    let Some(sim) = Sim::get() else { return };
    let text = section(&sim, &[("RUNNER_SIM_DEVICES", "0")]);
    assert_eq!(text, "gpu\n  none: the NVIDIA driver is there, but no GPU that it can use\n");
}

#[test]
fn the_table_the_links_and_the_libraries() {
    let Some(sim) = Sim::get() else { return };
    let want = "\
gpu: 2 GPUs
  device  GPU  name           bus id            temp  perf  power        memory           GPU-util  compute
  gpu:1   0    Simulated GPU  00000000:02:00.0  31C   P0    68W / 700W   4MiB / 1024MiB   0%        9.0
  gpu:0   1    Simulated GPU  00000000:01:00.0  30C   P0    68W / 700W   4MiB / 1024MiB   10%       9.0

processes
  device  GPU  PID   type  name     memory
  gpu:1   0    4200  C     python3  512MiB
  gpu:1   0    77    C     N/A      N/A
  gpu:0   1    4201  C     python3  512MiB
  gpu:0   1    77    C     N/A      N/A

links
  gpu:1 - gpu:0  NV4   each reads the other's memory

libraries
  driver       580.65.06, CUDA 13.0, LIBRARIES/libcuda.so.1
  NVRTC        13.0, LIBRARIES/libnvrtc.so.12
  cuBLASLt     13.0, LIBRARIES/libcublasLt.so.12
  NCCL         2.27, LIBRARIES/libnccl.so.2
  kernel cache KERNELS

rates of gpu:0
  not measured; `runner devices --measure` measures them

rates of gpu:1
  not measured; `runner devices --measure` measures them
";
    let got = section(&sim, &[("RUNNER_SIM_DEVICES", "2")]);
    // Column widths follow the cells; only their order and content are compared.
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&got), words(want), "{got}");
}

/// A GPU with two MIG instances; CUDA lets this process use only the first.
#[test]
fn a_part_of_a_gpu_is_told_from_the_whole() {
    let Some(sim) = Sim::get() else { return };
    let want = "\
gpu: 1 GPU
  device  GPU    name                       bus id            temp  perf  power        memory           GPU-util  compute
  -       0      Simulated GPU              00000000:01:00.0  30C   P0    68W / 700W   4MiB / 1024MiB   0%        9.0
  gpu:0   0 MIG  Simulated GPU MIG 1g.10gb  N/A               N/A   N/A   N/A          4MiB / 1024MiB   N/A       9.0
  -       0 MIG  Simulated GPU MIG 1g.10gb  N/A               N/A   N/A   N/A          4MiB / 1024MiB   N/A       9.0
";
    let cut = [("RUNNER_SIM_MIG", "1")];
    let got = section(&sim, &cut);
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert!(words(&got).starts_with(&words(want)), "{got}");
    let place = Sandbox::new(LINREG);
    let folder = sim.run(&place, &["trainer.max_epochs=1"], &cut).ended_by(0);
    let environment = folder.text("environment.toml");
    for line in [
        "name = \"gpu:0\"\n",
        "uuid = \"MIG-63757369-6d00-0000-0000-000000000100\"\n",
        "model = \"Simulated GPU MIG 1g.10gb\"\n",
        "mig = true\n",
    ] {
        assert!(environment.contains(line), "{line}{environment}");
    }
}

#[test]
fn json_has_the_facts_of_the_table() {
    let Some(sim) = Sim::get() else { return };
    let json = |arguments: &[&str], variables: &[(&str, &str)]| -> serde_json::Value {
        let ended =
            sim.runner(&Sandbox::new(LINREG), &[&["devices", "--json"], arguments].concat(), variables);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        serde_json::from_str(&ended.stdout).unwrap()
    };
    let all = json(&[], &[("RUNNER_SIM_DEVICES", "2")]);
    assert!(all["cpu"]["cores"].as_u64() > Some(0), "{all}");
    assert_eq!(all["gpu"]["count"], 2);
    let [first, process] = [&all["gpu"]["gpus"][1], &all["gpu"]["gpus"][1]["processes"][0]];
    assert_eq!([&first["device"], &first["name"]], ["gpu:0", "Simulated GPU"]);
    assert_eq!([&first["memory_total_bytes"], &process["memory_used_bytes"]], [1 << 30, 512 << 20]);
    assert_eq!([&process["type"], &process["name"]], ["C", "python3"]);
    assert_eq!(all["gpu"]["links"][0]["kind"], "NV4");
    let none = json(&[], &[("RUNNER_SIM_DEVICES", "0")]);
    assert_eq!(none["gpu"]["none"], "the NVIDIA driver is there, but no GPU that it can use");
    let posed = json(&["--virtual-gpus", "3"], &[]);
    assert_eq!(
        [&posed["gpu"]["count"], &posed["gpu"]["gpus"][2]["name"]],
        [&3.into(), &serde_json::Value::from("virtual:2")]
    );
}

#[test]
fn what_is_missing_is_told_with_where_it_was_looked_for() {
    let Some((sim, _folder)) = Sim::only(&["libcuda.so.1"]) else { return };
    let looked = |names: &str| {
        format!(
            "looked for {names} in $RUNNER_CUDA_PATH (not set), the loader's path, $VIRTUAL_ENV (not set), \
             $CONDA_PREFIX (not set), /usr/local/cuda/lib64"
        )
    };
    let want = format!(
        "
  load, temperature and power are unknown: libnvidia-ml.so.1, which comes with the NVIDIA driver, is not there

libraries
  driver       13.0, LIBRARIES/libcuda.so.1
  NVRTC        NVRTC, the CUDA run-time compiler, is not there: {}; `pip install nvidia-cuda-nvrtc` in an active \
         virtual environment, or install the CUDA toolkit, or name its folder in $RUNNER_CUDA_PATH
  cuBLASLt     not there, so our own kernels do the large products: {}
  NCCL         not there: {}
  kernel cache KERNELS

rates of gpu:0
  not measured; `runner devices --measure` measures them
",
        looked("libnvrtc.so.13, libnvrtc.so.12"),
        looked("libcublasLt.so.13, libcublasLt.so.12"),
        looked("libnccl.so.2"),
    );
    let got = section(&sim, &[]);
    // The driver's link points into the folder with all libraries.
    let got: Vec<&str> =
        got.lines().skip(3).filter(|line| !line.trim_start().starts_with("driver")).collect();
    let want: Vec<&str> = want.lines().filter(|line| !line.trim_start().starts_with("driver")).collect();
    assert_eq!(got, want);
}

#[test]
fn folders_of_the_user_and_of_an_environment_are_looked_into() {
    let Some(all) = Sim::get() else { return };
    let Some((sim, _folder)) = Sim::only(&["libcuda.so.1"]) else { return };
    let libraries = all.libraries.to_str().unwrap();
    let text = section(&sim, &[("RUNNER_CUDA_PATH", &format!("/nowhere:{libraries}"))]);
    assert!(text.contains(&format!("NVRTC        13.0, {libraries}/libnvrtc.so.12\n")), "{text}");
    let environment = tempfile::tempdir().unwrap();
    let wheel = environment.path().join("lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib");
    std::fs::create_dir_all(&wheel).unwrap();
    std::os::unix::fs::symlink(all.libraries.join("libnvrtc.so.12"), wheel.join("libnvrtc.so.12")).unwrap();
    let text = section(&sim, &[("VIRTUAL_ENV", environment.path().to_str().unwrap())]);
    assert!(text.contains(&format!("NVRTC        13.0, {}/libnvrtc.so.12\n", wheel.display())), "{text}");
}
