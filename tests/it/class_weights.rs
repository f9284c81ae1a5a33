//! `model.class_weights`: rows of rare classes count for more. PyTorch's curves are in `parity`, the ops in `conformance` and
//! `kernels`.

use std::fs;

use super::{
    devices::classes,
    process::{Folder, Sandbox, tensors},
};

const SPEC: &str = r#"
[data]
batch_size = 16
split = { validation = 0.25, stratify = true }
[data.csv]
path = "mail.csv"
target = "spam"
[model]
layers = [{ linear = { out_features = 2 } }]
loss = "cross_entropy"
[optimizer.adam]
lr = 0.01
[trainer]
max_epochs = 4
"#;

/// 100 rows, of which 12 are spam.
fn sandbox() -> Sandbox {
    let place = Sandbox::new(SPEC);
    let row = |n: u32| format!("{},{},{}\n", n * 7 % 13, n * 3 % 11, if n % 8 == 3 { "yes" } else { "no" });
    let rows: String = (0..96).map(row).chain((0..4).map(|n| row(8 * n))).collect();
    fs::write(place.path().join("mail.csv"), format!("words,links,spam\n{rows}")).unwrap();
    place
}

fn losses(run: &Folder) -> Vec<f64> {
    run.metrics().f64s("loss")
}

/// Each word makes an error; all messages.
#[test]
fn weights_that_do_not_fit() {
    let place = sandbox();
    let refused = |words: &[&str]| {
        let ended = place.runner(&[&["check", "spec.toml"], words].concat());
        assert_eq!(ended.code, Some(2), "{ended:?}");
        ended.stderr
    };
    let all = [
        refused(&["model.class_weights={ yes = 5 }"]),
        refused(&["model.class_weights={ yes = 5, no = 1, maybe = 2 }"]),
        refused(&["model.class_weights=[1, 5, 2]"]),
        refused(&["model.class_weights=[1, 0]"]),
        refused(&["model.class_weights=balance"]),
        refused(&[
            "model.class_weights=balanced",
            "model.loss=mse",
            "data.csv.target=links",
            "data.csv.ignore=[\"spam\"]",
            "~data.split",
        ]),
    ];
    insta::assert_snapshot!(all.join("\n"), @r#"
    error: these classes have no weight: `no`
     --> argument:1:21
      |
    1 | model.class_weights={ yes = 5 }
      |                     ^^^^^^^^^^^
      |
      = hint: the classes are `no`, `yes`

    error: `maybe` is no class of the data
     --> argument:1:21
      |
    1 | model.class_weights={ yes = 5, no = 1, maybe = 2 }
      |                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = hint: the classes are `no`, `yes`

    error: 3 weights for 2 classes
     --> argument:1:21
      |
    1 | model.class_weights=[1, 5, 2]
      |                     ^^^^^^^^^
      |
      = hint: the classes are `no`, `yes`

    error: `model.class_weights`: expected `"balanced"`, or a number above 0 for each class, as in `{ yes = 5.0, no = 1.0 }` or `[1.0, 5.0]`, found an array
     --> argument:1:21
      |
    1 | model.class_weights=[1, 0]
      |                     ^^^^^^ weights of the classes in `cross_entropy`, by class or in their order; `"balanced"`: rows / (classes * rows of the class)

    error: `model.class_weights`: expected `"balanced"`, or a number above 0 for each class, as in `{ yes = 5.0, no = 1.0 }` or `[1.0, 5.0]`, found the string `balance`
     --> argument:1:21
      |
    1 | model.class_weights=balance
      |                     ^^^^^^^ weights of the classes in `cross_entropy`, by class or in their order; `"balanced"`: rows / (classes * rows of the class)

    error: `model.class_weights`: it needs classes, and the loss is `mse`
     --> argument 1:1:21
      |
    1 | model.class_weights=balanced
      |                     ^^^^^^^^
      |
      = hint: set `model.loss = "cross_entropy"`, or remove it
    "#);
}

/// The three ways to write the same weights give the same run; `check` prints the numbers.
#[test]
fn weights_by_name_in_order_and_balanced() {
    let place = sandbox();
    // Of 75 rows to train on, nine are spam.
    let note = "class weights: `no` 0.5682, `yes` 4.167";
    let checked = place.runner(&["check", "spec.toml", "model.class_weights=balanced"]).stdout;
    assert!(checked.contains(&format!("             {note}\n")), "{checked}");
    let run = |word: &str| place.run(&["-q", word]).ended_by(0);
    let balanced = run("model.class_weights=balanced");
    assert!(balanced.text("run.log").contains(note), "{}", balanced.text("run.log"));
    assert!(balanced.text("spec.toml").contains("class_weights = \"balanced\"\n"));
    let [no, yes] = [75.0 / (2.0 * 66.0), 75.0 / (2.0 * 9.0)];
    let named = run(&format!("model.class_weights={{ yes = {yes:?}, no = {no:?} }}"));
    let listed = run(&format!("model.class_weights=[{no:?}, {yes:?}]"));
    assert_eq!((losses(&named), tensors(&named.model())), (losses(&balanced), tensors(&balanced.model())));
    assert_eq!((losses(&listed), tensors(&listed.model())), (losses(&balanced), tensors(&balanced.model())));
    // The resolved spec repeats the run.
    fs::write(place.path().join("again.toml"), named.text("spec.toml")).unwrap();
    let again = place.runner(&["again.toml", "-q"]);
    assert_eq!(losses(&Folder(place.path().join(again.stdout.trim()))), losses(&balanced));
    // Equal weights are none.
    let [plain, equal] = ["trainer.max_epochs=4", "model.class_weights=[3, 3]"].map(run);
    let pairs = losses(&equal).into_iter().zip(losses(&plain));
    pairs.for_each(|(own, plain)| assert!((own - plain).abs() < 1e-6 * plain, "{own} {plain}"));
    assert!(losses(&balanced)[0] != losses(&plain)[0]);
    // Such losses are of other tasks.
    let compared = [&balanced, &plain].map(|run| run.0.display().to_string());
    let compared = place.runner(&["compare", &compared[0], &compared[1]]).stdout;
    assert!(compared.contains("whose losses are not comparable: model.class_weights"), "{compared}");
    let folder = balanced.0.display().to_string();
    let evaluated = place.runner(&["evaluate", &folder, "mail.csv"]).stdout;
    assert!(evaluated.contains("  cross_entropy, without class weights\n"), "{evaluated}");
}

/// The divisor is the sum of the weights of the whole batch, on however many devices its rows are, also where they have none of
/// the last batch's rows. Rows are shuffled.
#[test]
fn devices_share_the_divisor() {
    let place = classes();
    let run = |words: &[&str]| {
        let weights = "model.class_weights=[0.5, 3, 1, 2.5]";
        place.run(&[&["-q", weights, "trainer.max_steps=60"], words].concat()).ended_by(0)
    };
    let one = losses(&run(&["--threads=1"]));
    assert_eq!(losses(&run(&["--threads=2", "devices.engine=team"])), one);
    assert_eq!(losses(&run(&["data.placement=streamed"])), one);
    for count in ["2", "3", "7"] {
        for placement in ["resident", "streamed"] {
            let gpus = format!("devices.num_gpus={count}");
            let words = [&gpus, "--virtual-gpus", count, &format!("data.placement={placement}")];
            let several = losses(&run(&words));
            assert_eq!(several.len(), one.len());
            let pairs = several.iter().zip(&one);
            pairs.for_each(|(own, one)| assert!((own - one).abs() < 1e-4 * one, "{count}: {own} {one}"));
        }
    }
}

/// An interrupted run goes on with the batches that it would have had.
#[test]
fn a_run_goes_on_within_an_epoch() {
    let place = classes();
    let words = ["-q", "model.class_weights=balanced", "name=whole"];
    let whole = place.run(&[&words[..], &["trainer.max_steps=40"]].concat()).ended_by(0);
    let part = place.run(&[
        "-q",
        "model.class_weights=balanced",
        "name=part",
        "trainer.max_steps=22",
        "checkpoint.every_steps=22",
    ]);
    let part = part.ended_by(0);
    let folder = part.0.display().to_string();
    let resumed = place.runner(&["--resume", &folder, "trainer.max_steps=40", "-q"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert_eq!(tensors(&part.model()), tensors(&whole.model()));
}
