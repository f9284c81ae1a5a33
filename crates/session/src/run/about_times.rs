//! Which sweeps ask for times, so that nothing ranks their trials by what these learned.

use super::best_setting::REPEAT;

/// The axis of logging policies.
pub const POLICY: &str = "logging.policy";

/// Axes that do not change what is learned, except for the last bits.
const OTHERWISE: [&str; 3] = ["devices.", "logging.", "data.placement"];

/// Axes with those prefixes that do change it.
const LEARNS: [&str; 2] = ["devices.precision", "devices.lr_scaling"];

/// Whether an axis changes what is learned.
pub fn concerns_learning(key: &str) -> bool {
    LEARNS.contains(&key) || (key != REPEAT && !OTHERWISE.iter().any(|other| key.starts_with(other)))
}

/// Whether a sweep over these axes asks for times: none of them changes what is learned, or one seed is repeated over policies.
pub(super) fn is_about_times(axes: &[String], has_one_seed: bool) -> bool {
    let has = |key: &str| axes.iter().any(|axis| axis == key);
    let are_seeds = !has_one_seed && axes.iter().all(|key| key == REPEAT);
    let learn = are_seeds || axes.iter().any(|key| concerns_learning(key));
    !learn || (has_one_seed && has(POLICY) && has(REPEAT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_and_devices_are_about_times() {
        let is = |axes: &[&str], has_one_seed| {
            is_about_times(&axes.iter().map(|&axis| axis.to_owned()).collect::<Vec<_>>(), has_one_seed)
        };
        assert!(is(&["devices.num_gpus"], true) && is(&["model.width", POLICY, REPEAT], true));
        assert!(is(&[REPEAT], true) && is(&["devices.num_gpus", REPEAT], false));
        assert!(!is(&[REPEAT], false) && !is(&["model.width", POLICY, REPEAT], false));
        assert!(!is(&["optimizer.sgd.lr"], true) && !is(&["devices.precision"], true));
    }
}
