//! A tour of tensors: what it prints, the numbers that it stores, and the errors that it expects.

use std::fs;

use super::traffic;
use crate::process::{Ended, Sandbox, tensors};

#[test]
fn the_tour_prints_what_the_textbook_does() {
    let spec = fs::canonicalize("experiments/tensors.toml").unwrap();
    let place = Sandbox::with_spec(&spec);
    let ran = place.run(&["--virtual-gpus", "2"]);
    let folder = ran.ended_by(0);
    let out = &ran.ended.stdout;
    for part in [
        "1. X = ones([2, 3]) on virtual:0\ntensor([[1., 1., 1.],\n        [1., 1., 1.]], shape=[2, 3], dtype=f32, \
         device='virtual:0')\n",
        "3. sum = X + Y\n   raises, as declared: `X` is on virtual:0 and `Y` on virtual:1; copy one: `Z = \
         X.copy(virtual:1)`\n",
        "4. Z = X.copy(virtual:1)\n   24 B copied\n",
        "6. W = Z.copy(virtual:1)\n   it is there already: the same tensor, nothing is moved\n",
        "7. own = Z.copy(virtual:1), forced\n   24 B copied\n",
        "8. out = net(X)\n   0.weight [1, 3] on virtual:0\n   0.bias [1] on virtual:0\n   16 B copied\n",
    ] {
        assert!(out.contains(part), "{part}\nis not in\n{out}");
    }
    // What is shown moves to the host, in a copy for each tensor.
    assert!(out.contains("\n  printing moved 200 B in 8 copies, 8 waits\n  folder "), "{out}");
    let moved = folder.table("transfers.csv");
    let printed = traffic(&moved, "d2h", "log", ["virtual:0", "cpu"]);
    assert_eq!(printed, Some(["2".into(), "0".into(), "32".into()]));
    let table = folder.table("tensors.csv");
    assert_eq!(
        table.columns,
        ["step", "op", "name", "device", "shape", "dtype", "bytes", "copied_bytes", "status", "message"]
    );
    assert_eq!(
        table.column("status"),
        ["done", "done", "raised", "done", "done", "same", "done", "done", "done"]
    );
    assert_eq!(table.column("copied_bytes"), ["0", "24", "0", "24", "0", "0", "24", "16", "48"]);
    assert_eq!(table.cell(3, "shape"), "[2, 3]");
    assert_eq!(table.cell(3, "bytes"), "24");
    assert_eq!([table.cell(8, "dtype"), table.cell(8, "bytes")], ["i64", "48"]);
    assert_eq!(
        table.cell(2, "message"),
        "`X` is on virtual:0 and `Y` on virtual:1; copy one: `Z = X.copy(virtual:1)`"
    );
    let d2d = |route| traffic(&moved, "d2d", "tensor", route);
    assert_eq!(d2d(["virtual:0", "virtual:1"]), Some(["1".into(), "0".into(), "24".into()]));
    assert_eq!(d2d(["virtual:1", "virtual:1"]), Some(["1".into(), "1".into(), "24".into()]));
}

const NUMBERS: &str = "\
kind = \"tensors\"
[[tensors.step]]
name = \"big\"
from = [[9007199254740993, -1], [0, 2]]
dtype = \"i64\"
[[tensors.step]]
name = \"narrow\"
from = [7, -2147483648]
dtype = \"i32\"
device = \"gpu:0\"
[[tensors.step]]
name = \"there\"
copy = \"big\"
device = \"gpu:0\"
[[tensors.step]]
name = \"ones\"
ones = [3]
dtype = \"i64\"
[[tensors.step]]
name = \"spread\"
rand = [400]
range = [-2, 2]
[[tensors.step]]
save = { tensors = [\"there\", \"narrow\"], file = \"numbers.safetensors\" }
[[tensors.step]]
name = \"again\"
load = { file = \"numbers.safetensors\", tensor = \"there\" }
";

#[test]
fn whole_numbers_keep_every_bit_on_their_way() {
    let place = Sandbox::new(NUMBERS);
    let ran = place.run(&["--virtual-gpus", "1"]);
    let folder = ran.ended_by(0);
    for shown in [
        "tensor([[9007199254740993,               -1],\n        [               0,                2]], shape=[2, 2], dtype=i64, \
         device='cpu')\n",
        "tensor([          7, -2147483648], shape=[2], dtype=i32, device='virtual:0')\n",
        "tensor([1, 1, 1], shape=[3], dtype=i64, device='cpu')\n",
    ] {
        assert!(
            ran.ended.stdout.replace(",\n       shape", ", shape").contains(shown),
            "{shown}{}",
            ran.ended.stdout
        );
    }
    // The tensor is the same after saving and loading.
    let tensors: Vec<&str> = ran.ended.stdout.split("tensor(").filter(|t| t.starts_with("[[9007")).collect();
    assert_eq!(tensors.len(), 3, "{}", ran.ended.stdout);
    let table = folder.table("tensors.csv");
    assert_eq!(table.column("dtype"), ["i64", "i32", "i64", "i64", "f32", "", "i64"]);
    assert_eq!(table.cell(0, "bytes"), "32");
    // The resolved spec repeats the run.
    let repeat = Sandbox::with_spec(&folder.0.join("spec.toml"));
    let again = repeat.run(&["--virtual-gpus", "1"]);
    assert_eq!(again.ended_by(0).text("tensors.csv"), folder.text("tensors.csv"));
}

#[test]
fn numbers_that_a_format_does_not_hold_and_sums_of_whole_ones_are_refused() {
    for (steps, words) in [
        ("name = \"X\"\nfrom = [1, 0.5]\ndtype = \"i32\"", "`i32` holds no 0.5"),
        ("name = \"X\"\nfrom = [2147483648]\ndtype = \"i32\"", "`i32` holds no 2147483648"),
        ("name = \"X\"\nrand = [2]\ndtype = \"i64\"", "whole numbers need a range"),
        ("name = \"X\"\nrand = [2]\nrange = [1, 1]", "the first number must be below the second"),
        (
            "name = \"X\"\nrand = [2]\nrange = [0.5, 2]\ndtype = \"i32\"",
            "`i32` takes whole numbers that it holds",
        ),
        ("name = \"X\"\nones = [2]\nrange = [0, 1]", "only `rand` takes one"),
        (
            "name = \"X\"\nones = [2]\ndtype = \"i32\"\n[[tensors.step]]\nname = \"Y\"\nadd = [\"X\", \"X\"]",
            "`X` holds i32: devices compute with f32 alone",
        ),
    ] {
        let place = Sandbox::new(&format!("kind = \"tensors\"\n[[tensors.step]]\n{steps}\n"));
        let ended = place.runner(&["check", "spec.toml"]).ended_by(2);
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
}

#[test]
fn parameters_go_through_a_file_to_another_device() {
    let spec = fs::canonicalize("experiments/parameters.toml").unwrap();
    let place = Sandbox::with_spec(&spec);
    let ran = place.run(&["--virtual-gpus", "2"]);
    let folder = ran.ended_by(0);
    let saved = tensors(&fs::read(folder.0.join("net.safetensors")).unwrap());
    let shapes = ["0.weight", "0.bias", "2.weight", "2.bias"].map(|name| saved[name].0.clone());
    assert_eq!(shapes, [vec![3, 4], vec![3], vec![1, 3], vec![1]]);
    // Equal parameters give equal output on both devices.
    let shown = |head: &str| {
        let after = ran.ended.stdout.split(head).nth(1).unwrap();
        after.split("tensor(").nth(1).unwrap().split(", shape").next().unwrap().to_owned()
    };
    assert_eq!(shown("A = net(X)"), shown("B = net(X1)"));
    assert!(
        folder.text("run.log").contains("step 4, save the parameters of A's net to net.safetensors, done")
    );
}

#[test]
fn without_gpus_the_tour_runs_on_the_cpu_and_says_what_it_cannot_show() {
    let spec = fs::canonicalize("experiments/tensors.toml").unwrap();
    let place = Sandbox::with_spec(&spec);
    let ran = place.run(&["--virtual-gpus", "0"]);
    let table = ran.ended_by(0).table("tensors.csv");
    assert_eq!(table.cell(2, "status"), "skipped");
    assert_eq!(table.cell(2, "message"), "it takes two devices: gpu:0 and gpu:1 are both cpu here");
    assert_eq!(table.cell(3, "status"), "same");
    let warning = "warning: no GPU can be used (`--virtual-gpus 0` hides every one), without `gpu:0`, `gpu:1`: their tensors \
                   live on the CPU";
    assert_eq!(ran.ended.stderr.lines().nth(1), Some(warning));
}

/// Runs a tour of these steps on two virtual GPUs.
fn tour(steps: &str, arguments: &[&str]) -> (Sandbox, Ended) {
    let place = Sandbox::new(&format!("kind = \"tensors\"\nname = \"tour\"\n{steps}"));
    let ended = place.runner(&[&["spec.toml", "--virtual-gpus", "2"], arguments].concat());
    (place, ended)
}

pub const TWO: &str = "\
[[tensors.step]]
name = \"X\"
ones = [2, 3]
device = \"gpu:0\"
[[tensors.step]]
name = \"Y\"
ones = [3, 2]
device = \"gpu:1\"
";

#[test]
fn a_mismatch_that_is_not_declared_is_refused_before_anything_runs() {
    let (place, ended) =
        tour(&format!("{TWO}[[tensors.step]]\nname = \"S\"\nmatmul = [\"X\", \"Y\"]\n"), &[]);
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (
            Some(2),
            "error: `X` is on virtual:0 and `Y` on virtual:1
  --> spec.toml:13:10
   |
13 | matmul = [\"X\", \"Y\"]
   |          ^^^^^^^^^^
   |
   = hint: copy one: `name = \"Z\"`, `copy = \"X\"`, `device = \"gpu:1\"`; or declare it: `expect = \"device_mismatch\"`
"
        )
    );
    assert!(!place.path().join("runs").exists());
    let (_, ended) = tour(
        "[[tensors.step]]\nname = \"X\"\nones = [2, 3]\n[[tensors.step]]\nname = \"S\"\nmatmul = [\"X\", \"X\"]\n",
        &[],
    );
    assert_eq!(
        ended.stderr,
        "error: `X` of shape [2, 3] and `X` of shape [2, 3] cannot be multiplied: they must be [m, k] and [k, n]
 --> spec.toml:8:10
  |
8 | matmul = [\"X\", \"X\"]
  |          ^^^^^^^^^^
"
    );
}

#[test]
fn a_net_takes_every_layer_that_training_does() {
    let steps = "[[tensors.step]]\nname = \"X\"\nfrom = [[1, 2, 3], [5, 3, 1]]\n[[tensors.step]]\nname = \"Y\"\n\
                 net = { layers = [{ layer_norm = {} }, { dropout = { p = 0.5 } }, \"relu\"], input = \"X\" }\n";
    let (_, ended) = tour(steps, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let shown = "2. Y = net(X)\n   0.weight [3] on cpu\n   0.bias [3] on cpu\ntensor([[0.0000, 0.0000, 1.2247],\n        \
                 [1.2247, 0.0000, 0.0000]], shape=[2, 3]";
    assert!(ended.stdout.contains(shown), "{}", ended.stdout);
}

#[test]
fn a_file_that_cannot_be_loaded_is_refused_before_anything_runs() {
    let steps = "[[tensors.step]]\nname = \"Y\"\nload = { file = \"nothing.safetensors\" }\n";
    let (place, ended) = tour(steps, &[]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let message = format!(
        "error: cannot read `{}/nothing.safetensors`: no such file or directory\n --> spec.toml:5:17\n",
        place.path().canonicalize().unwrap().display()
    );
    assert!(ended.stderr.starts_with(&message), "{}", ended.stderr);
    assert!(!place.path().join("runs").exists());
}

#[test]
fn a_declared_error_that_will_not_be_raised_is_refused_before_anything_runs() {
    let steps = "[[tensors.step]]\nname = \"X\"\nones = [2]\n[[tensors.step]]\nname = \"S\"\nadd = [\"X\", \"X\"]\nexpect = \"device_mismatch\"\n";
    let (place, ended) = tour(steps, &[]);
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (
            Some(2),
            "error: this step will not raise `device_mismatch`: `X` is both operands
 --> spec.toml:9:10
  |
9 | expect = \"device_mismatch\"
  |          ^^^^^^^^^^^^^^^^^
  |
  = hint: remove `expect`, or use a tensor of another device
"
        )
    );
    assert!(!place.path().join("runs").exists());
    let check = place.runner(&["check", "spec.toml", "--virtual-gpus", "2"]);
    assert_eq!((check.code, check.stderr), (Some(2), ended.stderr));
    for (step, why) in [
        ("add = [\"X\", \"Y\"]", "`X` and `Y` are both on virtual:0"),
        ("net = { layers = [\"relu\"], input = \"X\" }\ndevice = \"gpu:1\"", "the net has no parameters"),
    ] {
        let same = TWO.replace("gpu:1", "gpu:0").replace("[3, 2]", "[2, 3]");
        let steps = format!("{same}[[tensors.step]]\nname = \"S\"\n{step}\nexpect = \"device_mismatch\"\n");
        let (_, ended) = tour(&steps, &[]);
        let message = format!("error: this step will not raise `device_mismatch`: {why}\n");
        assert!(ended.code == Some(2) && ended.stderr.starts_with(&message), "{ended:?}");
    }
}

#[test]
fn the_result_of_a_step_that_declares_an_error_is_refused_with_that_key() {
    let steps = format!(
        "{TWO}[[tensors.step]]\nname = \"S\"\nadd = [\"X\", \"Y\"]\nexpect = \"device_mismatch\"\n[[tensors.step]]\nname = \"N\"\nnorm = \"S\"\n"
    );
    let (_, ended) = tour(&steps, &[]);
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (
            Some(2),
            "error: `tensors.step.3.norm`: there is no tensor `S`: its step declares by `expect` that it fails, so it makes none
  --> spec.toml:17:8
   |
17 | norm = \"S\"
   |        ^^^
   |
   = hint: remove `expect` there if that step is to succeed, or use another tensor here
"
        )
    );
}

#[test]
fn a_list_of_devices_that_leaves_a_steps_out_is_refused() {
    let (_, ended) = tour(TWO, &["devices.use=[\"gpu:0\"]"]);
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (
            Some(2),
            "error: `devices.use` leaves out `gpu:1`, which this step is on
  --> spec.toml:10:10
   |
10 | device = \"gpu:1\"
   |          ^^^^^^^
   |
   = hint: name it there, too, or leave `devices.use` out: each step has the device that it names
"
        )
    );
    let (_, ended) = tour(TWO, &["devices.use=[\"gpu:1\", \"gpu:0\"]", "-q"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // A name that the terminal prints is no name in a spec, and the error has the one that is.
    let (_, ended) = tour(&TWO.replace("gpu:1", "virtual:1"), &[]);
    assert!(ended.code == Some(2) && ended.stderr.contains("hint: write `gpu:1`\n"), "{ended:?}");
}
