//! Complete verdicts on synthetic runs.

use std::fs;

use super::{super::scaling::tests::point, *};
use crate::report::{Comparison, sweep};

fn shown(points: &[Point]) -> String {
    section(&DeviceSweep { others: String::new(), points: points.to_vec() }, 200)
}

#[test]
fn real_gpus_that_do_not_pay() {
    let cpu = Point { names: "cpu".into(), kind: Kind::Cpu, ..point(1, 256.0, 3e-3, 0.0) };
    let points =
        [cpu, point(1, 256.0, 1e-3, 0.0), point(2, 256.0, 1.45e-3, 0.61), point(4, 256.0, 4e-3, 0.7)];
    insta::assert_snapshot!(shown(&points), @r"
    devices                  rows per step     step   rows/s  speed-up  efficiency  all-reduce    data     log
    cpu                              256.0  3.00 ms  85.33 k     0.33x                          5.00 %  1.00 %
    gpu:0                            256.0  1.00 ms  256.0 k     1.00x                          5.00 %  1.00 %
    gpu:0 gpu:1                      256.0  1.45 ms  176.6 k     0.69x      34.5 %      61.0 %  5.00 %  1.00 %
    gpu:0 gpu:1 gpu:2 gpu:3          256.0  4.00 ms  64.00 k     0.25x      6.25 %      70.0 %  5.00 %  1.00 %

     2 GPUs: 0.69x; slower than one GPU; all-reduce is 61 % of a step; breaks even from batch 522 on
     4 GPUs: 0.25x; slower than one GPU; all-reduce is 70 % of a step; no batch breaks even: without its all-reduce the step is no shorter than on one GPU
     serial part: Karp and Flatt 1990; break-even: the all-reduce of a step takes as long at any batch, the rest grows with the rows
     one run each: `sweep.repeats=6` would show how far another is off
    ");
}

#[test]
fn real_gpus_that_pay_under_weak_scaling() {
    let weak = |point: Point| Point { weak: true, ..point };
    let points = [point(1, 64.0, 1e-3, 0.0), point(2, 128.0, 1.1e-3, 0.1), point(4, 256.0, 1.25e-3, 0.2)];
    let mut points = points.map(weak);
    points[2].data = 0.31;
    insta::assert_snapshot!(shown(&points), @r"
    devices                  rows per step     step   rows/s  speed-up  efficiency  all-reduce    data     log
    gpu:0                            64.00  1.00 ms  64.00 k     1.00x                          5.00 %  1.00 %
    gpu:0 gpu:1                      128.0  1.10 ms  116.4 k     1.82x      90.9 %      10.0 %  5.00 %  1.00 %
    gpu:0 gpu:1 gpu:2 gpu:3          256.0  1.25 ms  204.8 k     3.20x      80.0 %      20.0 %  31.0 %  1.00 %

     2 GPUs: 1.82x; all-reduce is 10 % of a step; breaks even from batch 7 per device on
     4 GPUs: 3.20x; all-reduce is 20 % of a step; data is 31 %; breaks even from batch 6 per device on
     serial part: Karp and Flatt 1990; break-even: the all-reduce of a step takes as long at any batch, the rest grows with the rows
     one run each: `sweep.repeats=6` would show how far another is off
    ");
}

/// A sweep of two device counts and two repeats: medians come from the folders' files only.
#[test]
fn a_sweep_is_read_from_its_folders() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = String::from("trial,devices.num_gpus,repeat,status,folder,reason\n");
    for (trial, (gpus, steps_per_s, all_reduce_s)) in
        [(1, 1000.0, 0.0), (2, 800.0, 0.25), (1, 1200.0, 0.0), (2, 900.0, 0.5)].into_iter().enumerate()
    {
        let own = folder.path().join(trial.to_string());
        fs::create_dir(&own).unwrap();
        let names: Vec<String> = (0..gpus).map(|i| format!("gpu:{i}")).collect();
        let repeat = trial / 2;
        rows += &format!("{trial},{gpus},{repeat},finished,{trial},\n");
        let figures =
            format!("finished,{},false,strong,1.0,{steps_per_s},{}", names.join(";"), steps_per_s * 32.0);
        let columns = "status,devices_used,virtual,scaling,train_s,steps_per_s,samples_per_s";
        fs::write(own.join("spec.toml"), "seed = 1\n").unwrap();
        fs::write(own.join("summary.csv"), format!("{columns}\n{figures}\n")).unwrap();
        fs::write(own.join("metrics.csv"), "step,epoch,split,rows,loss,elapsed_s\n").unwrap();
        let mut timing = "device,clock,phase,count,total_s\n".to_owned();
        let mut transfers = "kind,purpose,from,to,total_s\n".to_owned();
        for name in &names {
            timing +=
                &format!("{name},host,data,1,0.125\n{name},host,upload,1,0.125\n{name},host,log,1,0.01\n");
            // One run is timed by phases, the other by the ledger.
            if repeat == 0 && gpus == 2 {
                timing += &format!("{name},host,all_reduce,1,{all_reduce_s}\n");
            } else if gpus == 2 {
                transfers += &format!("all_reduce,gradients,{name},{name},{all_reduce_s}\n");
            }
        }
        fs::write(own.join("timing.csv"), timing).unwrap();
        fs::write(own.join("transfers.csv"), transfers).unwrap();
    }
    fs::write(folder.path().join("sweep.csv"), rows).unwrap();
    let runs = Comparison::from_runs(sweep::read(folder.path(), &mut None).unwrap()).runs;
    insta::assert_snapshot!(verdict(&runs, 200).unwrap().unwrap(), @r"
    more devices

     devices      rows per step     step   rows/s  speed-up  50.0 % interval  efficiency  all-reduce    data     log
     gpu:0                32.00   833 µs  38.40 k     1.00x                                           25.0 %  1.00 %
     gpu:0 gpu:1          32.00  1.11 ms  28.80 k     0.78x     0.75 to 0.80      38.8 %      50.0 %  25.0 %  1.00 %

      2 GPUs: 0.78x (0.75 to 0.80); slower than one GPU; all-reduce is 50 % of a step; data is 25 %; breaks even from batch 64 on
      serial part: Karp and Flatt 1990; break-even: the all-reduce of a step takes as long at any batch, the rest grows with the rows
      medians of 2 repeats; the intervals, of ratios within a repeat, cover the true median 50.0 % of the time
    ");
}

/// No unsupported claims: if the interval includes both faster and slower, there is no break-even.
#[test]
fn an_interval_that_holds_one_claims_nothing() {
    let one =
        Point { rates: vec![100.0, 120.0, 100.0, 110.0, 105.0, 100.0, 98.0], ..point(1, 256.0, 1e-3, 0.0) };
    let two = |rates: [f64; 7]| Point { rates: rates.to_vec(), ..point(2, 256.0, 0.9e-3, 0.5) };
    let reported = |two: Point| sentence(&two, Some(&one));
    assert_eq!(
        reported(two([90.0, 130.0, 95.0, 115.0, 99.0, 110.0, 97.0])),
        "2 GPUs: 0.99x (0.90 to 1.10); the repeats do not tell whether that is faster than one GPU; all-reduce is \
         50 % of a step"
    );
    assert_eq!(
        reported(two([150.0, 180.0, 151.0, 166.0, 156.0, 149.0, 148.0])),
        "2 GPUs: 1.50x (1.49 to 1.51); as if 33.3 % of the work were serial; all-reduce is 50 % of a step; breaks even \
         from batch 210 on"
    );
}
