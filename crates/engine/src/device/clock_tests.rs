//! The clock's figures.

use super::*;

#[test]
fn figures_agree_with_the_plain_formulas() {
    let mut clock = Clock::new(Grain::Phases);
    let samples: Vec<u64> = (1..=1000).collect();
    for us in &samples {
        clock.record(Phase::Forward, Duration::from_micros(*us));
    }
    let (phase, s) = clock.summaries(Timer::Host).next().expect("one phase");
    assert_eq!((phase, s.count), (Phase::Forward, 1000));
    assert!((s.total.as_secs_f64() - 0.5005).abs() < 1e-12);
    // Standard deviation of 1..=n: sqrt(n (n + 1) / 12).
    let std = (1000.0 * 1001.0 / 12.0f64).sqrt() * 1e-6;
    assert!((s.std_s.expect("two samples") / std - 1.0).abs() < 1e-9);
    for (got, want) in s.percentiles_s.iter().zip([500e-6, 950e-6, 990e-6]) {
        assert!((got / want - 1.0).abs() < 0.01, "{got} {want}");
    }
    assert_eq!((s.min_s, s.max_s), (1e-6, 1e-3));
}

#[test]
fn two_clocks_add_up() {
    let (mut one, mut other, mut both) =
        (Clock::new(Grain::Phases), Clock::new(Grain::Phases), Clock::new(Grain::Phases));
    for us in 1..=100u64 {
        let clock = if us % 3 == 0 { &mut one } else { &mut other };
        clock.record(Phase::Data, Duration::from_micros(us * us));
        both.record(Phase::Data, Duration::from_micros(us * us));
    }
    one.absorb(&other);
    let (_, got) = one.summaries(Timer::Host).next().expect("one phase");
    let (_, want) = both.summaries(Timer::Host).next().expect("one phase");
    let std = |s: &PhaseSummary| s.std_s.unwrap_or_default();
    assert!((std(&got) / std(&want) - 1.0).abs() < 1e-12);
    assert_eq!(PhaseSummary { std_s: None, ..got }, PhaseSummary { std_s: None, ..want });
}

#[test]
fn what_was_written_down_has_its_cost() {
    let mut clock = Clock::new(Grain::Phases);
    assert_eq!(clock.cost().readings, 0);
    clock.record_many(Phase::Step, Duration::from_micros(300), 100);
    clock.record(Phase::Log, Duration::from_micros(3));
    clock.record_many(Phase::Step, Duration::ZERO, 0);
    let cost = clock.cost();
    assert_eq!(cost.readings, 2);
    assert!(cost.each_s > 0.0 && cost.each_s < 1e-3, "{cost:?}");
    assert!((cost.total_s() / cost.each_s - 2.0).abs() < 1e-9);
}

/// No mean is above its maximum.
#[test]
fn a_wait_belongs_to_the_last_sample() {
    let mut clock = Clock::new(Grain::Phases);
    clock.extend(Phase::Checkpoint, Duration::from_micros(9));
    assert_eq!(clock.summaries(Timer::Host).count(), 0, "there was none");
    clock.record(Phase::Checkpoint, Duration::from_micros(70));
    clock.extend(Phase::Checkpoint, Duration::from_micros(30));
    assert_eq!(clock.total(Timer::Host, Phase::Checkpoint), Duration::from_micros(100));
    let (_, one) = clock.summaries(Timer::Host).next().expect("one phase");
    assert_eq!((one.count, one.min_s, one.percentiles_s, one.max_s), (1, 1e-4, [1e-4; 3], 1e-4));
    clock.record(Phase::Checkpoint, Duration::from_micros(20));
    let (_, two) = clock.summaries(Timer::Host).next().expect("one phase");
    assert_eq!((two.count, two.min_s, two.max_s, two.total), (2, 2e-5, 1e-4, Duration::from_micros(120)));
}

#[test]
fn many_at_once_count_as_many() {
    let mut clock = Clock::new(Grain::Blocks);
    clock.record_many(Phase::Step, Duration::from_micros(300), 100);
    clock.record_many(Phase::Step, Duration::from_micros(100), 100);
    let (_, s) = clock.summaries(Timer::Host).next().expect("one phase");
    assert_eq!((s.count, s.samples, s.min_s, s.max_s), (200, 2, 1e-6, 3e-6));
    assert!((s.total.as_secs_f64() - 400e-6).abs() < 1e-15);
}
