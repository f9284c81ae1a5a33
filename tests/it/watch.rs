//! `runner watch` beside a run that is at work, in plain lines, and after its end.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    cuda::Sim,
    ends::{LIMIT, quiet, send, stop, wait_for_lines, wait_until},
    process::{Ended, Sandbox},
};

/// A run that goes on until it is signalled.
const ENDLESS: [&str; 2] = ["trainer.max_epochs=100000000", "logging.flush_every_s=0.05"];

#[test]
fn a_run_is_watched_until_it_ends() {
    let place = Sandbox::new(super::run::LINREG);
    let (command, runs) = place.prepared(&ENDLESS);
    let mut run = quiet(command);
    wait_for_lines(&runs, 2);
    let printed = place.path().join("printed");
    let read = || fs::read_to_string(&printed).unwrap();
    let mut command = place.command(&["watch", runs.to_str().unwrap()]);
    let mut watch = command.stdout(File::create(&printed).unwrap()).spawn().unwrap();
    wait_until(&mut run, || read().contains(" steps/s, about "));
    send("-TERM", &run);
    assert_eq!(run.wait().unwrap().code(), Some(143));
    assert_eq!(end(&mut watch), Some(0));
    let text = read();
    assert!(text.contains(" of 100,000,000, step "), "{text}");
    assert!(text.contains("\ninterrupted, epoch ") && text.contains("train loss"), "{text}");
    assert!(!text.contains('\u{1b}'), "no terminal, no control sequences: {text}");
}

#[test]
fn watching_ends_with_its_reader_and_the_run_goes_on() {
    let place = Sandbox::new(super::run::LINREG);
    let (command, runs) = place.prepared(&ENDLESS);
    let mut run = quiet(command);
    wait_for_lines(&runs, 2);
    let arguments = ["watch", runs.to_str().unwrap()];
    let mut watch = quiet(place.command(&arguments));
    let mut line = String::new();
    BufReader::new(watch.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(end(&mut watch), Some(0), "as `| head -1` ends it");
    let mut command = place.command(&arguments);
    command.stdout(File::create("/dev/full").unwrap()).stderr(Stdio::piped());
    let mut full = command.spawn().unwrap();
    assert_eq!(end(&mut full), Some(1));
    let told = Ended::from_output(full.wait_with_output().unwrap()).stderr;
    assert_eq!(told, "error: cannot write to standard output: no space left on device\n");
    assert_eq!(run.try_wait().unwrap(), None);
    send("-TERM", &run);
    assert_eq!(end(&mut run), Some(143));
}

/// The exit code of one that ends soon.
fn end(child: &mut Child) -> Option<i32> {
    let begun = Instant::now();
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return status.code(),
            None if begun.elapsed() < LIMIT => thread::sleep(Duration::from_millis(5)),
            None => {
                child.kill().unwrap();
                return None;
            }
        }
    }
}

#[test]
fn a_sweep_is_shown_with_the_states_of_its_trials() {
    let place = Sandbox::new(super::run::LINREG);
    let sweep = place.run(&["optimizer.sgd.lr=0.03,60.0"]);
    let ended = place.runner(&["watch", sweep.runs.to_str().unwrap()]).ended_by(0);
    assert!(ended.stdout.contains("\n2 trials: 1 finished, 1 diverged\n"), "{ended:?}");
    assert_eq!(place.runner(&["watch", "none"]).code, Some(2));
}

/// The limit that is reached first counts. An endless run's number of epochs is no limit.
#[test]
fn the_time_left_is_that_of_the_first_limit() {
    let place = Sandbox::new(super::run::LINREG);
    for limit in ["trainer.max_time=\"1h\"", "trainer.max_steps=100000000000"] {
        let (command, runs) = place.prepared(&["trainer.max_epochs=100000000000", ENDLESS[1], limit]);
        let mut run = quiet(command);
        wait_for_lines(&runs, 2);
        let mut watch = quiet(place.command(&["watch", runs.to_str().unwrap()]));
        let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
        let line = lines.find_map(|line| line.ok().filter(|line| line.contains(" left"))).unwrap();
        let is_hour = line.contains(", about 59 min ") || line.contains(", about 1 h 00 min left");
        assert_eq!(is_hour, limit.contains("time"), "{line}");
        drop(lines);
        send("-TERM", &run);
        assert_eq!(end(&mut run), Some(143));
        end(&mut watch);
    }
}

/// `q` quits, as in other viewers. Other keys appear neither on the screen nor at the prompt afterwards.
#[test]
fn watching_ends_by_q() {
    let place = Sandbox::new(super::run::LINREG);
    let (command, runs) = place.prepared(&ENDLESS);
    let mut run = quiet(command);
    wait_for_lines(&runs, 2);
    let arguments = ["watch", runs.to_str().unwrap(), "--color", "never"];
    if let Some(mut terminal) = Terminal::start(Sandbox::new(""), &arguments) {
        terminal.wait_for("train loss");
        terminal.script.stdin.as_mut().unwrap().write_all(b"~~~~q").unwrap();
        let (code, drawn, after) = terminal.end();
        assert!(code == Some(0) && after.contains("\u{2514}\u{2500}"), "{after}");
        assert!(!drawn.contains('~') && !after.contains('~'), "{drawn}{after}");
    }
    assert_eq!(run.try_wait().unwrap(), None);
    send("-TERM", &run);
    assert_eq!(end(&mut run), Some(143));
}

/// A command in a terminal of its own, which `script` gives it.
struct Terminal {
    script: Child,
    place: Sandbox,
}

impl Terminal {
    /// Runs the program with these arguments, if this machine has `script`.
    fn start(place: Sandbox, arguments: &[&str]) -> Option<Self> {
        Self::start_with(place, arguments, |_| ())
    }

    /// `more` sets variables of the environment.
    fn start_with(place: Sandbox, arguments: &[&str], more: impl FnOnce(&mut Command)) -> Option<Self> {
        let program = place.command(&[]).get_program().to_str().unwrap().to_owned();
        let words: String = arguments.iter().map(|word| format!(" '{word}'")).collect();
        let mut command = Command::new("script");
        command.args([
            "-qec",
            &format!("echo $$ > pid; stty cols ${{COLS:-100}} rows 24; exec {program}{words}"),
            "/dev/null",
        ]);
        command.current_dir(place.path()).stdin(Stdio::piped());
        command.stdout(File::create(place.path().join("screen")).unwrap());
        more(&mut command);
        let script = command.spawn().map_err(|e| eprintln!("SKIPPED, without `script`: {e}"));
        Some(Self { script: script.ok()?, place })
    }

    fn read(&self, file: &str) -> String {
        let text = fs::read_to_string(self.place.path().join(file)).unwrap_or_default();
        super::process::without_build(&text)
    }

    /// Waits until these words stand on its screen, perhaps broken between two lines.
    #[track_caller]
    fn wait_for(&mut self, words: &str) {
        let path = self.place.path().join("screen");
        let has = |text: String| text.contains(words) || text.replace("\x1b[K\r\n ", "").contains(words);
        wait_until(&mut self.script, || fs::read_to_string(&path).is_ok_and(has));
    }

    /// The process of the program.
    fn pid(&self) -> String {
        self.read("pid").trim().to_owned()
    }

    /// The processes that it started.
    fn children(&self) -> String {
        let pid = self.pid();
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default().trim().to_owned()
    }

    /// Its exit code, and the screen's contents before and after the terminal was restored.
    fn end(mut self) -> (Option<i32>, String, String) {
        let code = end(&mut self.script);
        let text = self.read("screen");
        let (drawn, after) = text.split_once(LEAVE).expect(&text);
        assert!(drawn.starts_with(ENTER) && !drawn[1..].contains(ENTER), "{text}");
        assert!(!after.contains('\u{1b}'), "{text}");
        (code, drawn.to_owned(), after.replace('\r', ""))
    }
}

/// A failed test must not leave an endless run behind.
impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for pid in format!("{} {}", self.children(), self.pid()).split_whitespace() {
                let _ = Command::new("kill").args(["-KILL", pid]).status();
            }
            let _ = self.script.kill();
        }
    }
}

/// Load and memory of each GPU are shown next to what the process uses of the host.
#[test]
fn the_gpus_of_a_run_are_shown() {
    let Some(sim) = Sim::get() else { return };
    let variables = [("RUNNER_SIM_DEVICES", "2")];
    let place = Sandbox::new(super::cuda::LINREG);
    let (mut command, runs) = place.prepared(&[&ENDLESS[..], &["devices.num_gpus=2"]].concat());
    sim.on(&mut command, &variables);
    let mut run = quiet(command);
    wait_for_lines(&runs, 2);
    let arguments = ["watch", runs.to_str().unwrap(), "--color", "never"];
    let on_sim = |command: &mut Command| _ = sim.on(command, &variables);
    if let Some(mut terminal) = Terminal::start_with(Sandbox::new(""), &arguments, on_sim) {
        // NVML numbers the GPUs the other way round.
        for words in ["gpu:0 10 % busy with 4 MiB of 1 GiB", "gpu:1 0 % busy with 4 MiB of 1 GiB"] {
            terminal.wait_for(words);
        }
        kill("-TERM", &terminal.pid());
        assert_eq!(terminal.end().0, Some(0));
    }
    send("-TERM", &run);
    assert_eq!(end(&mut run), Some(143));
}

fn kill(signal: &str, pid: &str) {
    assert!(Command::new("kill").args([signal, pid]).status().unwrap().success());
}

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// The start of a run until it is signalled, drawn.
const DRAWN: [&str; 6] = ["spec.toml", ENDLESS[0], ENDLESS[1], "--plot", "--color", "never"];

#[test]
fn a_run_is_drawn_while_it_goes_on_and_the_terminal_is_left_clean() {
    let place = Sandbox::new(super::run::LINREG);
    let plain = place.command(&["spec.toml", "--plot"]).output().unwrap();
    assert!(
        plain.status.success() && !plain.stdout.contains(&0x1b),
        "without a terminal it is the run alone"
    );
    let note = "`--plot` draws nothing: standard output is no terminal\n";
    assert!(String::from_utf8_lossy(&plain.stderr).contains(note), "{plain:?}");
    let arguments = [&DRAWN[..], &["trainer.max_time=\"3s\""]].concat();
    let Some(terminal) = Terminal::start(place, &arguments) else { return };
    let (code, drawn, after) = terminal.end();
    for words in [" of 100,000,000, step ", " MiB", "train loss", "└──"] {
        assert!(drawn.contains(words), "{words}: {drawn}");
    }
    assert!(code == Some(0) && after.contains(" finished in "), "{after}");
    // The curves stay.
    let (curves, _) = after.split_once(" finished in ").unwrap();
    assert!(curves.contains("└──") && curves.contains("•• train loss, mean of each epoch"), "{after}");
}

#[test]
fn a_run_that_is_over_before_it_is_drawn_leaves_its_curves() {
    for quiet in [None, Some("-q")] {
        let arguments = ["spec.toml", "--plot", "--color", "never"].into_iter().chain(quiet);
        let place = Sandbox::new(super::run::LINREG);
        let Some(mut terminal) = Terminal::start(place, &arguments.collect::<Vec<_>>()) else { return };
        assert_eq!(end(&mut terminal.script), Some(0));
        let screen = terminal.read("screen");
        let stays = screen.rsplit(LEAVE).next().unwrap();
        for words in ["└──", "train loss", "validation loss"] {
            assert!(stays.contains(words), "{words}: {screen}");
        }
    }
}

/// What stands below the curves is as wide as the terminal, of a run and of a sweep.
#[test]
fn what_a_drawn_run_prints_fits_the_terminal() {
    let sweep = ["optimizer.sgd.lr=0.01,0.03,0.1", "data.batch_size=8,16"];
    for (more, words) in [(&[][..], "spec finished in "), (&sweep, "spec: 6 trials, 6 finished\n")] {
        let arguments = [&["spec.toml", "--plot", "--color", "never"], more].concat();
        let narrow = |command: &mut Command| _ = command.env("COLS", "60");
        let place = Sandbox::new(super::run::LINREG);
        let Some(mut terminal) = Terminal::start_with(place, &arguments, narrow) else { return };
        assert_eq!(end(&mut terminal.script), Some(0));
        let screen = terminal.read("screen").replace('\r', "");
        let (_, below) = screen.rsplit_once(words).expect(&screen);
        let wide = |line: &&str| line.chars().count() > 60 && !line.contains('/'); // paths stay whole
        assert_eq!(below.lines().filter(wide).collect::<Vec<_>>(), [""; 0], "{screen}");
        assert!(below.lines().count() > 5 && below.contains("\n  folder "), "{below}");
    }
}

/// By the terminal's Ctrl-C, which reaches the run too, or by a signal to the viewer alone, which passes it on.
#[test]
fn a_signal_to_a_drawn_run_ends_it_in_order() {
    for (signal, code) in [("", 130), ("-INT", 130), ("-TERM", 143)] {
        let place = Sandbox::new(super::run::LINREG);
        let Some(mut terminal) = Terminal::start(place, &DRAWN) else { return };
        terminal.wait_for("train loss");
        if signal.is_empty() {
            terminal.script.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
        } else {
            kill(signal, &terminal.pid());
        }
        let (ended, _, after) = terminal.end();
        assert_eq!(ended, Some(code), "{after}");
        assert!(after.contains("spec interrupted in "), "{after}");
    }
}

/// A terminal that accepts no output blocks the viewer: Ctrl-S, then Ctrl-Q at the end.
#[test]
fn a_signal_reaches_a_drawn_run_at_once_while_its_viewer_waits() {
    let Some(mut terminal) = Terminal::start(Sandbox::new(super::run::LINREG), &DRAWN) else { return };
    terminal.wait_for("train loss");
    let press = |terminal: &mut Terminal, key: &[u8]| {
        terminal.script.stdin.as_mut().unwrap().write_all(key).unwrap();
    };
    press(&mut terminal, b"\x13");
    thread::sleep(Duration::from_millis(1500));
    kill("-TERM", &terminal.pid());
    let runs = terminal.place.path().join("runs");
    let summary = || super::process::Folder::within(&runs).map(|run| run.text("summary.csv"));
    wait_until(&mut terminal.script, || summary().is_some_and(|text| text.contains("interrupted")));
    assert_eq!(terminal.script.try_wait().unwrap(), None, "the viewer still waits");
    press(&mut terminal, b"\x11");
    let (code, _, after) = terminal.end();
    assert!(code == Some(143) && after.contains("spec interrupted in "), "{after}");
}

/// Both signals reach the run while it is stopped, as if saving took long. When it continues, it counts them
/// as one.
#[test]
fn a_second_signal_does_not_leave_a_drawn_run_behind() {
    let Some(mut terminal) = Terminal::start(Sandbox::new(super::run::LINREG), &DRAWN) else { return };
    terminal.wait_for("train loss");
    let run = terminal.children();
    stop(&run);
    kill("-INT", &terminal.pid());
    terminal.wait_for("the run was asked to end");
    kill("-TERM", &terminal.pid());
    let status = format!("/proc/{run}/status");
    // Bits 1 and 14 of proc(5), `ShdPnd`.
    wait_until(&mut terminal.script, || {
        fs::read_to_string(&status).unwrap().contains("ShdPnd:\t0000000000004002")
    });
    thread::sleep(Duration::from_millis(200));
    assert_eq!(terminal.children(), run, "it waits for the run");
    kill("-CONT", &run);
    let (code, _, after) = terminal.end();
    assert!([Some(130), Some(143)].contains(&code) && after.contains("spec interrupted in "), "{after}");
}

#[test]
fn a_drawn_run_that_is_killed_and_one_whose_viewer_is() {
    let Some(mut terminal) = Terminal::start(Sandbox::new(super::run::LINREG), &DRAWN) else { return };
    terminal.wait_for("train loss");
    kill("-KILL", &terminal.children());
    let (code, _, after) = terminal.end();
    assert_eq!(code, Some(137));
    let words =
        "error: the run was killed by signal 9 (SIGKILL)\n  = hint: rows that were written are kept\n";
    assert!(after.ends_with(words), "{after}");

    let place = Sandbox::new(super::run::LINREG);
    let Some(mut terminal) = Terminal::start(place, &DRAWN) else { return };
    terminal.wait_for("train loss");
    kill("-KILL", &terminal.pid());
    let runs = terminal.place.path().join("runs");
    let summary = || super::process::Folder::within(&runs).map(|run| run.text("summary.csv"));
    wait_until(&mut terminal.script, || summary().is_some_and(|text| text.contains("interrupted")));
}

#[test]
fn watching_ends_by_a_signal_and_pauses_by_ctrl_z() {
    let place = Sandbox::new(super::run::LINREG);
    let (command, runs) = place.prepared(&ENDLESS);
    let mut run = quiet(command);
    wait_for_lines(&runs, 2);
    let arguments = ["watch", runs.to_str().unwrap(), "--color", "never"];
    for signal in ["-TERM", "-INT"] {
        let Some(mut terminal) = Terminal::start(Sandbox::new(""), &arguments) else { break };
        terminal.wait_for("train loss");
        if signal == "-TERM" {
            kill("-TSTP", &terminal.pid());
            // `script` stops with it, and goes on with it.
            let stat = format!("/proc/{}/stat", terminal.script.id());
            wait_until(&mut terminal.script, || fs::read_to_string(&stat).unwrap().contains(") T "));
            send("-CONT", &terminal.script);
            terminal.wait_for(&format!("{LEAVE}{ENTER}"));
        }
        kill(signal, &terminal.pid());
        let code = end(&mut terminal.script);
        let text = terminal.read("screen");
        let (_, after) = text.rsplit_once(LEAVE).expect(&text);
        assert!(code == Some(0) && after.contains("└──") && !after.contains('\u{1b}'), "{text}");
        assert_eq!(run.try_wait().unwrap(), None);
    }
    send("-TERM", &run);
    assert_eq!(end(&mut run), Some(143));
}
