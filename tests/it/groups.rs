//! `group` and `groups`: rows that belong together stay in one part.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
};

use super::{
    data::npy::npy,
    process::{Ended, Folder, Sandbox},
};

const SPEC: &str = r#"
[data.csv]
path = "visits.csv"
target = "ill"
group = "patient"
[model]
layers = [{ linear = { out_features = 2 } }]
loss = "cross_entropy"
[optimizer.adam]
lr = 0.01
[trainer]
max_epochs = 2
"#;

/// The patient of each of 190 visits: 40 of them, with 1 to 9 visits that do not follow each other.
fn patients() -> Vec<u32> {
    let mut visits: Vec<u32> = (0..40).flat_map(|patient| vec![patient; 1 + patient as usize % 9]).collect();
    let count = visits.len();
    (0..count).for_each(|place| visits.swap(place, place * 7 % count));
    visits
}

fn row(number: usize, patient: u32) -> [f32; 3] {
    [number as f32 * 0.5 % 7.0, patient as f32 % 5.0, (number as u32 * 3 + patient) as f32 % 2.0]
}

fn sandbox() -> Sandbox {
    let place = Sandbox::new(SPEC);
    let mut text = "patient,age,dose,ill\n".to_owned();
    for (number, patient) in patients().into_iter().enumerate() {
        let [age, dose, ill] = row(number, patient);
        writeln!(text, "p{patient},{age},{dose},{ill}").unwrap();
    }
    fs::write(place.path().join("visits.csv"), text).unwrap();
    place
}

/// The row numbers of each part, by `rows.csv`; no patient is in two of them.
fn parts(run: &Folder) -> BTreeMap<String, Vec<usize>> {
    let patients = patients();
    let mut parts: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let table = run.table("rows.csv");
    for (split, row) in table.column("split").into_iter().zip(table.column("row")) {
        parts.entry(split.to_owned()).or_default().push(row.parse().unwrap());
    }
    let known: BTreeSet<usize> = parts.values().flatten().copied().collect();
    parts.insert("train".to_owned(), (0..patients.len()).filter(|row| !known.contains(row)).collect());
    let groups = |rows: &Vec<usize>| rows.iter().map(|&row| patients[row]).collect::<BTreeSet<_>>();
    assert_eq!(parts.values().map(|rows| groups(rows).len()).sum::<usize>(), 40);
    parts
}

#[test]
fn visits_of_a_patient_are_in_one_part() {
    let place = sandbox();
    let split = "data.split={ validation = 0.2, test = 0.1 }";
    let checked = place.runner(&["check", "spec.toml", split]);
    let start = checked.stdout.find("  data ").unwrap();
    let end = checked.stdout.find("  model ").unwrap();
    insta::assert_snapshot!(&checked.stdout[start..end], @r#"
    data       csv: 2 features, 2 classes
               133 rows to train on, 38 to validate on; 2.0 KiB resident on the device
               numbers: `age`, `dose`
               rows of each class: `0` 87, `1` 84
               19 rows set aside for a test
               40 groups of `patient`: 28 to train on, 7 to validate on, 5 set aside for a test
    "#);
    let run = place.run(&[split, "-q"]).ended_by(0);
    let parts = parts(&run);
    let rows = ["train", "validation", "test"].map(|part| parts[part].len());
    assert_eq!(rows, [133, 38, 19]);
    let environment: toml::Table = run.text("environment.toml").parse().unwrap();
    let recorded = ["rows_to_train_on", "rows_to_validate_on"];
    assert_eq!(recorded.map(|key| environment["data"][key].as_integer()), [Some(133), Some(38)]);
    // Metrics of the rows of the test, and a warning on those of the run.
    let folder = run.0.display().to_string();
    let own = place.runner(&["evaluate", &folder, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&own.stdout).unwrap();
    assert_eq!(json["rows"].as_u64(), Some(rows[2] as u64), "{own:?}");
    assert!(!own.stderr.contains("warning"), "{own:?}");
    let Ended { stderr, .. } = place.runner(&["evaluate", &folder, "visits.csv"]);
    let words = format!(
        "these rows include those that the run was trained on: 133 of {} (the others: 38 validation, {} test)\n",
        133 + 38 + rows[2],
        rows[2]
    );
    assert!(stderr.contains(&words), "{stderr}");
    assert!(!stderr.contains("patient"), "a column that the model knows: {stderr}");
}

/// Each patient validates in one fold.
#[test]
fn folds_have_whole_patients() {
    let place = sandbox();
    let mut seen = Vec::new();
    for fold in 0..3 {
        let run = place.run(&["data.folds=3", &format!("data.fold={fold}"), "-q"]).ended_by(0);
        let rows = parts(&run)["validation"].clone();
        assert!(rows.len().abs_diff(patients().len() / 3) <= 1, "{}", rows.len());
        seen.extend(rows);
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..patients().len()));
}

/// Arrays are divided as the same rows of a table; their groups are known by the digest.
#[test]
fn arrays_have_a_file_of_groups() {
    let place = sandbox();
    let patients = patients();
    let rows: Vec<[f32; 3]> = patients.iter().enumerate().map(|(number, &own)| row(number, own)).collect();
    let floats =
        |values: &mut dyn Iterator<Item = f32>| values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
    let x = floats(&mut rows.iter().flat_map(|row| [row[0], row[1]]));
    let y = floats(&mut rows.iter().map(|row| row[2]));
    let count = patients.len();
    let write = |name: &str, kind: &str, shape: &str, bytes: &[u8]| {
        fs::write(place.path().join(name), npy(kind, shape, bytes)).unwrap();
    };
    write("x.npy", "<f4", &format!("({count}, 2)"), &x);
    write("y.npy", "<f4", &format!("({count},)"), &y);
    let groups =
        |own: &[u32]| own.iter().flat_map(|own| (i64::from(*own) - 7).to_le_bytes()).collect::<Vec<_>>();
    write("groups.npy", "<i8", &format!("({count},)"), &groups(&patients));
    let table = parts(&place.run(&["-q"]).ended_by(0));
    let npy = SPEC.replace(
        "[data.csv]\npath = \"visits.csv\"\ntarget = \"ill\"\ngroup = \"patient\"",
        "[data.npy]\nfeatures = \"x.npy\"\nlabels = \"y.npy\"\ngroups = \"groups.npy\"",
    );
    fs::write(place.path().join("spec.toml"), npy).unwrap();
    let checked = place.runner(&["check", "spec.toml"]);
    assert!(checked.stdout.contains(" 40 groups of `groups.npy`: "), "{checked:?}");
    let run = place.run(&["-q", "checkpoint={}"]).ended_by(0);
    assert_eq!(parts(&run), table);
    let folder = run.0.display().to_string();
    let Ended { stderr, .. } = place.runner(&["evaluate", &folder, "x.npy", "--labels", "y.npy"]);
    let words =
        "these rows include those that the run was trained on: 150 of 190 (the others: 40 validation)\n";
    assert!(stderr.contains(words), "{stderr}");
    let words =
        "warning: without groups such as those of `groups.npy`, intervals take each row as one of its own\n";
    assert!(stderr.contains(words), "{stderr}");
    // The run goes on where its groups are at another place.
    fs::rename(place.path().join("groups.npy"), place.path().join("moved.npy")).unwrap();
    let longer = ["trainer.max_epochs=3", "data.npy.groups=moved.npy", "-q"];
    let ended = place.runner(&[&["run", "--resume", &folder], &longer[..]].concat());
    assert_eq!((ended.code, run.summary("epochs").as_str()), (Some(0), "3"), "{ended:?}");

    let refused = |bytes: &[u8], rows: usize| {
        write("groups.npy", "<i8", &format!("({rows},)"), bytes);
        place.runner(&["check", "spec.toml"]).stderr
    };
    let short = refused(&groups(&patients[1..]), count - 1);
    assert!(short.contains(&format!("{} groups, but `", count - 1)), "{short}");
    let halves: Vec<u8> = (0..count).flat_map(|row| (row as f64 / 2.0).to_le_bytes()).collect();
    write("groups.npy", "<f8", &format!("({count},)"), &halves);
    let Ended { stderr, .. } = place.runner(&["check", "spec.toml"]);
    assert!(
        stderr.contains("the group of row 1 (counted from 0) is 0.5: expected an integer up to 2^53"),
        "{stderr}"
    );
}

#[test]
fn groups_that_cannot_be() {
    let place = sandbox();
    let refused = |words: &[&str]| {
        let ended = place.runner(&[&["check", "spec.toml"], words].concat()).ended_by(2);
        ended.stderr.replace(&format!("{}/", place.path().display()), "")
    };
    let all = [
        refused(&["data.csv.group=ill"]),
        refused(&["data.csv.group=patent"]),
        refused(&["data.split.stratify=true"]),
        refused(&["data.csv.validation_path=visits.csv"]),
        refused(&["data.folds=41", "data.fold=0"]),
        refused(&["data.csv.group=dose", "data.csv.ignore=[\"patient\"]", "data.csv.missing_values=[\"4\"]"]),
    ];
    insta::assert_snapshot!(all.join("\n"), @r#"
    error: `data.csv.group`: the column `ill` is already in `target`
     --> argument:1:16
      |
    1 | data.csv.group=ill
      |                ^^^
      |
      = hint: a column has one use: name it once

    error: no column `patent` in `visits.csv`
     --> argument:1:16
      |
    1 | data.csv.group=patent
      |                ^^^^^^
      |
      = hint: did you mean `patient`?

    error: `data.split`: `data.csv.group` keeps rows together: classes cannot have their share of every part, too
     --> argument:1:6
      |
    1 | data.split.stratify=true
      |      ^^^^^
      |
      = hint: leave out `stratify`

    error: `data.csv.validation_path` and `data.csv.group` exclude each other
     --> argument:1:10
      |
    1 | data.csv.validation_path=visits.csv
      |          ^^^^^^^^^^^^^^^
      |
     ::: spec.toml:5:1
      |
    5 | group = "patient"
      | ----- the other is here
      |
      = hint: remove one of them; on the command line: `~data.csv.group`

    error: 41 folds of 40 groups: each needs one
     --> argument 1:1:12
      |
    1 | data.folds=41
      |            ^^
      |
      = hint: use fewer folds

    error: missing cell in the group column `dose`
     --> visits.csv:3:8
      |
    3 | p4,0.5,4,1
      |        ^ the first of 36 such cells in column `dose`
      |
      = hint: `data.csv.missing = "mean"` and `"drop"` leave such rows out; a group is never filled

    error: missing cell in column `age`
      --> visits.csv:10:5
       |
    10 | p10,4,0,0
       |     ^ the first of 13 such cells in column `age`
       |
       = hint: `data.csv.missing = "mean"` fills such cells, `"drop"` leaves their rows out

    error: 2 problems in spec.toml
    "#);
}

/// A row without a group is left out where rows without a target are.
#[test]
fn rows_without_a_group() {
    let place = sandbox();
    let text = fs::read_to_string(place.path().join("visits.csv")).unwrap();
    let lines = text.lines().enumerate();
    let cut =
        lines.map(
            |(n, line)| {
                if n % 50 == 1 { line[line.find(',').unwrap()..].to_owned() } else { line.to_owned() }
            },
        );
    fs::write(place.path().join("visits.csv"), cut.collect::<Vec<_>>().join("\n") + "\n").unwrap();
    for missing in ["mean", "drop"] {
        let checked =
            place.runner(&["check", "spec.toml", &format!("data.csv.missing={missing}")]).ended_by(0);
        let why = if missing == "mean" { "without a target or a group" } else { "with missing cells" };
        assert!(
            checked.stdout.contains(&format!("             dropped 4 rows {why}\n")),
            "{}",
            checked.stdout
        );
    }
}

/// A draft names columns that may be groups.
#[test]
fn a_draft_tells_of_groups() {
    let place = sandbox();
    let text = fs::read_to_string(place.path().join("visits.csv")).unwrap();
    let numbered = text.replace("\np", "\n");
    let rows = text.split_once('\n').unwrap().1;
    // Twice the rows are enough to take patients for categories.
    let twice = format!("{text}{rows}");
    for (name, text) in [("patient_id", &numbered), ("Patient", &numbered), ("Patient No", &twice)] {
        fs::write(place.path().join("visits.csv"), text.replacen("patient", name, 1)).unwrap();
        let ended = place.runner(&["new", "csv", "-", "--from", "visits.csv", "--target", "ill"]);
        let words = format!(
            "`{name}` may say which rows belong together; if it does, `group` in place of a feature keeps them in one part\n"
        );
        assert_eq!(ended.stderr.lines().next(), Some(words.trim_end()), "{ended:?}");
        assert!(ended.stdout.contains(&format!("# {words}")), "{ended:?}");
    }
    // Numbers of visits by a patient are no group.
    fs::write(place.path().join("visits.csv"), numbered.replacen("patient", "patient_visits", 1)).unwrap();
    let ended = place.runner(&["new", "csv", "-", "--from", "visits.csv", "--target", "ill"]);
    assert!(!ended.stderr.contains("patient_visits"), "{ended:?}");
}
