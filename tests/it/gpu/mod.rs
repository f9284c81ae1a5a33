//! Test suites for any GPU. `scripts/gpu-check` runs them on real hardware. A test here runs them on the
//! simulated libraries, in a process that is set up to find those.

mod early_sums;
mod instructions;
mod peers;
mod training;

use std::process::Command;

use runner::cuda::{self, Gpu};

use crate::kernels::driver::folder;

/// Set if a missing GPU is a failure.
const REQUIRED: &str = "RUNNER_REQUIRE_CUDA";

/// Set for the process that uses the simulated libraries; they are slow, so it runs only some of the cases.
const STAND_IN: &str = "RUNNER_TEST_STAND_IN";

/// The first GPU. `None`, with a message on standard error, if there is none and none is required.
fn first_gpu() -> Option<Gpu> {
    let found = cuda::gpus().map(|gpus| gpus.into_iter().next());
    let why = match found {
        Ok(Some(gpu)) => return Some(gpu),
        Ok(None) => "no GPU".to_owned(),
        Err(why) => why,
    };
    assert!(std::env::var_os(REQUIRED).is_none_or(|v| v != "1"), "{REQUIRED}=1, but {why}");
    eprintln!("skipped: {why}");
    None
}

/// The cases of a list that this process runs.
fn some<T: Copy>(all: &[T], on_the_stand_in: usize) -> Vec<T> {
    let count = if std::env::var_os(STAND_IN).is_some() { on_the_stand_in } else { all.len() };
    all.iter().copied().take(count).collect()
}

/// The sums over GPUs with the threads of a kernel in each order.
#[test]
fn the_suites_pass_on_the_stand_in_libraries() {
    // On the hardware the suites run directly.
    if std::env::var_os(REQUIRED).is_some() {
        return;
    }
    let Some(libraries) = folder() else { return };
    let all = ["gpu::instructions::", "gpu::training::", "gpu::peers::", "gpu::early_sums::"];
    for (suites, order, count) in
        [(&all[..], "forward", 15), (&all[2..3], "reverse", 4), (&all[2..3], "shuffled", 4)]
    {
        let cache = tempfile::tempdir().unwrap();
        let run = Command::new(std::env::current_exe().unwrap())
            .args(suites)
            .args(["--test-threads", "2"])
            .env("LD_LIBRARY_PATH", libraries)
            .env("RUNNER_CACHE_DIR", cache.path())
            .env("RUNNER_SIM_DEVICES", "3")
            .env("RUNNER_SIM_ORDER", order)
            .env(REQUIRED, "1")
            .env(STAND_IN, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success(), "{order}: {said}{}", String::from_utf8_lossy(&run.stderr));
        assert!(said.contains(&format!("test result: ok. {count} passed")), "{order}: {said}");
    }
}

/// `scripts/gpu-check` finds its binaries and the GPUs, including MIG instances, and names what is missing.
#[test]
fn the_check_of_a_machine_finds_its_gpus() {
    if std::env::var_os(REQUIRED).is_some() {
        return;
    }
    let Some(libraries) = folder() else { return };
    let check = |variables: &[(&str, &str)], arguments: &[&str]| {
        let output = Command::new("scripts/gpu-check")
            .args(arguments)
            .env("LD_LIBRARY_PATH", libraries)
            .env("RUNNER_BINARY", env!("CARGO_BIN_EXE_runner"))
            .env("RUNNER_TESTS", std::env::current_exe().unwrap())
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let out = tempfile::tempdir().unwrap();
    let parity = ["--only", "parity", "--out", out.path().to_str().unwrap()];
    for (variable, gpus) in [(("RUNNER_SIM_DEVICES", "3"), "3 to use"), (("RUNNER_SIM_MIG", "1"), "1 to use")]
    {
        let (code, said, complained) = check(&[variable], &parity);
        assert_eq!((code, complained.as_str()), (Some(0), ""), "{said}");
        assert!(said.contains(gpus) && said.ends_with("\n== all passed\n"), "{said}");
        let log = std::fs::read_to_string(out.path().join("gpu-check-parity.log")).unwrap();
        assert!(log == said, "{log}");
        let several = gpus.starts_with('3');
        assert_eq!(
            said.matches("every count of devices gives the results of cpu").count(),
            2 * usize::from(several),
            "{said}"
        );
        assert_ne!(said.contains("\n== one GPU: no parity of several\n"), several);
    }
    // With no time at all, it lists everything that it would run.
    let (code, said, complained) =
        check(&[("RUNNER_SIM_DEVICES", "2")], &[&parity[2..], &["--minutes", "0"]].concat());
    assert_eq!((code, complained.as_str()), (Some(4), ""), "{said}");
    let listed = said.split_once("\n== no time for\n").unwrap().1;
    let specs = std::fs::read_dir("experiments")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    for spec in specs.filter(|name| name.ends_with(".toml")) {
        assert!(listed.contains(&format!("experiments/{spec}\n")), "{spec}: {listed}");
    }
    for part in ["suites on the hardware", "rates", "parity of 2 GPUs, engine graph", "figures"] {
        assert!(listed.contains(&format!("{part}\n")), "{part}: {listed}");
    }
    let end = listed.lines().last().unwrap();
    assert!(end.starts_with("== not all was checked: ") && end.ends_with(" found no time"), "{listed}");
    let (code, said, complained) = check(&[("RUNNER_SIM_DEVICES", "0")], &parity);
    let message = "gpu-check: `runner devices` lists no GPU that can be used\n";
    assert_eq!((code, complained.as_str()), (Some(3), message), "{said}");
    let (code, _, complained) = check(&[("RUNNER_TESTS", "/nowhere/it")], &parity);
    assert_eq!(code, Some(2));
    assert!(complained.starts_with("gpu-check: `/nowhere/it` is not there; build it"), "{complained}");
    let (code, _, complained) = check(&[], &["--out"]);
    assert_eq!((code, complained.as_str()), (Some(2), "gpu-check: --out wants a value\n"));
    let (code, _, complained) = check(&[], &["--only", "suites,all"]);
    let message = "gpu-check: no part all; there are: suites rates parity hosts experiments engines predictions figures sanitizer\n";
    assert_eq!((code, complained.as_str()), (Some(2), message));
    let (code, _, complained) = check(&[], &["--minutes", "soon"]);
    assert_eq!((code, complained.as_str()), (Some(2), "gpu-check: --minutes wants a whole number\n"));
}
