//! Experiments of the lab side by side.

use runner::report::gate;

use super::Runs;

const SUMMARY: &str = "run,name,status,devices_used,virtual,engine,steps,train_s,steps_per_s,logging_share";

/// A run of that kind, with its table and further lines of its spec.
fn lab(runs: &Runs, name: &str, kind: &str, spec: &str, file: &str, figures: &str) {
    let path = format!("{kind}/{name}");
    runs.write(
        &format!("{path}/spec.toml"),
        &format!("name = \"{kind}\"\nkind = \"{kind}\"\n[{kind}]\n{spec}\n"),
    );
    runs.write(&format!("{path}/environment.toml"), "[cpu]\nmodel = \"A\"\n");
    runs.write(&format!("{path}/summary.csv"), &format!("{SUMMARY}\n{name},{kind},finished,{figures}\n"));
    runs.write(&format!("{path}/{kind}.csv"), file);
}

const MATMUL: &str = "device,order,m,k,n,count,total_s,mean_s,gflop_per_s,log_s,norm_sum,p50_s,min_s,max_s\n";
const TRANSFER: &str = "from,to,memory,bytes,count,mean_s,p50_s,gb_per_s\n";

/// A product of 8192 operations, up to its median. A slow one moved the mean rate, which is compared nowhere.
const OF_16: &str = "cpu,sequential,16,16,16,20,1e-3,5e-5,0.16384,0.0,";

fn products(runs: &Runs) {
    let two = format!(
        "{MATMUL}{OF_16},1e-6,9e-7,2e-6\ncpu,sequential,64,8,2,20,1e-3,5e-5,21.0,0.0,,1e-7,9e-8,2e-7\n"
    );
    lab(runs, "a", "matmul", "sizes = [16, 64]", &two, "cpu,false,matmul,40,0.002,20000.0,0.0");
    lab(
        runs,
        "b",
        "matmul",
        "sizes = [16, 64]",
        &two.replace("1e-6,", "2e-6,"),
        "cpu,false,matmul,40,0.001,40000.0,0.0",
    );
    let one = format!("{MATMUL}{OF_16},4e-6,9e-7,5e-6\n");
    lab(runs, "c", "matmul", "sizes = [16]", &one, "cpu,false,matmul,20,0.001,20000.0,0.0");
}

#[test]
fn the_same_products_stand_side_by_side() {
    let runs = Runs::new();
    products(&runs);
    insta::assert_snapshot!(runs.table(&["matmul"], 160), @r"
    3 runs, comparable: same processor, instruction set, threads and version

     #  matmul.sizes  status    devices  products     time  products/s  products/s vs #1  logging
     1      [16, 64]  finished  cpu            40  2.00 ms     20.00 k             1.00x    0.0 %
     2      [16, 64]  finished  cpu            40  1.00 ms     40.00 k             2.00x    0.0 %
     3          [16]  finished  cpu            20  1.00 ms     20.00 k                      0.0 %

    repeats taken together

     of run  matmul.sizes  runs     time  50.0 % interval  products/s   50.0 % interval
      #1, 2      [16, 64]     2  1.50 ms  1.00 to 2.00 ms     30.00 k  20.00 to 40.00 k
         #3          [16]     1  1.00 ms                      20.00 k

    products, GFLOP/s

     device  product                 #1     #2     #3
     cpu     [16, 16] x [16, 16]  8.192  4.096  2.048
     cpu     [64, 8] x [8, 2]     20.48  20.48

    noise
      noise:  in 1 of 2 configurations the interval of the time spans more than 5.00 % of the median, 66.7 % at most
      noise:  with 2 repeats the interval covers the true median 50.0 % of the time; use 6 or more for 95 %

    runs
      #1  RUNS/matmul/a
      #2  RUNS/matmul/b
      #3  RUNS/matmul/c

    differences of spec
      matmul.sizes  [16, 64] (#1, 2)  [16] (#3)
    ");
}

/// Kinds of lab experiments are not comparable: no ratios between kinds, and no spec keys of another kind.
#[test]
fn kinds_are_told_apart() {
    let runs = Runs::new();
    products(&runs);
    let copies = |rate: f64| {
        format!(
            "{TRANSFER}cpu,gpu:0,pinned,4096,10,1e-6,1e-6,{rate}\ngpu:0,gpu:0,,4194304,10,1e-6,1e-6,900.5\n"
        )
    };
    lab(&runs, "a", "transfer", "sizes = [\"4KiB\"]", &copies(4.0), "gpu:0,false,transfer,20,0.002,10000.0,");
    lab(&runs, "b", "transfer", "sizes = [\"4KiB\"]", &copies(5.0), "gpu:0,false,transfer,20,0.001,20000.0,");
    lab(&runs, "a", "tensors", "", "step,op\n", "cpu,false,tensors,8,0.0001,80000.0,");
    insta::assert_snapshot!(runs.table(&["matmul/a", "matmul/c", "transfer", "tensors"], 160), @r#"
    5 runs of 3 kinds (matmul, transfer, tensors), comparable within each kind: same processor, instruction set, threads and version

     #      kind  matmul.sizes      name  status    devices  work     time   work/s  work/s vs #3  logging
     1    matmul      [16, 64]    matmul  finished  cpu        40  2.00 ms  20.00 k                  0.0 %
     2    matmul          [16]    matmul  finished  cpu        20  1.00 ms  20.00 k                  0.0 %
     3  transfer             -  transfer  finished  gpu:0      20  2.00 ms  10.00 k         1.00x
     4  transfer             -  transfer  finished  gpu:0      20  1.00 ms  20.00 k         2.00x
     5   tensors             -   tensors  finished  cpu         8   100 µs  80.00 k

    repeats taken together

     of run      kind  matmul.sizes      name  transfer.sizes  devices  runs     time  50.0 % interval   work/s   50.0 % interval
         #1    matmul      [16, 64]    matmul               -  cpu         1  2.00 ms                   20.00 k
         #2    matmul          [16]    matmul               -  cpu         1  1.00 ms                   20.00 k
      #3, 4  transfer             -  transfer        ["4KiB"]  gpu:0       2  1.50 ms  1.00 to 2.00 ms  15.00 k  10.00 to 20.00 k
         #5   tensors             -   tensors               -  cpu         1   100 µs                   80.00 k

    products, GFLOP/s

     device  product                 #1     #2
     cpu     [16, 16] x [16, 16]  8.192  2.048
     cpu     [64, 8] x [8, 2]     20.48

    copies, GB/s

     from   to     memory of the host  size      #3     #4
     cpu    gpu:0  pinned              4 KiB  4.000  5.000
     gpu:0  gpu:0                      4 MiB  900.5  900.5

    tensors
      #5: tensor experiments measure nothing, so their times are not compared; their steps are in tensors.csv

    noise
      noise:  in 1 of 4 configurations the interval of the time spans more than 5.00 % of the median, 66.7 % at most
      noise:  with 2 repeats the interval covers the true median 50.0 % of the time; use 6 or more for 95 %

    runs
      #1  RUNS/matmul/a
      #2  RUNS/matmul/c
      #3  RUNS/transfer/a
      #4  RUNS/transfer/b
      #5  RUNS/tensors/a

    differences of spec
      kind          matmul (#1, 2)  transfer (#3, 4)  tensors (#5)
      matmul.sizes  [16, 64] (#1)  [16] (#2)
      name          matmul (#1, 2)  transfer (#3, 4)  tensors (#5)
    "#);
}

#[test]
fn a_table_of_the_lab_that_cannot_be_read_is_told() {
    let runs = Runs::new();
    products(&runs);
    runs.write("matmul/b/matmul.csv", &format!("{MATMUL}{OF_16},fast,9e-7,2e-6\n"));
    let text = runs.table(&["matmul"], 160);
    let line = "  #2  RUNS/matmul/b; damaged: `RUNS/matmul/b/matmul.csv` is malformed at line 2: `fast` is not a number";
    assert!(text.lines().any(|l| l == line), "{text}");
    runs.write("matmul/b/matmul.csv", "device,m\n");
    let text = runs.table(&["matmul"], 160);
    assert!(text.contains("is malformed at line 1: there is no column `order`"), "{text}");
}

/// A rate is found by the titles of its tables, too.
#[test]
fn the_rate_of_products_is_called_as_in_tables() {
    let runs = Runs::new();
    products(&runs);
    let own = runs.read(&["matmul"]);
    let text = |name: &str| gate(&format!("median({name}) < 30000"), &own, None, &[]).unwrap().text;
    let verdict = "  sizes [16, 64]: 30.00 k of n 2 against 30.00 k; too few runs for an interval of the median: take 7 or more: passes\n";
    for name in ["steps_per_s", "products_per_s", "products/s"] {
        let wanted = format!("fail if median({name}) < 30000\n{verdict}");
        assert!(text(name).starts_with(&wanted), "{}", text(name));
    }
    let of_copies = gate("median(copies_per_s) < 1", &own, None, &[]).err().unwrap();
    assert_eq!(of_copies.to_string(), "no run has the metric `copies_per_s`");
}
