//! Settings: one name everywhere, also those that were stopped, and each among those of its task.

use std::fs;

use super::{SWEEP, charts, page, run, table};
use crate::process::Sandbox;

/// A setting is called by its best run, with its keys, in curves and ranking as in times and transfers.
#[test]
fn a_setting_has_one_name() {
    let place = Sandbox::new(SWEEP);
    assert_eq!(place.runner(&["spec.toml", "data.batch_size=8,16", "-q"]).code, Some(0));
    let page = page(&place, &["runs"]);
    let mut curves: Vec<String> = charts(&page)[0]["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["name"].as_str().unwrap().to_owned())
        .collect();
    curves.sort();
    assert!(curves.len() == 4 && curves.iter().all(|name| name.contains(" lr 0.")), "{curves:?}");
    let part = |id: &str| {
        let (_, rest) = page.split_once(&format!("<section id=\"{id}\">")).unwrap();
        rest.split_once("</section>").unwrap().0
    };
    for (id, end) in [("time", ": cpu, host</span>"), ("transfers", "</span>")] {
        let names = part(id).split("<span>").skip(1);
        let mut names: Vec<String> = names.map(|rest| rest.split_once(end).unwrap().0.to_owned()).collect();
        names.sort();
        assert_eq!(names, curves, "{id}");
    }
}

/// Of 27 trials 24 are stopped: all are drawn, at their best values, on the axis that all of them need.
#[test]
fn stopped_trials_are_drawn() {
    let place = Sandbox::new("");
    let spec = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/halving.toml");
    assert_eq!(place.runner(&[spec, "-q"]).code, Some(0));
    let page = page(&place, &["runs/halving", "--svg", "figures"]);
    let runs = table(&page, "Every run with its figures");
    let stopped = runs.iter().filter(|row| row.contains(&"stopped".to_owned())).count();
    assert!(stopped > 12, "{runs:?}");
    let effect = fs::read_to_string(place.path().join("figures/02-effect-lr.svg")).unwrap();
    assert_eq!(effect.matches("<circle class=\"hollow\"").count(), stopped, "{effect}");
    assert_eq!(effect.matches("<circle").count(), 27, "{effect}");
    // From 1e-4 to 0.1.
    assert!(effect.contains(">0.001</text>") && effect.contains(">0.01</text>"), "{effect}");
    let words = format!("Hollow: {stopped} trials that their sweep stopped early");
    assert!(page.contains(&words));
}

/// Most values that `tpe` draws are near the best: it is the sweep that tells how they are spread, not they.
#[test]
fn drawn_values_stand_on_the_axis_that_their_sweep_names() {
    let place = Sandbox::new(SWEEP);
    let lrs = "optimizer.sgd.lr=0.001,0.091,0.092,0.093,0.094,0.095,0.096,0.097,0.098";
    let ended = place.runner(&["spec.toml", lrs, "sweep.repeats=1", "-q"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let spec = place.path().join(ended.stdout.trim()).join("sweep.toml");
    for (declared, is_log) in [("uniform(1e-3, 0.1)", false), ("loguniform(1e-3, 0.1)", true)] {
        fs::write(&spec, format!("[sweep.grid]\n\"optimizer.sgd.lr\" = \"{declared}\"\n")).unwrap();
        page(&place, &["runs", "--svg", declared]);
        let effect = fs::read_to_string(place.path().join(declared).join("02-effect-lr.svg")).unwrap();
        assert_eq!(effect.contains(">0.01</text>"), is_log, "{effect}");
    }
}

/// Also a few drawn values are not evenly spaced levels.
#[test]
fn few_drawn_values_stand_by_their_size() {
    let place = Sandbox::new(SWEEP);
    let drawn = ["optimizer.sgd.lr=loguniform(1e-3, 0.1)", "sweep.sampler=sobol", "sweep.trials=4"];
    let ended = place.runner(&[&["spec.toml"], &drawn[..], &["sweep.repeats=1", "-q"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    page(&place, &["runs", "--svg", "figures"]);
    let effect = fs::read_to_string(place.path().join("figures/02-effect-lr.svg")).unwrap();
    assert!(effect.contains(">0.01</text>"), "{effect}");
}

/// A few of 27 trials are left at the end: they stand beside the others, and the shares are of the first rung. What one trial
/// took its time for begins with the best.
#[test]
fn a_sweep_of_which_few_trials_finished_is_ranked() {
    let place = Sandbox::new("");
    let spec = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/halving.toml");
    assert_eq!(place.runner(&[spec, "sweep.stop.asha.min_epochs=1", "-q"]).code, Some(0));
    let page = page(&place, &["runs/halving"]);
    let runs = table(&page, "Every run with its figures");
    let count = |status: &str| runs.iter().filter(|row| row.contains(&status.to_owned())).count();
    let [finished, stopped] = [count("finished"), count("stopped")];
    assert!(finished > 0 && stopped > 16 && finished + stopped == 27, "{runs:?}");
    let section = |id: &str| {
        let (_, rest) =
            page.split_once(&format!("<section id=\"{id}\">")).unwrap_or_else(|| panic!("{page}"));
        rest.split_once("</section>").unwrap().0
    };
    assert!(section("ranking").contains(&format!("not ranked: {stopped} stopped")), "{}", section("ranking"));
    assert!(section("axes").contains("estimated from 27 settings in epoch 1"), "{}", section("axes"));
    let (_, best) = page.split_once("<p class=\"verdict\">best: ").unwrap();
    let best = best.split(' ').next().unwrap();
    let time = section("time");
    let first = time.split("<span>").find(|name| name.starts_with('#')).unwrap();
    assert!(first.starts_with(&format!("{best} ")), "{best}: {first}");
    assert!(time.contains("16 of 27 settings: the ranked ones, the best first"), "{time}");
}

/// The all-reduces of short steps, which are known from the ledger, are a part of the bar, and its length stays.
#[test]
fn all_reduces_are_seen_where_the_time_went() {
    let place = Sandbox::new("");
    run(place.path(), "a", "", "1,1,train,8,3,0.1\n");
    let folder = place.path().join("runs/a");
    let timing = "device,clock,phase,count,total_s,mean_s,p50_s,p95_s\ngpu:0,host,data,5,0.1,0.02,0.02,0.02\ngpu:0,host,step,40,0.9,0.0225,0.022,0.03\n";
    let transfers = "kind,purpose,from,to,count,noop_count,bytes,total_s,gb_per_s\n\
        all_reduce,gradients,gpu:0,gpu:0,40,0,100,0.7,1\nall_reduce,gradients,gpu:1,gpu:1,40,0,100,0.8,1\n";
    fs::write(folder.join("timing.csv"), timing).unwrap();
    fs::write(folder.join("transfers.csv"), transfers).unwrap();
    let label = "aria-label=\"data 10.0 %, 100 ms; all-reduce 70.0 %, 700 ms; step 20.0 %, 200 ms\"";
    let first = page(&place, &["runs/a"]);
    assert!(first.contains(label) && first.contains(">1.00 s</span>"), "{first}");
    assert!(first.contains("median") && first.contains("22.0 ms"), "{first}");
    // Where phases were timed one by one, they say it.
    fs::write(folder.join("timing.csv"), format!("{timing}gpu:0,host,all_reduce,40,0.5,0.01,0.01,0.01\n"))
        .unwrap();
    let label = "aria-label=\"data 6.67 %, 100 ms; all-reduce 33.3 %, 500 ms; step 60.0 %, 900 ms\"";
    let second = page(&place, &["runs/a"]);
    assert!(second.contains(label), "{second}");
}

/// Two trainings and a run of the lab: it is in no training's section; runs that learn the same are not ranked beside a task
/// whose runs are.
#[test]
fn each_run_is_with_its_task() {
    let place = Sandbox::new("");
    let write = |name: &str, of: &str, spec: &str, loss: f64| {
        let spec = format!("name = \"{of}\"\n{spec}\n[data.csv]\npath = \"{of}\"\n");
        run(place.path(), name, &spec, &format!("1,1,train,8,{loss},0.1\n"));
        let summary =
            format!("run,name,status,epoch_train_loss,data_digest\n{name},{of},finished,{loss},{of}\n");
        fs::write(place.path().join("runs").join(name).join("summary.csv"), summary).unwrap();
    };
    for (number, loss) in [(1, 0.5), (2, 0.4)] {
        write(&format!("a{number}"), "learns", &format!("lr = {number}"), loss);
        write(&format!("b{number}"), "scales", &format!("devices = {{ num_gpus = {number} }}"), 0.3);
    }
    run(place.path(), "lab", "name = \"products\"\nkind = \"matmul\"\n", "");
    fs::write(place.path().join("runs/lab/summary.csv"), "run,name,status\nlab,products,finished\n").unwrap();
    let page = page(&place, &["runs/*"]);
    let titles: Vec<&str> =
        page.split("<h2>").skip(1).map(|rest| rest.split_once("</h2>").unwrap().0).collect();
    assert_eq!(titles[..3], ["Curves: learns", "Ranking: learns", "Curves: scales"], "{titles:?}");
    assert!(
        !titles.iter().any(|title| title.contains("Ranking: scales") || title.contains("products")),
        "{titles:?}"
    );
    let verdicts: Vec<&str> = page.split("<p class=\"verdict\">").skip(1).collect();
    assert_eq!(verdicts.len(), 1, "{verdicts:?}");
    assert!(verdicts[0].starts_with("learns: best: #2 lr 2, train loss 0.4000"), "{}", &verdicts[0][..80]);
}

/// Where two tasks have one name, their titles say what makes them differ.
#[test]
fn tasks_of_one_name() {
    let place = Sandbox::new("");
    for (name, loss) in [("a", "mse"), ("b", "l1")] {
        let spec = format!("name = \"one\"\n[model]\nloss = \"{loss}\"\n");
        run(place.path(), name, &spec, "1,1,train,8,0.5,0.1\n");
    }
    let page = page(&place, &["runs/*"]);
    for title in ["<h2>Curves: one, loss mse</h2>", "<h2>Curves: one, loss l1</h2>"] {
        assert!(page.contains(title), "{title}");
    }
}

/// An axis whose name is longer than its two rows is not cut off.
#[test]
fn a_heat_map_has_room_for_the_names_of_its_axes() {
    let place = Sandbox::new("");
    for (a, b) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        let spec = format!("a_name_of_many_characters = {a}\nanother_name_of_as_many_characters = {b}\n");
        run(place.path(), &format!("r{a}{b}"), &spec, "1,1,train,8,3,0.1\n");
        let summary = format!("run,name,status,epoch_train_loss\nr{a}{b},x,finished,0.{a}{b}\n");
        fs::write(place.path().join(format!("runs/r{a}{b}/summary.csv")), summary).unwrap();
    }
    page(&place, &["runs/*", "--svg", "figures"]);
    let files = fs::read_dir(place.path().join("figures")).unwrap().map(|entry| entry.unwrap().path());
    let map = files.into_iter().find(|path| path.to_string_lossy().contains("-by-")).unwrap();
    let drawing = fs::read_to_string(map).unwrap();
    let heading = "train loss by a_name_of_many_characters and another_name_of_as_many_characters: the stronger the colour, the better</text>";
    assert!(drawing.contains(heading), "{drawing}");
    let number = |rest: &str| rest.split(['"', ' ', ')']).next().unwrap().parse::<f64>().unwrap();
    let size = |name: &str| number(drawing.split_once(name).unwrap().1);
    // The upright name is centred there.
    let (_, rest) = drawing.split_once("translate(14 ").unwrap();
    let (middle, name) = (number(rest), rest.split_once('>').unwrap().1.split_once('<').unwrap().0);
    let half = name.len() as f64 * 6.0 / 2.0;
    assert!(name.len() > 24 && middle - half > 0.0, "{drawing}");
    assert!(middle + half < size(" height=\""), "{drawing}");
    let (before, across) =
        drawing.split_once("_characters</text>").map(|(before, _)| before.rsplit_once('<').unwrap()).unwrap();
    let at = number(across.split_once("x=\"").unwrap().1);
    assert!(at - half > 0.0 && at + half < size(" width=\""), "{before} {across}");
}

/// Of repeats that nothing ranks, one that was disturbed stands for none.
#[test]
fn a_repeat_of_the_median_time_is_shown() {
    let place = Sandbox::new("");
    for (policy, times) in [("off", [0.9, 0.4, 0.5]), ("immediate", [0.42, 0.43, 0.41])] {
        for (repeat, seconds) in times.into_iter().enumerate() {
            let name = format!("{policy}-{repeat}");
            run(place.path(), &name, &format!("[logging]\npolicy = \"{policy}\"\n"), "1,1,train,8,3,0.1\n");
            let folder = place.path().join("runs").join(&name);
            let summary = format!("run,name,status,steps,train_s\n{name},x,finished,40,{seconds}\n");
            fs::write(folder.join("summary.csv"), summary).unwrap();
            let timing = format!(
                "device,clock,phase,count,total_s,mean_s,p50_s,p95_s\ncpu,host,step,40,{seconds},0.01,0.01,0.01\n"
            );
            fs::write(folder.join("timing.csv"), timing).unwrap();
        }
    }
    let page = page(&place, &["runs"]);
    let (_, bars) = page.split_once("<h2>Where the time went</h2>").unwrap();
    let (bars, _) = bars.split_once("</section>").unwrap();
    let lengths: Vec<&str> = bars.split(" ms</span>").filter_map(|part| part.rsplit('>').next()).collect();
    assert_eq!(lengths[..2], ["420", "500"], "{bars}");
    let note = "Of repeats the best one is shown, or that of the median time where they are not ranked.";
    assert!(bars.contains(note), "{bars}");
}
