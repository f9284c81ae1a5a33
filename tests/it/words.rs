//! Messages as a user reads them, whole: sizes and their units, the place of what is wrong, what the machine is.

use std::process::Command;

use super::{
    process::{Ended, Place, RUNNER},
    run::LINREG,
};

/// What is said of memory, with what this machine has as `FREE`.
fn refused(place: &Place, arguments: &[&str]) -> String {
    let ended = place.runner(&[&["check", "spec.toml"], arguments].concat());
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let free = ended.stderr.split(", and ").nth(1).and_then(|rest| rest.split(" are available").next());
    ended.stderr.replace(free.unwrap_or("nothing"), "FREE")
}

#[test]
fn what_is_too_large_is_underlined_where_it_was_written() {
    let place = Place::new("kind = \"matmul\"\n[matmul]\nsizes = [16, 4000000]\n");
    insta::assert_snapshot!(refused(&place, &[]), @r"
    error: this needs 175 TiB of memory on the host, and FREE are available
     --> spec.toml:3:14
      |
    3 | sizes = [16, 4000000]
      |              ^^^^^^^
      |
      = hint: make it smaller
    ");
    insta::assert_snapshot!(refused(&place, &["matmul.sizes=[16]", "matmul.sizes.0=3000000"]), @r"
    error: this needs 98.2 TiB of memory on the host, and FREE are available
     --> argument:1:16
      |
    1 | matmul.sizes.0=3000000
      |                ^^^^^^^
      |
      = hint: make it smaller
    ");
    let place = Place::new(LINREG);
    let wide = "model.layers=[{ linear = { out_features = 2000000000 } }, { linear = { out_features = 1 } }]";
    let weights = format!("data.synthetic_regression.weights=[{}0]", "0, ".repeat(1999));
    insta::assert_snapshot!(refused(&place, &[wide]), @r"
    error: the job needs 775 GiB of memory for parameters, activations and data, and FREE are available
     --> argument:1:43
      |
    1 | model.layers=[{ linear = { out_features = 2000000000 } }, { linear = { out_features = 1 } }]
      |                                           ^^^^^^^^^^
      |
      = hint: make the model smaller
    ");
    insta::assert_snapshot!(refused(&place, &["data.synthetic_regression.train_rows=4000000000", &weights]), @r"
    error: 4,000,000,050 synthetic rows need 29.1 TiB of memory, and FREE are available
     --> argument:1:38
      |
    1 | data.synthetic_regression.train_rows=4000000000
      |                                      ^^^^^^^^^^
      |
      = hint: lower it
    ");
}

/// A limit of the address space counts what the program itself has taken of it already.
#[test]
fn what_a_limit_leaves_is_what_is_available() {
    let place = Place::new(LINREG);
    let line = format!(
        "ulimit -v 200000; exec {RUNNER} check spec.toml data.synthetic_regression.train_rows=20000000"
    );
    let ended = Ended::of(Command::new("sh").args(["-c", &line]).current_dir(place.path()).output().unwrap());
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let (needs, rest) = ended.stderr.split_once(" of memory, and ").unwrap();
    assert_eq!(needs, "error: 20,000,050 synthetic rows need 229 MiB");
    let (free, rest) = rest.split_once(" MiB are available\n").unwrap();
    // 195.3 MiB are the limit; the program is some ten of it, and far from all.
    assert!((50.0..194.0).contains(&free.parse::<f64>().unwrap()), "{free}");
    assert!(rest.ends_with("  = hint: lower it\n"), "{rest}");
}

#[test]
fn the_machine_with_virtual_gpus() {
    let place = Place::new("");
    let gpus = |ended: Ended| {
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        let at = ended.stdout.find("\ngpu\n").unwrap();
        let text = ended.stdout[at + 1..].to_owned();
        match text.split("host's ").nth(1).and_then(|rest| rest.split(" usable").next()) {
            Some(free) if !free.contains('\n') => text.replace(free, "FREE"),
            _ => text,
        }
    };
    insta::assert_snapshot!(gpus(place.runner(&["devices", "--virtual-gpus", "2"])), @r"
    gpu
      device     in a spec  memory
      virtual:0  gpu:0      one of its own, of the host's FREE usable
      virtual:1  gpu:1      one of its own, of the host's FREE usable

      virtual: the host poses as a machine with exactly these; real ones are hidden
      they share the host's processor: their times say nothing of GPUs
    ");
    assert_eq!(
        gpus(place.runner(&["devices", "--virtual-gpus", "0"])),
        "gpu\n  none: `--virtual-gpus 0` hides every one\n"
    );
    let by_variable = place.command(&["devices"]).env("RUNNER_VIRTUAL_GPUS", "1").output().unwrap();
    assert!(gpus(Ended::of(by_variable)).contains("\n  virtual:0  gpu:0 "));
}

#[test]
fn options_before_the_command() {
    let place = Place::new(LINREG);
    let ended = place.runner(&["-q", "--threads", "1", "run", "spec.toml"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.starts_with("runs/spec/") && ended.stdout.lines().count() == 1, "{ended:?}");
}
