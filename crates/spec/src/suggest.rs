//! "did you mean": the known name nearest to a mistyped one.

use std::cmp::Reverse;

/// The one of `names` that another program's word `typed` means, or the most similar one; `None` if none is similar enough. Ignores
/// case, and takes `-` for `_`.
pub fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let names: Vec<&str> = names.collect();
    let is_last = |name: &str, here: &str| name.rsplit('.').next() == Some(here);
    let is_here = |here: String| {
        let find = |fits: &dyn Fn(&str) -> bool| names.iter().copied().find(|name| fits(name));
        find(&|name| name == here).or_else(|| find(&|name| is_last(name, &here)))
    };
    let most = (typed.chars().count() / 3).max(1);
    called_here(typed).find_map(is_here).or_else(|| nearest_within(typed, most, names.iter().copied()))
}

/// The nearest of `names`, no more than `allowed` letters away.
pub(super) fn nearest_within<'a>(
    typed: &str,
    allowed: usize,
    names: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    // A word this long is no slip of a name, and would cost time to compare.
    if typed.len() > 100 {
        return None;
    }
    let typed = typed.to_lowercase().replace('-', "_");
    names
        .map(|name| (strsim::osa_distance(&typed, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= allowed && *distance < name.chars().count())
        .min_by_key(|(distance, name)| (*distance, Reverse(alike(&typed, name))))
        .map(|(_, name)| name)
}

/// The number of letters that two words begin with alike.
fn alike(word: &str, other: &str) -> usize {
    word.chars().zip(other.chars()).take_while(|(own, other)| own == other).count()
}

/// The shortest name that begins or ends with `word`: `trainer` for `train`.
pub fn longer<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let fits = |name: &&str| word.len() > 3 && (name.starts_with(word) || ends_in(name, word));
    names.filter(fits).min_by_key(|name| name.len())
}

/// What other programs call keys, values, metrics and options, and what these are called here.
const SYNONYMS: [(&str, &str); 47] = [
    ("learning_rate eta0", "lr"),
    ("num_epochs n_epochs nb_epoch num_train_epochs", "max_epochs"),
    ("num_steps n_steps train_steps", "max_steps"),
    ("early_stop", "early_stopping"),
    ("random_state random_seed manual_seed", "seed"),
    ("gpus gpu n_gpus accelerator", "num_gpus"),
    ("partition account gpus gres mem", "extra"),
    ("monitor", "metric"),
    ("wd l2 l2_penalty", "weight_decay"),
    ("clip_norm grad_clip max_grad_norm clip_grad_norm", "gradient_clip_val"),
    ("bs mini_batch_size per_device_train_batch_size", "batch_size"),
    ("val_split validation_split val_size", "validation"),
    ("test_size test_split", "test"),
    ("epsilon", "eps"),
    ("units hidden_size hidden_units neurons", "out_features"),
    ("rate drop_rate dropout_rate", "p"),
    ("val_every eval_every check_val_every_n_epoch", "validate_every_epochs"),
    ("val_check_interval eval_steps", "validate_every_steps"),
    ("threshold", "stopping_threshold"),
    ("save_every", "every_epochs"),
    ("amp mixed_precision", "precision"),
    ("loss_fn loss_function criterion", "loss"),
    ("lr_scheduler", "schedule"),
    ("label target_column", "target"),
    ("add_indicator missing_indicator", "missing_indicators"),
    ("n_jobs workers num_workers", "jobs"),
    ("output_dir out_dir log_dir save_dir", "runs_dir"),
    ("mse_loss mean_squared_error", "mse"),
    ("l1_loss mae mean_absolute_error", "l1"),
    ("mean_absolute_error", "mae"),
    ("root_mean_squared_error", "rmse"),
    ("huber_loss smooth_l1 smooth_l1_loss", "huber"),
    ("cross_entropy_loss categorical_crossentropy sparse_categorical_crossentropy", "cross_entropy"),
    ("binary_crossentropy bce bce_loss bce_with_logits_loss nll_loss log_loss", "cross_entropy"),
    ("fp16 float16 half bfloat16", "bf16"),
    ("fp32 float32 float f64 float64 double", "f32"),
    ("dense fc", "linear"),
    ("cosine_annealing cosine_annealing_lr cosine_decay", "cosine"),
    ("reduce_lr_on_plateau reduce_on_plateau", "plateau"),
    ("acc", "accuracy"),
    ("auroc roc_auc", "auc"),
    ("interval suggest_float", "uniform"),
    ("randint suggest_int", "int"),
    ("grid grid_search suggest_categorical", "choice"),
    ("geomspace", "logspace"),
    ("random_search", "random"),
    ("bayes bayesian optuna", "tpe"),
];

/// What other programs call the key whose value names a choice, such as an optimizer: a table has the choice as its key.
pub(super) const NAMES_A_CHOICE: [&str; 3] = ["kind", "name", "type"];

/// Tables that have or follow a metric, wherever they are.
const JUDGED: [&str; 5] = ["checkpoint", "plateau", "sweep", "trainer", "early_stopping"];

/// The hint at a key of such a table that says in other programs whether less or more is better.
pub(super) fn at_direction(table: &str, key: &str) -> Option<&'static str> {
    let is_direction =
        ["direction", "greater_is_better", "metric_mode", "mode", "monitor_mode"].contains(&key);
    (is_direction && JUDGED.contains(&table.rsplit('.').next().unwrap_or(table)))
        .then_some("leave it out: whether less or more is better follows from the metric")
}

/// What others begin the name of a validation's metric with.
const OF_VALIDATION: [&str; 3] = ["val_", "valid_", "eval_"];

/// What a word of another program may mean here.
pub(super) fn called_here(word: &str) -> impl Iterator<Item = String> {
    let plain = |word: &str| word.to_lowercase().replace(['_', '-', ' '], "");
    let synonyms = move |word: &str| {
        let word = plain(word);
        let is_it = move |(usual, _): &(&str, &str)| usual.split(' ').any(|usual| plain(usual) == word);
        SYNONYMS.into_iter().filter(is_it).map(|(_, here)| here.to_owned())
    };
    let metric = OF_VALIDATION.into_iter().find_map(|begin| word.strip_prefix(begin));
    let of_validation = metric.into_iter().flat_map(move |metric| {
        synonyms(metric).chain([metric.to_owned()]).map(|metric| format!("validation.{metric}"))
    });
    synonyms(word).chain(of_validation)
}

/// Whether `name` is a longer one for `word`: `batch_size` for `batch`.
pub(super) fn begins_with(name: &str, word: &str) -> bool {
    name.strip_prefix(word).is_some_and(|rest| rest.starts_with('_'))
}

/// Whether `name` is a longer one for `word`: `max_epochs` for `epochs`.
pub(super) fn ends_in(name: &str, word: &str) -> bool {
    name.strip_suffix(word).is_some_and(|before| before.ends_with('_'))
}

/// "`a`, `b` and `c`", with `and` before the last.
pub(super) fn listing<'a>(names: impl Iterator<Item = &'a str>, and: &str) -> String {
    let names: Vec<String> = names.map(|n| format!("`{n}`")).collect();
    match names.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} {and} {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognized_and_strangers_are_not() {
        let names = ["batch_size", "shuffle", "lr", "relu", "validate_every_epochs", "max_epochs", "trainer"];
        let near = |t| nearest(t, names.into_iter());
        assert_eq!(near("batchsize"), Some("batch_size"));
        assert_eq!(near("batch-size"), Some("batch_size"));
        assert_eq!(near("ReLU"), Some("relu"));
        assert_eq!(near("lrr"), Some("lr"));
        assert_eq!(longer("epochs", names.into_iter()), Some("max_epochs"));
        assert_eq!(longer("train", names.into_iter()), Some("trainer"));
        assert_eq!(near("learning-rate"), Some("lr"));
        assert_eq!(near("sgd"), None);
        assert_eq!(near("x"), None);
        // Of names as near, the one that begins alike.
        assert_eq!(
            nearest("validation.f2", ["validation.r2", "validation.f1"].into_iter()),
            Some("validation.f1")
        );
    }

    #[test]
    fn words_of_other_programs_are_known() {
        let near = |typed, names: &[&'static str]| nearest(typed, names.iter().copied());
        assert_eq!(near("MSELoss", &["mse", "l1"]), Some("mse"));
        assert_eq!(near("mean_absolute_error", &["mse", "l1"]), Some("l1"));
        assert_eq!(near("mean_absolute_error", &["train.rmse", "train.mae"]), Some("train.mae"));
        assert_eq!(near("val_acc", &["train.accuracy", "validation.accuracy"]), Some("validation.accuracy"));
        // The loss of training is another metric.
        assert_eq!(near("val_loss", &["train.loss", "loss"]), None);
    }

    #[test]
    fn lists_read_as_sentences() {
        assert_eq!(listing(["a"].into_iter(), "or"), "`a`");
        assert_eq!(listing(["a", "b", "c"].into_iter(), "or"), "`a`, `b` or `c`");
    }
}
