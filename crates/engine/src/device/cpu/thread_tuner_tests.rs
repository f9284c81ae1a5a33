//! The choice between a team and one thread, with simulated times.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// A tuner of two threads on two cores that knows nothing about other processes.
fn adaptive(known: KnownTimes) -> ThreadTuner {
    ThreadTuner::on(2, || None, 2, ThreadMode::Adaptive, known)
}

/// Simulates `seconds` of steps that take `alone` or `together` microseconds; returns the fraction that
/// the team ran.
fn share(tuner: &mut ThreadTuner, [alone, together]: [u64; 2], seconds: u64) -> f64 {
    let (mut spent, mut counts) = (Duration::ZERO, [0, 0]);
    while spent < Duration::from_secs(seconds) {
        let (team, steps) = tuner.next(PassKind::Train, 100);
        let time = Duration::from_micros(if team { together } else { alone }) * steps as u32;
        tuner.took(PassKind::Train, team, steps as f64, time);
        counts[usize::from(team)] += steps;
        spent += time;
    }
    f64::from(counts[1] as u32) / f64::from((counts[0] + counts[1]) as u32)
}

#[test]
fn the_quicker_way_is_the_rule_and_the_other_is_tried() {
    let mut tuner = adaptive(KnownTimes::default());
    assert!(share(&mut tuner, [100, 60], 20) > 0.98);
    // Another process takes a core: the team becomes twenty times slower and is not used.
    assert!(share(&mut tuner, [100, 2000], 20) < 0.05);
    // It is used again soon after the core is free.
    assert!(share(&mut tuner, [100, 60], 60) > 0.6);
}

#[test]
fn the_team_is_back_as_soon_as_its_core_is_free() {
    static RUNNING: AtomicUsize = AtomicUsize::new(2);
    let mut tuner = adaptive(KnownTimes::default());
    tuner.running = || Some(RUNNING.load(Ordering::Relaxed));
    assert!(share(&mut tuner, [100, 60], 5) > 0.98);
    RUNNING.store(3, Ordering::Relaxed);
    assert!(share(&mut tuner, [100, 2000], 30) < 0.05);
    // By now the next probe without evidence would be many seconds away.
    RUNNING.store(1, Ordering::Relaxed);
    assert!(share(&mut tuner, [100, 60], 1) > 0.9);
}

#[test]
fn a_trial_begins_on_one_thread_while_others_use_the_cores() {
    static RUNNING: AtomicUsize = AtomicUsize::new(5);
    let running = || Some(RUNNING.load(Ordering::Relaxed));
    let known = KnownTimes { estimate_s: Some(50e-6), tried_s: None };
    let mut tuner = ThreadTuner::on(2, running, 2, ThreadMode::Adaptive, known);
    assert!(!tuner.begins_together());
    assert_eq!(tuner.next(PassKind::Validate, 3), (false, 3));
    let tried = KnownTimes { tried_s: Some([100e-6, 60e-6]), ..known };
    let mut quick = ThreadTuner::on(2, running, 2, ThreadMode::Adaptive, tried);
    assert_eq!(quick.next(PassKind::Train, 1000), (false, 40));
    assert_eq!(tuner.next(PassKind::Train, 1000), (false, 80));
    tuner.took(PassKind::Train, false, 80.0, Duration::from_millis(8));
    assert!(share(&mut tuner, [100, 2000], 1) < 0.05);
    RUNNING.store(1, Ordering::Relaxed);
    assert!(share(&mut tuner, [100, 60], 1) > 0.9);
}

#[test]
fn long_steps_are_not_spent_on_probes() {
    let mut tuner = adaptive(KnownTimes::default());
    let (mut spent, mut lost) = (0.0, 0.0);
    while spent < 60.0 {
        // Blocks of one step, which takes the team 0.2 s and one thread 0.4 s.
        let (team, steps) = tuner.next(PassKind::Train, 1);
        let seconds = if team { 0.2 } else { 0.4 };
        tuner.took(PassKind::Train, team, steps as f64, Duration::from_secs_f64(seconds));
        (spent, lost) = (spent + seconds, lost + seconds - 0.2);
    }
    assert!(lost > 0.0 && lost < 0.02 * spent, "{lost}");
}

#[test]
fn a_slow_start_of_the_team_is_no_verdict() {
    let mut tuner = adaptive(KnownTimes::default());
    assert_eq!(tuner.next(PassKind::Train, 48), (true, 48));
    tuner.took(PassKind::Train, true, 48.0, Duration::from_millis(200));
    assert!(tuner.next(PassKind::Train, 48).0);
    tuner.took(PassKind::Train, true, 48.0, Duration::from_millis(50));
    assert!(share(&mut tuner, [2000, 1000], 20) > 0.98);
}

#[test]
fn one_hold_up_is_no_verdict_nor_are_two_ways_as_slow() {
    let mut tuner = adaptive(KnownTimes::default());
    assert!(share(&mut tuner, [1900, 1000], 3) > 0.9);
    for round in 0..400 {
        let (team, steps) = tuner.next(PassKind::Train, 10);
        // Every fifth block of the team is delayed by some milliseconds.
        let micros = if !team {
            1900
        } else if round % 5 == 0 {
            4000
        } else {
            1400
        };
        tuner.took(PassKind::Train, team, steps as f64, Duration::from_micros(micros) * steps as u32);
        assert!(team || steps <= SHORTEST_PROBE, "round {round}");
    }
    assert!(share(&mut tuner, [1850, 1900], 20) > 0.9);
}

#[test]
fn steps_begin_as_a_trial_found_them_and_long_ones_are_probed_soon_once_slow() {
    let tried = |tried_s| KnownTimes { tried_s: Some(tried_s), estimate_s: None };
    let mut tuner = adaptive(tried([100e-6, 300e-6]));
    assert_eq!(tuner.next(PassKind::Train, 100), (false, 100));
    // The trial had both threads on one core; a tenth of a second corrects it.
    assert!(share(&mut tuner, [100, 60], 2) > 0.95);
    // Steps of 7 ms. After some seconds another process takes a core; waiting three seconds would be too
    // long.
    let mut tuner = adaptive(tried([0.012, 0.007]));
    let mut run = |together: u64, seconds: f64| {
        let (mut spent, mut alone) = (0.0, 0.0);
        while spent < seconds {
            let (team, steps) = tuner.next(PassKind::Train, 7);
            let time = Duration::from_millis(if team { together } else { 12 }) * steps as u32;
            tuner.took(PassKind::Train, team, steps as f64, time);
            spent += time.as_secs_f64();
            alone += if team { 0.0 } else { time.as_secs_f64() };
        }
        alone / spent
    };
    assert!(run(7, 10.0) < 0.03);
    assert!(run(25, 4.0) > 0.75);
}

#[test]
fn an_epochs_last_batch_makes_no_others_slow() {
    let mut tuner = adaptive(KnownTimes::default());
    let (mut spent, mut probed) = (0.0, 0.0);
    for step in 1..3000 {
        // Blocks of one step; every tenth has a tenth of the rows.
        let batches = if step % 10 == 0 { 0.1 } else { 1.0 };
        let (team, _) = tuner.next(PassKind::Train, 1);
        tuner.took(PassKind::Train, team, batches, Duration::from_secs_f64(batches));
        (spent, probed) = (spent + batches, probed + if team { 0.0 } else { batches });
    }
    assert!(probed > 0.0 && probed < 0.025 * spent, "{probed} of {spent}");
}

#[test]
fn a_team_that_takes_many_times_what_one_thread_needs_is_left_at_once() {
    let known = KnownTimes { estimate_s: Some(50e-6), tried_s: None };
    let mut tuner = adaptive(known);
    assert_eq!(tuner.next(PassKind::Train, 23), (true, 23));
    tuner.took(PassKind::Train, true, 23.0, Duration::from_micros(23 * 841));
    assert!(!tuner.next(PassKind::Train, 23).0);
    // One thread proves slow as well, so the team is used again.
    tuner.took(PassKind::Train, false, 23.0, Duration::from_micros(23 * 1500));
    assert!(tuner.next(PassKind::Train, 23).0);
}

#[test]
fn without_a_choice_there_is_none() {
    assert_eq!(
        ThreadTuner::new(1, ThreadMode::Adaptive, KnownTimes::default()).next(PassKind::Train, 7),
        (false, 7)
    );
    assert_eq!(
        ThreadTuner::new(2, ThreadMode::Team, KnownTimes::default()).next(PassKind::Train, 7),
        (true, 7)
    );
}
