//! Full runs through the binary: equal bits however they are computed and logged, and the folder's contents.

use std::{env, fs, path::PathBuf, process::Command};

use super::process::{Ended, Folder, RUNNER, Sandbox, Table, tensors};

/// A classifier on the digits that draws everything at random: order, weights, dropout.
const DIGITS: &str = r#"
[data]
batch_size = 50
[data.idx]
images = "DATA/digits-images-idx3-ubyte.gz"
labels = "DATA/digits-labels-idx1-ubyte.gz"
scale = 16.0
[model]
layers = [{ linear = { out_features = 70 } }, "relu", { dropout = { p = 0.2 } }, { linear = { out_features = 10 } }]
[optimizer.adam]
lr = 0.003
[trainer]
max_epochs = 2
[logging]
metrics = ["loss", "accuracy", "grad_norm", "param_norm", "lr"]
"#;

/// 103 rows in batches of 20: five full steps and one of three rows.
pub const LINREG: &str = r#"
[data]
batch_size = 20
[data.synthetic_regression]
weights = [2.0, -3.4]
bias = 4.2
train_rows = 103
validation_rows = 50
[model]
layers = [{ linear = { out_features = 1 } }]
[optimizer.sgd]
lr = 0.03
[trainer]
max_epochs = 4
"#;

fn digits() -> Sandbox {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/data");
    Sandbox::new(&DIGITS.replace("DATA", data))
}

/// Equal rows except times, and equal weights. (The model file also contains its spec's hash.)
#[track_caller]
fn same(a: &Folder, b: &Folder) {
    assert_eq!(a.numbers(), b.numbers());
    assert!(tensors(&a.model()) == tensors(&b.model()), "other weights");
}

#[test]
fn the_same_bits_from_any_number_of_threads() {
    for place in [digits(), Sandbox::new(LINREG)] {
        let first = place.run(&["--threads", "1"]).ended_by(0);
        let again = place.run(&["--threads", "1"]).ended_by(0);
        same(&first, &again);
        assert!(first.model() == again.model(), "another model file");
        for threads in ["2", "3"] {
            for engine in ["auto", "team"] {
                let engine = format!("devices.engine={engine}");
                let run = place.run(&["--threads", threads, &engine]).ended_by(0);
                same(&first, &run);
            }
        }
        let other = place.run(&["seed=1"]).ended_by(0);
        assert_ne!(first.numbers(), other.numbers());
    }
}

#[test]
fn the_first_line_of_the_spec_repeats_the_run() {
    let place = digits();
    let runs = place.path().join("with space");
    let arguments =
        ["spec.toml", "optimizer.adam.lr=0.01", "description=it's", "--threads", "2", "--runs-dir"];
    let ended = Ended::from_output(place.command(&arguments).arg(&runs).output().unwrap());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let first = Folder::within(&runs).unwrap();
    let text = first.text("spec.toml");
    let command = text.lines().next().unwrap().strip_prefix("# runner ").unwrap();
    let again = place.path().join("again");
    // From another folder through a shell, as a user would.
    let line = format!("exec {RUNNER} {command} --runs-dir {}", again.display());
    let ended = Ended::from_output(Command::new("sh").args(["-c", &line]).current_dir("/").output().unwrap());
    assert_eq!(ended.code, Some(0), "{line}\n{}", ended.stderr);
    let second = Folder::within(&again).unwrap();
    same(&first, &second);
    assert!(first.model() == second.model(), "another model file");
    let hash8 = |folder: &Folder| folder.0.to_str().unwrap().rsplit_once('-').unwrap().1.to_owned();
    assert_eq!(hash8(&first), hash8(&second));
    let body = |folder: &Folder| folder.text("spec.toml").split_once('\n').unwrap().1.to_owned();
    assert_eq!(body(&first), body(&second));
}

/// Accuracy is a share of whole rows, whatever the chunks of the validation.
#[test]
fn accuracy_is_the_quotient_of_two_counts() {
    let place = digits();
    for batch in ["data.batch_size=50", "data.batch_size=270"] {
        let validation = place.run(&[batch]).ended_by(0).metrics().only("split", "validation");
        for (rows, accuracy) in validation.f64s("rows").into_iter().zip(validation.f64s("accuracy")) {
            assert_eq!(accuracy, (accuracy * rows).round() / rows, "of {rows}");
        }
    }
}

#[test]
fn policies_give_the_same_numbers() {
    for (place, columns) in [(digits(), 5), (Sandbox::new(LINREG), 1)] {
        for steps in [None, Some("trainer.max_steps=9")] {
            let run = |arguments: &[&str]| {
                let arguments: Vec<&str> = arguments.iter().copied().chain(steps).collect();
                place.run(&arguments).ended_by(0)
            };
            let buffered = run(&[]);
            let table = buffered.metrics();
            let order: Vec<f64> = table.f64s("step");
            assert!(order.is_sorted(), "{order:?}");
            same(&buffered, &run(&["logging.policy=immediate"]));
            for steps in ["1", "4", "6", "7", "29", "1000000"] {
                same(&buffered, &run(&["logging.policy=buffered", &format!("logging.flush_every={steps}")]));
            }
            let off = run(&["logging.policy=off"]);
            let validation = |folder: &Folder| folder.metrics().only("split", "validation").rows;
            assert_eq!(off.metrics().only("split", "train").rows, Vec::<Vec<String>>::new());
            let per_epoch = run(&["logging.policy=per_epoch"]);
            for other in [&off, &per_epoch] {
                let numbers = |rows: Vec<Vec<String>>| -> Vec<Vec<String>> {
                    rows.into_iter().map(|row| row[..row.len() - 1].to_vec()).collect()
                };
                assert_eq!(numbers(validation(other)), numbers(validation(&buffered)));
                assert!(tensors(&other.model()) == tensors(&buffered.model()), "other weights");
            }
            means(&table, &per_epoch.metrics().only("split", "train"), columns);
        }
    }
}

/// The rows of `per_epoch` are means of the steps' rows, weighted by batch size; a learning rate is that of
/// the last step.
fn means(all: &Table, per_epoch: &Table, columns: usize) {
    let epochs = all.column("epoch").iter().map(|epoch| epoch.parse::<usize>().unwrap()).max().unwrap();
    assert_eq!(per_epoch.rows.len(), epochs);
    for epoch in 1..=epochs {
        let of_epoch = |row: &&Vec<String>| row[1] == epoch.to_string() && row[2] == "train";
        let rows: Vec<&Vec<String>> = all.rows.iter().filter(of_epoch).collect();
        let got = &per_epoch.rows[epoch - 1];
        let number = |cell: &str| cell.parse::<f64>().unwrap();
        let total: f64 = rows.iter().map(|row| number(&row[3])).sum();
        assert_eq!((&got[0], number(&got[3])), (&rows.last().unwrap()[0], total));
        for column in 4..4 + columns {
            if all.columns[column] == "lr" {
                assert_eq!(got[column], rows.last().unwrap()[column]);
                continue;
            }
            let sum: f64 =
                rows.iter().map(|row| f64::from(row[column].parse::<f32>().unwrap()) * number(&row[3])).sum();
            let mean = (sum / total) as f32;
            assert_eq!(got[column].parse::<f32>().unwrap(), mean, "epoch {epoch}, {}", all.columns[column]);
        }
    }
}

#[test]
fn the_folder_holds_every_file_with_its_header() {
    let place = Sandbox::new(LINREG);
    let run = place.run(&["logging.metrics=[\"loss\", \"grad_norm\", \"lr\"]", "name=head"]).ended_by(0);
    assert_eq!(run.files(), super::experiments::FILES);
    let header = |name: &str| run.text(name).lines().next().unwrap().to_owned();
    assert_eq!(header("metrics.csv"), "step,epoch,split,rows,loss,grad_norm,lr,elapsed_s");
    assert_eq!(
        header("timing.csv"),
        "device,clock,phase,count,total_s,mean_s,std_s,min_s,p50_s,p95_s,p99_s,max_s,share,samples"
    );
    assert_eq!(
        header("transfers.csv"),
        "kind,purpose,from,to,count,noop_count,bytes,total_s,gb_per_s,moved_bytes"
    );
    assert_eq!(
        header("summary.csv"),
        "run,name,status,devices_requested,devices_used,virtual,scaling,precision,engine,epochs,steps,\
         final_train_loss,final_validation_loss,final_validation_accuracy,wall_s,train_s,steps_per_s,samples_per_s,\
         logging_s,logging_share,syncs,bytes_h2d,bytes_d2h,peak_device_bytes,peak_rss_bytes,best_value,best_epoch,best_step,\
         data_digest,epoch_train_loss,peak_planned_bytes,energy_j,reason"
    );
    // Short steps are timed in blocks, and the file says so.
    let steps = run.table("timing.csv").only("phase", "step");
    assert_eq!(steps.column("count"), ["24"]);
    assert!(steps.f64s("samples")[0] < 24.0, "{steps:?}");
    let environment: toml::Table = run.text("environment.toml").parse().unwrap();
    for (table, keys) in [
        ("devices", &["requested", "used", "virtual", "precision", "timed_by"][..]),
        ("host", &["threads", "available_threads"]),
        ("cpu", &["logical_cores", "instruction_set", "flags", "caches"]),
        ("memory", &["total_bytes", "available_bytes"]),
        ("os", &["name", "arch", "kernel"]),
        ("versions", &["runner", "build"]),
    ] {
        assert!(keys.iter().all(|key| environment[table].get(key).is_some()), "{environment}");
    }
    let started = environment["started"].as_str().unwrap();
    assert!(started.len() == "2027-01-15T08:00:00.000Z".len() && started.ends_with('Z'), "{started}");
    let metrics = run.metrics();
    assert_eq!(metrics.rows.len(), 4 * (6 + 1));
    let train = run.metrics().only("split", "train");
    assert_eq!(train.f64s("step"), (1..=24).map(f64::from).collect::<Vec<_>>());
    assert_eq!(&train.column("rows")[..7], ["20", "20", "20", "20", "20", "3", "20"]);
    let validation = run.metrics().only("split", "validation");
    assert_eq!(validation.column("step"), ["6", "12", "18", "24"]);
    assert_eq!(validation.column("rows"), ["50"; 4]);
    assert_eq!(validation.column("grad_norm"), [""; 4]);
    assert!(metrics.f64s("elapsed_s").is_sorted());
    for (column, value) in
        [("status", "finished"), ("epochs", "4"), ("steps", "24"), ("name", "head"), ("syncs", "0")]
    {
        assert_eq!(run.summary(column), value, "{column}");
    }
    assert_eq!(run.summary("final_train_loss"), *train.column("loss").last().unwrap());
    assert_eq!(run.summary("final_validation_loss"), *validation.column("loss").last().unwrap());
    // The CPU's memory is the host's, so there are only copies within it.
    let transfers = run.table("transfers.csv");
    let (kinds, bytes) = (transfers.column("kind"), transfers.column("bytes"));
    assert!(kinds.iter().zip(bytes).all(|(kind, bytes)| *kind == "d2d" || bytes == "0"), "{transfers:?}");
    assert!(
        kinds.iter().zip(transfers.f64s("noop_count")).all(|(kind, count)| *kind == "d2d" || count > 0.0)
    );
}

/// The measured phases add up to the loop's time; the rest is `other`.
#[test]
fn phases_add_up() {
    let place = digits();
    let mut others = Vec::new();
    // Another process may take the core between two phases, but hardly ten times in a row.
    for _ in 0..10 {
        let timing = place.run(&["trainer.max_epochs=4"]).ended_by(0).table("timing.csv");
        assert!(timing.column("clock").iter().all(|clock| *clock == "host"));
        let (names, totals) = (timing.column("phase"), timing.f64s("total_s"));
        let row = |phase: &str| names.iter().position(|name| *name == phase).unwrap();
        let total = totals[row("total")];
        let parts = names.iter().zip(&totals).filter(|(name, _)| !["total", "warmup"].contains(name));
        let sum: f64 = parts.map(|(_, seconds)| seconds).sum();
        assert!((sum / total - 1.0).abs() < 0.02, "{timing:?}");
        let steps = 4.0 * 29.0;
        for phase in ["forward", "loss", "backward", "optimizer"] {
            assert_eq!(timing.f64s("count")[row(phase)], steps, "{phase}");
        }
        others.push(totals[row("other")] / total);
        if others.last() < Some(&0.1) {
            return;
        }
    }
    panic!("other takes too much: {others:?}");
}

#[test]
fn streamed_rows_give_the_same_numbers() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parity");
    let place = Sandbox::new(&format!(
        "[data]\nbatch_size = 32\n[data.npy]\nfeatures = \"{folder}/features.npy\"\n\
         labels = \"{folder}/classes.npy\"\n[model]\nlayers = [{{ linear = {{ out_features = 12 }} }}, \"relu\",\n\
         {{ dropout = {{ p = 0.5 }} }}, {{ linear = {{ out_features = 4 }} }}]\nloss = \"cross_entropy\"\n\
         [optimizer.sgd]\nlr = 0.1\n"
    ));
    for shuffle in ["data.shuffle=true", "data.shuffle=false"] {
        // Every member of a team reads its own rows; a device with separate memory gets chunks.
        let team: &[&str] = &["devices.engine=team", "--threads=3"];
        let apart: &[&str] = &["devices.num_gpus=1", "--virtual-gpus=1"];
        for more in [&[][..], &["trainer.max_steps=6"], &["logging.policy=immediate"], team, apart] {
            let run = |placement: &str| {
                let arguments: Vec<&str> = [shuffle, placement].iter().chain(more).copied().collect();
                place.run(&arguments).ended_by(0)
            };
            same(&run("data.placement=resident"), &run("data.placement=streamed"));
        }
    }
    let page = |more: &[&str]| {
        place.runner(&[&["check", "spec.toml", "data.placement=streamed"], more].concat()).stdout
    };
    let fetched = page(&["data.shuffle=false"]);
    assert!(fetched.contains("; fetched from the file row by row, and checked then\n"), "{fetched}");
    let chunks = page(&["devices.num_gpus=1", "--virtual-gpus=1"]);
    let words = "120 rows to train on, 30 to validate on; streamed, an epoch in one chunk of rows from the file, and checked then\n";
    assert!(chunks.contains(words), "{chunks}");
    // Eight megabytes of wider rows: 2,095 rows of 1,001 numbers, which are 104 batches of 20.
    let weights = format!("data.synthetic_regression.weights=[{}1]", "1, ".repeat(999));
    let arguments = [&weights, "data.synthetic_regression.train_rows=5000", "data.placement=streamed"];
    let virtual_gpu = ["check", "spec.toml", "devices.num_gpus=1", "--virtual-gpus=1"];
    let wide = Sandbox::new(LINREG).runner(&[&virtual_gpu[..], &arguments].concat()).stdout;
    assert!(wide.contains("; streamed in chunks of 2,080 rows\n"), "{wide}");
}

/// Ten epochs on MNIST's test images with a textbook network.
#[test]
fn mnist_is_learned() {
    let folder = env::var_os("RUNNER_TEST_DATA").map(|folder| PathBuf::from(folder).join("mnist"));
    let Some(folder) = folder.and_then(|folder| fs::canonicalize(folder).ok()) else {
        println!("skipped: no `mnist` (set RUNNER_TEST_DATA to the folder of the test data)");
        return;
    };
    let place = Sandbox::new(&format!(
        "[data]\nbatch_size = 64\n[data.idx]\nimages = \"{0}/t10k-images-idx3-ubyte.gz\"\n\
         labels = \"{0}/t10k-labels-idx1-ubyte.gz\"\n[model]\n\
         layers = [{{ linear = {{ out_features = 256 }} }}, \"relu\", {{ linear = {{ out_features = 10 }} }}]\n\
         [optimizer.adam]\nlr = 0.001\n",
        folder.display()
    ));
    let run = place.run(&["-q"]).ended_by(0);
    let accuracy: f64 = run.summary("final_validation_accuracy").parse().unwrap();
    assert!(accuracy > 0.93, "{accuracy}");
}
