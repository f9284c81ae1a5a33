//! `--json`: one event a line on standard output.

use serde_json::{Value, json};

use crate::process::{Folder, Sandbox};

const SPEC: &str = "
    name = 'lin'
    data.synthetic_regression = { weights = [1.0], train_rows = 64, validation_rows = 32 }
    model.layers = [{ linear = { out_features = 1 } }]
    optimizer.sgd.lr = 0.1
    trainer.max_epochs = 2
    logging.metrics = ['loss', 'lr']
";

fn events(arguments: &[&str]) -> Vec<Value> {
    let place = Sandbox::new(SPEC);
    let ended = place.runner(&[&["run", "spec.toml", "--json"], arguments].concat());
    assert_eq!((ended.code, &ended.stderr[..]), (Some(0), ""), "no words beside");
    ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == kind).collect()
}

#[test]
fn a_run_is_told_from_its_start_to_its_end() {
    let events = events(&[]);
    let first = &events[0];
    assert_eq!(
        (&first["event"], &first["name"], &first["steps_planned"]),
        (&"started".into(), &"lin".into(), &4.into())
    );
    let train = of(&events, "train");
    let steps: Vec<_> = train.iter().map(|row| row["step"].as_u64().unwrap()).collect();
    assert!(steps.is_sorted() && steps.last() == Some(&4), "{steps:?}");
    assert!(train.iter().all(|row| row["loss"].is_f64() && row["lr"] == 0.1), "{train:?}");
    let validation = of(&events, "validation");
    assert_eq!((validation.len(), &validation[1]["epoch"]), (2, &2.into()));
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["status"]), (&"finished".into(), &"finished".into()));
    assert_eq!((&last["folder"], &last["final_validation_loss"]), (&first["folder"], &validation[1]["loss"]));
    assert!(events.iter().all(|event| event["trial"].is_null()));
    let first = |event: &Value| event.as_object().unwrap().keys().next().cloned();
    assert!(events.iter().all(|event| first(event).as_deref() == Some("event")), "{events:?}");
}

#[test]
fn the_events_of_trials_have_their_numbers() {
    let events = events(&["seed=0..3", "--jobs", "2"]);
    let mut trials: Vec<_> =
        of(&events, "finished").iter().map(|event| event["trial"].as_u64().unwrap()).collect();
    trials.sort_unstable();
    assert_eq!(trials, [0, 1, 2]);
    let (first, last) = (&events[0], events.last().unwrap());
    let (started, ended) = (json!({ "planned": 3 }), json!({ "finished": 3 }));
    assert_eq!(
        [&first["event"], &first["axes"], &first["trials"], &first["statuses"]],
        [&json!("sweep_started"), &json!(["seed"]), &json!(3), &started]
    );
    assert_eq!(
        [&last["event"], &last["trials"], &last["statuses"], &last["exit"], &last["folder"]],
        [&json!("sweep"), &json!(3), &ended, &json!(0), &first["folder"]]
    );
    let value = |event: &Value| event["best_value"].as_f64().unwrap();
    let best = of(&events, "finished").into_iter().min_by(|a, b| value(a).total_cmp(&value(b))).unwrap();
    // The seeds of one setting: its value is their mean.
    let values: Vec<f64> = of(&events, "finished").into_iter().map(value).collect();
    let found = &last["best"];
    assert!((found["value"].as_f64().unwrap() - values.iter().sum::<f64>() / 3.0).abs() < 1e-12, "{found}");
    assert_eq!(
        [&found["trial"], &found["folder"], &found["metric"], &found["n"]],
        [&best["trial"], &best["folder"], &json!("validation.loss"), &json!(3)]
    );
}

/// A loss and an accuracy have no order.
#[test]
fn trials_with_different_metrics_have_no_best() {
    let place = Sandbox::new(
        "data.csv = { path = 'rows.csv', target = 'y' }\ndata.split = { validation = 0.5 }\noptimizer.sgd.lr = 0.1\n\
         model = { layers = [{ linear = { out_features = 2 } }], loss = 'cross_entropy' }\ntrainer.max_epochs = 1\n",
    );
    let rows: String = (0..16).map(|row| format!("{row},{}\n", row % 2)).collect();
    std::fs::write(place.path().join("rows.csv"), format!("x,y\n{rows}")).unwrap();
    for (monitors, has_best) in
        [("validation.loss,validation.accuracy", false), ("validation.accuracy", true)]
    {
        let arguments = ["run", "spec.toml", "--json", &format!("trainer.monitor={monitors}"), "seed=0,1"];
        let ended = place.runner(&arguments).ended_by(0);
        let last: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
        assert_eq!(last["best"].is_object(), has_best, "{last}");
    }
}

/// Where nothing is judged, and a trial fails.
#[test]
fn a_sweep_says_what_became_of_its_trials() {
    let place = Sandbox::new(SPEC);
    let arguments = ["run", "spec.toml", "--json", "optimizer.sgd.lr=0.1,1e30", "--fail-fast", "seed=1,2"];
    let ended = place.runner(&arguments);
    let last: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    let statuses = json!({ "finished": 2, "diverged": 1, "skipped": 1 });
    assert_eq!((&last["statuses"], &last["exit"], ended.code), (&statuses, &json!(1), Some(1)));
    let events: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let faults: Vec<_> =
        of(&events, "notice").into_iter().filter(|notice| notice["level"] == "error").collect();
    let is_of_loss = |notice: &&Value| {
        notice["message"].as_str().unwrap().contains("loss is not a finite number") && notice["trial"] == 2
    };
    assert!(faults.len() == 1 && faults.iter().all(is_of_loss), "{faults:?}");
    let resumed = place.runner(&["run", "--json", "--resume", last["folder"].as_str().unwrap()]);
    let first: Value = serde_json::from_str(resumed.stdout.lines().next().unwrap()).unwrap();
    let statuses = json!({ "finished": 2, "diverged": 1, "planned": 1 });
    assert_eq!((&first["event"], &first["statuses"]), (&json!("sweep_started"), &statuses));
}

/// Also where a metric between others has no value in a step's row.
#[test]
fn the_values_are_those_of_metrics_csv() {
    let place = Sandbox::new(SPEC);
    let names = ["loss", "mae", "grad_norm", "lr"];
    let metrics = format!("logging.metrics={names:?}");
    let ended = place.runner(&["run", "spec.toml", "--json", &metrics, "optimizer.sgd.lr=0.3"]);
    let events: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let run = Folder(place.path().join(events[0]["folder"].as_str().unwrap()));
    for split in ["train", "validation"] {
        let table = run.metrics().only("split", split);
        let steps = table.column("step");
        assert!(!of(&events, split).is_empty());
        for event in of(&events, split) {
            let own = event["step"].to_string();
            let row = steps.iter().position(|step| *step == own).unwrap();
            for name in names.iter().filter(|name| split == "train" || !event[**name].is_null()) {
                // The same digits, though exponents may be written differently.
                let cell = table.cell(row, name).parse::<f64>().ok();
                assert_eq!((*name, event[*name].as_f64()), (*name, cell), "{event}");
            }
        }
    }
}
