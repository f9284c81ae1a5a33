//! `trace.json` and `system.csv` of real runs, read back.

use std::collections::BTreeMap;

use serde_json::Value;

use super::process::{Folder, Sandbox};

/// Steps of several hundred microseconds, so that phases are timed.
const PHASES: &str = r#"
[data]
batch_size = 100
[data.synthetic_regression]
weights = [2.0, -3.4, 1.0, 0.5]
train_rows = 1000
validation_rows = 100
[model]
layers = [{ linear = { out_features = 256 } }, "tanh", { linear = { out_features = 256 } }, "tanh", { linear = { out_features = 1 } }]
[optimizer.adam]
lr = 0.001
[trainer]
max_epochs = 30
[logging]
trace = true
"#;

/// An event with its lane.
#[derive(Debug)]
pub struct Span {
    pub name: String,
    pub start_ns: i64,
    pub end_ns: i64,
    pub arguments: Value,
}

/// Spans by process and thread, after checking the rules of the format.
pub fn lanes(run: &Folder) -> BTreeMap<(String, String), Vec<Span>> {
    let whole: Value = serde_json::from_str(&run.text("trace.json")).unwrap();
    assert_eq!(whole["displayTimeUnit"], "ns");
    let events = whole["traceEvents"].as_array().unwrap();
    let name_of = |what: &str, pid: &Value, tid: &Value| -> String {
        let is_it = |e: &&Value| e["ph"] == "M" && e["name"] == what && e["pid"] == *pid && e["tid"] == *tid;
        events.iter().find(is_it).unwrap()["args"]["name"].as_str().unwrap().to_owned()
    };
    let mut lanes: BTreeMap<(String, String), Vec<Span>> = BTreeMap::new();
    for event in events {
        let ns = |key: &str| (event[key].as_f64().unwrap() * 1000.0).round() as i64;
        match event["ph"].as_str().unwrap() {
            "M" => assert!(event["args"].is_object()),
            "X" => {
                let lane = (
                    name_of("process_name", &event["pid"], &event["tid"]),
                    name_of("thread_name", &event["pid"], &event["tid"]),
                );
                let (start_ns, length) = (ns("ts"), ns("dur"));
                assert!(start_ns >= 0 && length >= 0, "{event}");
                let name = event["name"].as_str().unwrap().to_owned();
                let arguments = event["args"].clone();
                lanes.entry(lane).or_default().push(Span {
                    name,
                    start_ns,
                    end_ns: start_ns + length,
                    arguments,
                });
            }
            other => panic!("an event of kind {other}"),
        }
    }
    for spans in lanes.values() {
        nest(spans);
    }
    lanes
}

/// Starts never go back, and a nested span ends before the one around it.
fn nest(spans: &[Span]) {
    let mut open: Vec<&Span> = Vec::new();
    for pair in spans.windows(2) {
        assert!(pair[0].start_ns <= pair[1].start_ns, "{pair:?}");
    }
    for span in spans {
        open.retain(|outer| outer.end_ns > span.start_ns);
        if let Some(outer) = open.last() {
            assert!(span.end_ns <= outer.end_ns, "{span:?} overlaps {outer:?}");
        }
        open.push(span);
    }
}

#[test]
fn a_trace_holds_the_first_steps_in_detail_and_sums_of_the_rest() {
    let place = Sandbox::new(PHASES);
    let run = place.run(&["devices.engine=serial"]).ended_by(0);
    let lanes = lanes(&run);
    let names: Vec<(&str, &str)> = lanes.keys().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    assert_eq!(names, [("cpu", "steps"), ("host", "host loop")]);
    let steps = &lanes[&("cpu".to_owned(), "steps".to_owned())];
    let detailed: Vec<&Span> = steps.iter().filter(|s| s.name == "step").collect();
    assert_eq!(detailed.len(), 200);
    for (n, step) in detailed.iter().enumerate() {
        assert_eq!(step.arguments["step"], n as u64 + 1);
        let inner: Vec<&str> = steps
            .iter()
            .filter(|s| s.name != "step" && s.start_ns >= step.start_ns && s.end_ns <= step.end_ns)
            .map(|s| s.name.as_str())
            .collect();
        for phase in ["data", "forward", "loss", "backward", "optimizer"] {
            assert!(inner.contains(&phase), "{inner:?}");
        }
    }
    let windows: u64 = steps.iter().filter_map(|s| s.arguments["steps"].as_u64()).sum();
    assert_eq!(windows, 100);
    // The host's lane also has every step, and the trace covers the run's time.
    let host = &lanes[&("host".to_owned(), "host loop".to_owned())];
    for name in ["upload", "data", "validation", "log"] {
        assert!(
            host.iter().any(|s| s.name == name || s.arguments.get(format!("{name}_ms")).is_some()),
            "{name}"
        );
    }
    let timing = run.table("timing.csv");
    let total_s = timing.f64s("total_s")[timing.column("phase").iter().position(|p| *p == "total").unwrap()];
    let end_s = host.iter().map(|s| s.end_ns).max().unwrap() as f64 / 1e9;
    assert!(end_s <= total_s, "{end_s} {total_s}");
}

#[test]
fn tiny_steps_and_several_devices_have_lanes_too() {
    let place = Sandbox::new(super::run::LINREG);
    let run = place.run(&["logging.trace=true", "logging.policy=immediate"]).ended_by(0);
    let of_cpu = lanes(&run);
    let blocks: u64 = of_cpu[&("cpu".to_owned(), "steps".to_owned())].len() as u64;
    assert_eq!(blocks, 24, "a block per step under `immediate`");

    let run = place.run(&["logging.trace=true", "devices.num_gpus=2", "--virtual-gpus", "2"]).ended_by(0);
    let names: Vec<(String, String)> = lanes(&run).into_keys().collect();
    let expected = [("host", "host loop"), ("virtual:0", "steps"), ("virtual:1", "steps")];
    assert_eq!(names, expected.map(|(p, t)| (p.to_owned(), t.to_owned())));
}

#[test]
fn files_that_are_not_asked_for_are_not_written() {
    let place = Sandbox::new(super::run::LINREG);
    let files = place.run(&[]).ended_by(0).files();
    assert!(!files.iter().any(|name| name == "trace.json" || name == "system.csv"), "{files:?}");
}

#[test]
fn the_machine_is_looked_at_from_the_beginning_to_the_end() {
    let place = Sandbox::new(PHASES);
    // The interval is longer than the run, whose end must not wait for it.
    let table = place.run(&["logging.system_every_s=3600"]).ended_by(0).table("system.csv");
    assert_eq!(table.rows.len(), 2);
    let table = place.run(&["logging.system_every_s=0.01"]).ended_by(0).table("system.csv");
    assert!(table.rows.len() >= 2);
    assert_eq!(
        table.columns.join(","),
        "elapsed_s,device,utilization,process_cores,rss_bytes,load_1m,memory_used_bytes,memory_available_bytes,\
         memory_utilization,temperature_c,power_w,energy_j,sm_clock_mhz,memory_clock_mhz,throttled,throttle_reasons"
    );
    assert!(table.f64s("elapsed_s").is_sorted());
    assert!(table.column("device").iter().all(|device| *device == "cpu"));
    assert!(table.f64s("rss_bytes").iter().all(|bytes| *bytes > 1e6));
    for cell in table.column("utilization").into_iter().filter(|cell| !cell.is_empty()) {
        assert!((0.0..=1.0).contains(&cell.parse::<f64>().unwrap()), "{cell}");
    }
}
