//! New rows unlike those that the model was trained on.

use super::Model;

/// Values far from the training rows are counted, a column at a time, on standard error alone.
#[test]
fn values_far_from_the_training_rows() {
    let model = Model::price();
    let header = "colour,place,width,height,depth\n";
    let row = |n: usize| {
        let (width, height) = (if n < 12 { "1e6" } else { "1.5" }, if n == 3 { "-1e9" } else { "-90" });
        format!("red,north,{width},{height},0.0035\n")
    };
    model.write("far.csv", format!("{header}{}", (0..500).map(row).collect::<String>()));
    let ended = model.predict("far.csv");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let words = "warning: `width`: 12 of 500 values lie more than 10 standard deviations from the training rows' mean\n\
                 warning: `height`: 1 of 500 values lies more than 10 standard deviations from the training rows' mean\n";
    assert!(ended.stderr.ends_with(words), "{}", ended.stderr);
    assert_eq!(ended.stdout.lines().count(), 501);
    assert!(!model.predict("new.csv").stderr.contains("standard deviations"));
}
