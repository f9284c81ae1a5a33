//! Parts of a schedule without effect are warned of by `check` and at the start of a run.

use super::remarks::{place, warned};

/// Counts begin at 0: with nine steps, the last possible drop is at count 8.
#[test]
fn drops_of_the_rate_after_the_end() {
    let place = place(100);
    let step = |size: u64| format!("schedule.step={{ step_size = {size} }}");
    warned(&place, &[&step(8)], &[]);
    warned(
        &place,
        &[&step(9)],
        &["`schedule.step` never changes the rate: it would after 9 steps, and the run takes 9 steps"],
    );
    let milestones = |list: &str| format!("schedule.multi_step={{ milestones = [{list}] }}");
    let multi = |list: &str, want: &[&str]| warned(&place, &[&milestones(list)], want);
    multi("2, 8", &[]);
    multi("2, 9", &["`schedule.multi_step` never reaches the milestone 9: the run takes 9 steps"]);
    multi(
        "2, 30, 8000",
        &["`schedule.multi_step` never reaches the milestones 30 and 8,000: the run takes 9 steps"],
    );
    multi(
        "2, 30, 60, 90",
        &["`schedule.multi_step` never reaches its last 3 milestones: the run takes 9 steps"],
    );
    multi("30, 60", &["`schedule.multi_step` never reaches any milestone: the run takes 9 steps"]);
    warned(
        &place,
        &[&milestones("2, 3"), "schedule.interval=epoch"],
        &["`schedule.multi_step` never reaches the milestone 3: the run takes 3 epochs"],
    );
    let chain = "schedule={ chain = [{ steps = 4, step = { step_size = 4 } }, { multi_step = { milestones = [4, 5] } }] }";
    warned(
        &place,
        &[chain],
        &[
            "`schedule.chain.0.step` never changes the rate: it would after 4 steps, and this part of the chain lasts 4 steps",
            "`schedule.chain.1.multi_step` never reaches the milestone 5: this part of the chain lasts 5 steps",
        ],
    );
}

/// PyTorch's OneCycleLR moves a momentum that was never asked for, and its cosine does not stay at its end.
#[test]
fn values_that_a_curve_replaces() {
    let place = place(100);
    let cycle = "optimizer.sgd.lr=0.5";
    let told = "`schedule.one_cycle` moves the momentum of `sgd` between 0.95 and 0.85; with `cycle_momentum = false` it stays 0";
    warned(&place, &[cycle, "schedule.one_cycle.max_lr=0.5"], &[told]);
    warned(&place, &[cycle, "schedule.one_cycle={ max_lr = 0.5, cycle_momentum = false }"], &[]);
    let ends =
        "the cosine of `schedule.cosine` is at its end after 5 steps of 9 steps, and rises again from there";
    warned(&place, &["schedule.cosine.t_max=5"], &[ends]);
    // The last of nine steps has the count 8.
    warned(&place, &["schedule.cosine.t_max=8"], &[]);
    let chain = "schedule={ chain = [{ steps = 4, cosine = { t_max = 2 } }, { cosine = { t_max = 4 } }] }";
    let ends = "the cosine of `schedule.chain.0.cosine` is at its end after 2 steps of 4 steps, and rises again from there";
    warned(&place, &[chain], &[ends]);
}

/// A length for curves that have none, where each has its own, or takes none. What a run resolved says both alike.
#[test]
fn a_length_that_no_curve_takes() {
    let place = place(100);
    let curve = |rule: &'static str| [rule, "schedule.curve_epochs=2"];
    let ends =
        "the cosine of `schedule.cosine` is at its end after 6 steps of 9 steps, and rises again from there";
    warned(&place, &curve("schedule.cosine={}"), &[ends]);
    warned(&place, &curve("schedule.cosine.t_max=6"), &[ends]);
    let own =
        "`schedule.curve_epochs` is 2, and has no effect: `schedule.cosine.t_max` says how long the curve is";
    warned(&place, &curve("schedule.cosine.t_max=7"), &[own, &ends.replace("6 steps", "7 steps")]);
    let none = "`schedule.curve_epochs` is 2, and has no effect: no curve takes a length from it";
    warned(&place, &curve("schedule.exponential.gamma=0.5"), &[none]);
    let chain = |t_max: &str| {
        format!(
            "schedule.chain=[{{ steps = 4, exponential = {{ gamma = 0.9 }} }}, {{ cosine = {{ {t_max} }} }}]"
        )
    };
    warned(&place, &[&chain(""), "schedule.curve_epochs=3"], &[]);
    let last = "`schedule.curve_epochs` is 3, and has no effect: `schedule.chain.1.cosine.t_max` says how long the curve is";
    warned(&place, &[&chain("t_max = 9"), "schedule.curve_epochs=3"], &[last]);
}

/// A cycle has rates of its own.
#[test]
fn a_rate_that_no_step_takes() {
    let place = place(100);
    let cycle = "schedule.one_cycle={ max_lr = 0.02, cycle_momentum = false }";
    warned(&place, &[cycle, "optimizer.sgd.lr=0.02"], &[]);
    let words = "`optimizer.sgd.lr` is 0.01, and has no effect: the rates are those of `schedule.one_cycle`, whose `max_lr` is 0.02";
    warned(&place, &[cycle], &[words]);
    let ended = place.runner(&["check", "spec.toml", "-q", cycle, "optimizer.sgd.lr=0.01,0.02,0.03"]);
    let other = words.replace("is 0.01", "is 0.03");
    assert_eq!(ended.stderr, format!("warning: trial 0: {words}\nwarning: trial 2: {other}\n"));
}

#[test]
fn a_part_of_a_schedule_that_is_never_reached() {
    let place = place(100);
    let chain = |steps: [u64; 2]| {
        let [a, b] = steps;
        format!(
            "schedule={{ chain = [{{ steps = {a}, exponential = {{ gamma = 0.9 }} }}, \
             {{ steps = {b}, exponential = {{ gamma = 0.8 }} }}, {{ exponential = {{ gamma = 0.7 }} }}] }}"
        )
    };
    warned(&place, &[&chain([4, 4])], &[]);
    warned(
        &place,
        &[&chain([4, 5])],
        &["`schedule.chain.2` is never reached: it begins after 9 steps, and the run takes 9"],
    );
    warned(
        &place,
        &[&chain([2000, 5])],
        &[
            "`schedule.chain.1` (and what comes after it) is never reached: it begins after 2,000 steps, and the run takes 9",
        ],
    );
    let epochs = chain([2, 1]).replace("chain =", "interval = \"epoch\", chain =");
    warned(
        &place,
        &[&epochs],
        &["`schedule.chain.2` is never reached: it begins after 3 epochs, and the run takes 3"],
    );
}
