//! The console's complete output.

use std::collections::BTreeSet;

use super::*;
use crate::record::sample;

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Broken(ErrorKind);

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.into())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn options(verbosity: Verbosity, trial: Option<usize>) -> ConsoleOptions {
    let line = Arc::new(SweepLine::new(60, BTreeSet::new(), 60.0, LineMode::Lines));
    let trial = trial.map(|number| TrialOfSweep { number, of: 60, line });
    ConsoleOptions {
        verbosity,
        json: false,
        terminal: false,
        is_alone: true,
        color: false,
        width: None,
        trial,
        warned: Warned::default(),
    }
}

fn printed(options: ConsoleOptions, events: &[Event]) -> String {
    let (out, err) = (Page::default(), Page::default());
    let mut console = Console::with_streams(
        Path::new("runs/linreg/20270115T080000Z-0123abcd"),
        Instant::now(),
        options,
        Box::new(out.clone()),
        Box::new(err.clone()),
    );
    for event in events {
        console.event(event).unwrap();
        console.flush().unwrap();
    }
    let text = |page: Page| String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
    format!("{}--\n{}", text(err), text(out))
}

#[test]
fn without_a_terminal_there_are_lines() {
    let options = options(Verbosity::Normal, None);
    insta::assert_snapshot!(printed(options, &sample::events()[..5]), @r"
    linreg: 2 epochs of 80 rows, 6 steps, on cpu (asked for 1 GPU), engine serial, f32
    warning: `gpu:0` is not there: training on the CPU
    epoch 1, step 3: validation loss 0.1235, accuracy 90.0 %
    --
    ");
}

#[test]
fn a_trial_leaves_progress_to_its_sweep_and_repeats_no_warning() {
    let options = options(Verbosity::Normal, Some(3));
    insta::assert_snapshot!(printed(options.clone(), &sample::events()), @r"
    warning: first in trial 3: `gpu:0` is not there: training on the CPU
    --
    ");
    assert_eq!(printed(options, &sample::events()), "--\n");
}

#[test]
fn verbose_tells_every_notice() {
    let options = options(Verbosity::Verbose, Some(3));
    insta::assert_snapshot!(printed(options, &sample::events()), @r"
    20270115T080000Z-0123abcd (4 of 60): 2 epochs of 80 rows, 6 steps, on cpu (asked for 1 GPU), engine serial, f32
    warning: first in trial 3: `gpu:0` is not there: training on the CPU
    epoch 1, step 3: validation loss 0.1235, accuracy 90.0 %
    two\nlines
    epoch 2, step 6: validation loss 0.1000, accuracy 95.0 %
    logging took 1.25 % of the training time
    profiler overhead: 0.08 % of the time: 10,000 readings of the clock at 41 ns
    training time: log 64.0 %, unexplained 25.0 %, call overhead 11.0 %; a step takes 0.76 µs, 4.0x its estimate by measured rates (0.19 µs)
    to wait 2 times for the log instead of 6, set `logging.policy=buffered`
    20270115T080000Z-0123abcd: finished after 6 steps in 2 epochs, 400 ms
    --
    ");
}

#[test]
fn weak_scaling_is_told() {
    let words = "weak scaling: a step takes 64 rows, 32 for each of 2 devices; `lr` is 0.06: 0.03 times 2";
    let header = Header { weak_scaling: Some(words.to_owned()), ..sample::header() };
    let events = [Event::Started(Box::new(header))];
    let text = printed(options(Verbosity::Normal, None), &events);
    assert_eq!(text.lines().nth(1), Some(words));
}

/// A resumed run shows the best of all its parts.
#[test]
fn a_resumed_run_keeps_the_best_before() {
    let shown = |value| {
        let best = sample::outcome().best.map(|best| Best { value, epoch: 7, step: 21, ..best });
        let header = Header { max_time_s: Some(1.0), best, resumed_after: Some(22), ..sample::header() };
        let now =
            Progress { step: 3, epoch: 1, samples: 80, train_s: 0.2, elapsed_s: 0.75, loss: Some(11.5) };
        let events = [Event::Started(Box::new(header)), sample::events()[3].clone(), Event::Progress(now)];
        let text = printed(options(Verbosity::Normal, None), &events);
        text.lines().find(|line| line.contains("best ")).map(str::to_owned)
    };
    assert_eq!(
        [shown(0.0625), shown(0.5)].map(Option::unwrap_or_default),
        [
            "epoch 1, loss 11.50, best 0.06250 in epoch 7, step 21, 400.0 rows/s, 250 ms left",
            "epoch 1, loss 11.50, best 0.1235 in epoch 1, step 3, 400.0 rows/s, 250 ms left",
        ]
    );
}

#[test]
fn quiet_tells_warnings_and_the_folder() {
    let options = options(Verbosity::Quiet, None);
    insta::assert_snapshot!(printed(options, &sample::events()), @r"
    warning: `gpu:0` is not there: training on the CPU
    --
    runs/linreg/20270115T080000Z-0123abcd
    ");
}

#[test]
fn a_run_that_never_started_says_nothing() {
    let options = options(Verbosity::Normal, None);
    assert_eq!(printed(options, &sample::events()[2..]), "--\n");
}

#[test]
fn a_broken_pipe_is_no_error_and_a_full_disk_is() {
    let flush = |kind| {
        let options = options(Verbosity::Normal, None);
        let out = Box::new(Broken(kind));
        let mut console =
            Console::with_streams(Path::new("x"), Instant::now(), options, out, Box::new(Broken(kind)));
        for event in sample::events() {
            console.event(&event).unwrap();
        }
        console.flush()
    };
    flush(ErrorKind::BrokenPipe).unwrap();
    let error = flush(ErrorKind::StorageFull).unwrap_err();
    assert_eq!(error.to_string(), "cannot write `standard output`: no storage space");
}

/// The folds of a sweep differ by a row or two.
#[test]
fn a_warning_with_other_counts_is_no_other_warning() {
    let warned = Warned::default();
    let of =
        |count: &str, all: &str| format!("the model predicts `no` for every row: {count} of {all} are `no`");
    assert!(warned.is_new(&of("1,540", "1,620")));
    assert!(!warned.is_new(&of("1,539", "1,620")) && !warned.is_new(&of("9", "10")));
    assert!(warned.is_new("layer `0.linear` is dead") && warned.is_new("layer `1.linear` is dead"));
}
