//! Tests of the rungs of successive halving.

use super::*;

const HALVING: Halving = Halving { min_epochs: 1, factor: 3 };

/// The rungs of a sweep of eight trials, the third of which has one epoch.
fn rungs(sweep: &tempfile::TempDir) -> Rungs {
    std::fs::write(sweep.path().join(SWEEP_FILE), "").unwrap();
    let claims = Claims::new(sweep.path(), true, || false).unwrap().unwrap();
    assert!(claims.go_on().unwrap());
    let folder = RunDir::existing(sweep.path().to_owned());
    let lengths = vec![9, 9, 1, 9, 9, 9, 9, 9];
    Rungs::new((HALVING, Monitor::LOSS), (lengths, true), &folder, (Arc::new(claims), StopFlag::default()))
}

fn stopped(best: usize, count: usize) -> Option<(Status, String)> {
    Some((Status::Stopped, format!("not among the best {best} of {count} after 1 epoch")))
}

#[test]
fn trials_are_judged_in_one_order() {
    let sweep = tempfile::tempdir().unwrap();
    let [own, other] = [rungs(&sweep), rungs(&sweep)];
    assert_eq!(own.judge(0, 2, Some(0.5)), None, "there is no rung");
    // The first has nobody to compare with, and the next comes too early.
    let waits = Some((Status::Waiting, "for the trials before it at its rung".to_owned()));
    assert_eq!(own.judge(1, 1, Some(0.6)), waits);
    assert_eq!((own.take_due(), own.has_waiting()), (None, true));
    assert_eq!([own.awaited(&[5, 0, 1]), own.awaited(&[5, 1]), other.awaited(&[0])], [Some(1), None, None]);
    assert_eq!(other.judge(0, 1, Some(0.5)), None);
    assert_eq!((own.take_due(), own.has_waiting()), (Some(1), false));
    assert_eq!(own.judge(1, 1, Some(0.6)), stopped(1, 2));
    let diverged = (Status::Stopped, "no finite validation loss after 1 epoch".to_owned());
    assert_eq!(own.judge(3, 1, Some(f64::NAN)), Some(diverged));
    // One ends before its rung, one is only as good as the best.
    other.ended(4).unwrap();
    assert_eq!(own.judge(5, 1, Some(0.4)), None);
    assert_eq!(other.judge(6, 1, Some(0.4)), stopped(1, 5));
    assert_eq!(other.judge(7, 1, Some(0.51)), stopped(2, 6));
    assert_eq!(own.judge(5, 3, Some(0.1)), waits, "the first has not come to its second rung");
    other.ended(0).unwrap();
    assert_eq!(own.judge(5, 3, Some(0.1)), None);
    let text = std::fs::read_to_string(sweep.path().join(FILE)).unwrap();
    let rows = "1,0,0.5,true\n1,1,0.6,false\n1,3,NaN,false\n1,4,,false\n1,5,0.4,true\n1,6,0.4,false\n\
                1,7,0.51,false\n3,0,,false\n3,5,0.1,true\n";
    assert_eq!(text, format!("{HEAD}{rows}"));
    // What was judged stays, and one that failed is judged when it comes.
    drop((own, other));
    let again = rungs(&sweep);
    assert_eq!([again.judge(5, 1, Some(9.0)), again.judge(6, 1, Some(0.0))], [None, stopped(1, 5)]);
    assert_eq!(again.judge(4, 1, Some(0.2)), None);
}

/// Trials after a stopped one are judged although its row is gone, and lines that could not be read stay.
#[test]
fn lost_rows_hold_up_no_trial() {
    let sweep = tempfile::tempdir().unwrap();
    let first = rungs(&sweep);
    assert_eq!(first.judge(0, 1, Some(0.5)), None);
    assert_eq!(first.judge(1, 1, Some(0.6)), stopped(1, 2));
    drop(first);
    std::fs::remove_file(sweep.path().join(FILE)).unwrap();
    let again = rungs(&sweep);
    (0..2).for_each(|trial| again.ended(trial).unwrap());
    assert_eq!(again.judge(3, 1, Some(0.4)), None);
    let text = format!("{HEAD}1,0,,false\n1,1,,false\n1,3,0.4,true\n");
    assert_eq!(std::fs::read_to_string(sweep.path().join(FILE)).unwrap(), text);
    let mut unread = JointLines::new(sweep.path().join(FILE));
    assert!(
        unread.append("1,4,0.1,true\n").unwrap_err().to_string().contains("lines that could not be read")
    );
    assert_eq!(std::fs::read_to_string(sweep.path().join(FILE)).unwrap(), text);
}

#[test]
fn work_is_counted_in_trials() {
    assert_eq!(work(None, 27, 9), 27.0);
    // 27 x 1 + 9 x 2 + 3 x 6 epochs.
    assert_eq!(work(Some(HALVING), 27, 9), 63.0 / 9.0);
    assert_eq!(HALVING.rungs(9).collect::<Vec<_>>(), [1, 3]);
}
