//! `runner check --hosts`: the predicted time of a step over several hosts.

use super::{
    advise::SPEC,
    process::{Ended, Sandbox},
};

/// Messages so slow that nothing else matters.
const SLOW: &str = "1GB/s,10s";

/// The cells of each line of the table.
fn table(ended: &Ended) -> Vec<Vec<&str>> {
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    let text =
        ended.stdout.split_once("over hosts like this one\n").unwrap_or_else(|| panic!("{}", ended.stdout)).1;
    let cells = |line| str::split(line, "  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    text.lines().skip(1).take_while(|line| !line.starts_with("  computes: ")).map(cells).collect()
}

fn column<'a>(rows: &[Vec<&'a str>], place: usize) -> Vec<&'a str> {
    rows.iter().map(|row| row.get(place).copied().unwrap_or_default()).collect()
}

/// Whether other processes kept the machine from measuring a step.
fn is_busy(ended: &Ended) -> bool {
    ended.stdout.contains("\n  no speed-ups: other processes used ")
}

#[test]
fn each_count_of_hosts_has_its_share_and_its_messages() {
    let place = Sandbox::new(SPEC);
    let ended = place.runner(&["check", "spec.toml", "-q", "--hosts", "1,2,...,8,3,101", "--link", SLOW]);
    let rows = table(&ended);
    assert_eq!(column(&rows, 0), ["1", "2", "3", "4", "8", "101"]);
    assert_eq!(column(&rows, 1), ["100", "50", "34", "25", "13", "-"]);
    // A small sum takes one message to each other host.
    assert_eq!(column(&rows, 3), ["-", "10.0 s", "20.0 s", "30.0 s", "1 min 10 s", "16 min 40 s"]);
    if is_busy(&ended) {
        assert!([2, 4, 5, 6].iter().all(|place| column(&rows, *place) == ["-"; 6]), "{}", ended.stdout);
    } else {
        assert_eq!(column(&rows, 4)[1..], ["10.0 s", "20.0 s", "30.0 s", "1 min 10 s", "-"]);
        assert_eq!(column(&rows, 5), ["1.00x", "0.00x", "0.00x", "0.00x", "0.00x", "-"]);
        assert_eq!(column(&rows, 6)[0], "100.0 %");
        // The batch size at which more hosts pay off is printed nevertheless.
        assert_eq!(rows[5].len(), 9);
    }
    assert!(ended.stdout.contains("messages at 1.000 GB/s and 10.0 s each\n"), "{}", ended.stdout);
    assert!(
        ended.stdout.contains("  rows each -: the global batch has no row for each host\n"),
        "{}",
        ended.stdout
    );
}

/// The later layers' 263,184 gradients and 16 cells start early and take two messages; the first layer's 1,536
/// gradients take one.
#[test]
fn sums_that_start_early_are_sums_of_their_own() {
    let layer = |outputs| format!("{{ linear = {{ out_features = {outputs} }} }}");
    let place = Sandbox::new(&SPEC.replace(&layer(1), &[512, 512, 1].map(layer).join(", ")));
    // So slow that the time of adding, which others on the cores lengthen, does not show.
    let ended = place.runner(&["check", "spec.toml", "-q", "--hosts", "2", "--link", "1GB/s,1000s"]);
    assert_eq!(column(&table(&ended), 3), ["-", "50 min 00 s"]);
    let early = "  1.0 MiB of them start before the backward pass ends: of their messages only what outlasts it counts\n";
    assert!(ended.stdout.contains(early), "{}", ended.stdout);
}

/// The slower the link, the larger the batch has to be before more hosts pay off.
#[test]
fn a_slower_link_pays_later() {
    // Steps whose time is that of their rows: the line through short ones would be drawn through noise.
    let spec = SPEC
        .replace("batch_size = 100", "batch_size = 20000")
        .replace("train_rows = 250", "train_rows = 40000");
    let place = Sandbox::new(&spec.replace("[2.0, -3.4]", &format!("{:?}", [1.0; 30])));
    let batches = |link: &str| {
        let ended = place.runner(&["check", "spec.toml", "-q", "--hosts", "2", "--link", link]);
        if is_busy(&ended) {
            return Some(None);
        }
        let rows = table(&ended);
        let cells = rows[1][7..].iter().map(|cell| cell.replace(',', "").parse().ok());
        <[f64; 2]>::try_from(cells.collect::<Option<Vec<f64>>>()?).ok().map(Some)
    };
    // Beside some other processes a step of more rows may be measured as no longer, and then there are no batches.
    let pays = |link: &str| (0..20).find_map(|_| batches(link)).expect("two batches");
    let (Some([fast, fast_efficient]), Some([slow, slow_efficient])) =
        (pays("100Gb/s,1us"), pays("100Gb/s,1s"))
    else {
        return; // too busy
    };
    assert!(
        fast < fast_efficient && slow < slow_efficient,
        "{fast} {fast_efficient} {slow} {slow_efficient}"
    );
    assert!(slow > 1000.0 * fast, "{fast} {slow}");
}

/// The batch can grow up to the number of rows: 250.
#[test]
fn under_weak_scaling_each_host_has_a_whole_batch() {
    let place = Sandbox::new(SPEC);
    let check = |hosts: &str, more: &[&str]| {
        let weak = ["check", "spec.toml", "-q", "devices.scaling=weak", "--hosts", hosts, "--link"];
        place.runner(&[&weak[..], more].concat())
    };
    let ended = check("1,2,4,300", &[SLOW]);
    let rows = table(&ended);
    assert_eq!(column(&rows, 1), ["100", "100", "63", "-"]);
    assert!(
        is_busy(&ended) || rows[1..].iter().all(|row| row.len() == 9),
        "each pays from some batch: {}",
        ended.stdout
    );
    // If one host already takes all rows in a step, two hosts have no more.
    let ended = check("2", &["100Gb/s,1ns", "data.batch_size=250"]);
    assert_eq!(column(&table(&ended), 1), ["250", "125"]);
    // Each of two hosts has as many rows as the one host, so its measured step holds for both, and the row is
    // complete.
    let ended = check("2", &["100Gb/s,1ns", "data.batch_size=125"]);
    let rows = table(&ended);
    assert_eq!(column(&rows, 1), ["125", "125"]);
    assert!(is_busy(&ended) || rows[1].len() == 9, "{}", ended.stdout);
}

#[test]
fn what_cannot_be_predicted_is_refused() {
    let place = Sandbox::new(SPEC);
    let refused = |arguments: &[&str]| {
        let ended = place.runner(&[&["check", "spec.toml", "-q"], arguments].concat()).ended_by(2);
        ended.stderr.lines().next().unwrap_or_default().to_owned()
    };
    let link = ["--link", SLOW];
    assert_eq!(
        refused(&[&["--virtual-gpus", "2", "devices.num_gpus=2", "--hosts", "2"], &link[..]].concat()),
        "error: `--hosts` predicts steps on CPUs"
    );
    assert_eq!(
        refused(&["--hosts", "2,x", "--link", SLOW]),
        "error: invalid value '2,x' for '--hosts <N,...>': expected counts from 1 to 65536, such as `1,2,4` or `1,2,4,...,64`"
    );
    assert_eq!(
        refused(&["--hosts", "2", "--link", "100"]),
        "error: invalid value '100' for '--link <100Gb/s,2us>': expected a rate and the latency of a message, such as \
         `100Gb/s,2us` or `11GB/s,1.5us`"
    );
    let lab = Sandbox::new("kind = \"matmul\"\n");
    for arguments in [&["--hosts", "2", "--link", SLOW][..], &["--on", "h200.toml"], &["--advise"]] {
        let ended = lab.runner(&[&["check", "spec.toml"], arguments].concat());
        let expected = format!(
            "error: `{}` is for specs that train\n  = hint: this kind measures the machine that it runs on: leave the option \
             out, or check a spec that trains\n",
            arguments[0]
        );
        assert_eq!((ended.code, ended.stderr), (Some(2), expected));
    }
}

/// Without MPI each process would train by itself, and write a folder of its own.
#[test]
fn processes_of_torchrun_are_refused() {
    let place = Sandbox::new(SPEC);
    let mut command = place.command(&["spec.toml"]);
    command.env("RANK", "0").env("WORLD_SIZE", "2").env("MASTER_ADDR", "localhost");
    let ended = Ended::from_output(command.output().unwrap());
    assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{ended:?}");
    assert!(ended.stderr.starts_with("error: `rank:0@"), "{ended:?}");
    let says = "`torchrun` started it (RANK, WORLD_SIZE and MASTER_ADDR are set) and brings no MPI: start it with \
                `mpirun -n` or `srun --mpi=pmix`; without RANK in the environment it runs alone\n";
    assert!(ended.stderr.ends_with(says), "{ended:?}");
    assert!(!place.path().join("runs").exists());
}

#[test]
fn parity_is_of_one_process() {
    let place = Sandbox::new(SPEC);
    let ended = place.runner(&["parity", "spec.toml", "devices.hosts=2"]).ended_by(2);
    let says = "error: parity compares the devices of one process, and `devices.hosts` trains with several\n  = hint: \
                `--virtual-gpus 2 ~devices.hosts`: virtual devices sum in the same order, to the bit\n";
    assert_eq!(ended.stderr, says);
}
