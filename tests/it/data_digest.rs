//! How runs on the same data are recognized: by the data's digest, and by a spec hash that does not depend on
//! where the data are.

use std::{fs, io::Write};

use super::{
    data::npy::npy,
    process::{Folder, Sandbox},
};

const ROWS: &str = "x,y\n1,2\n2,4\n3,6\n4,8\n5,10\n";

/// A project with `data/x.csv`.
fn project(rows: &str) -> Sandbox {
    let place = Sandbox::new(
        "[data]\nbatch_size = 2\n[data.csv]\npath = \"data/x.csv\"\ntarget = \"y\"\n[model]\nloss = \"mse\"\n\
         layers = [{ linear = { out_features = 1 } }]\n[optimizer.sgd]\nlr = 0.1\n[trainer]\nmax_epochs = 1\n",
    );
    fs::create_dir(place.path().join("data")).unwrap();
    fs::write(place.path().join("data/x.csv"), rows).unwrap();
    place
}

/// The hash in the folder's name, and the digest of the data.
fn known_by(run: &Folder) -> [String; 2] {
    let digest = run.summary("data_digest");
    let environment: toml::Table = run.text("environment.toml").parse().unwrap();
    assert_eq!(environment["data"]["digest"].as_str(), Some(digest.as_str()));
    [run.0.to_str().unwrap().rsplit_once('-').unwrap().1.to_owned(), digest]
}

#[test]
fn neither_spelling_nor_place_of_a_path_matters_but_the_rows_do() {
    let (here, there) = (project(ROWS), project(ROWS));
    let absolute = format!("data.csv.path={}", here.path().join("data/x.csv").display());
    let known = known_by(&here.run(&[]).ended_by(0));
    for spelling in ["data.csv.path=./data/x.csv", &absolute, "data.csv.path=data/../data/x.csv"] {
        assert_eq!(known_by(&here.run(&[spelling]).ended_by(0)), known, "{spelling}");
    }
    let moved = there.run(&[]).ended_by(0);
    assert_eq!(known_by(&moved), known);
    // From the spec in the run's folder, where paths are absolute.
    let again = Sandbox::with_spec(&moved.0.join("spec.toml"));
    assert_eq!(known_by(&again.run(&[]).ended_by(0)), known);
    let [hash, digest] = known;
    assert_eq!((hash.len(), digest.len()), (8, 16));
    let [other_hash, other_digest] = known_by(&project(&ROWS.replace("5,10", "5,11")).run(&[]).ended_by(0));
    assert_eq!(other_hash, hash);
    assert_ne!(other_digest, digest);
    // A file with another name makes another spec.
    fs::copy(here.path().join("data/x.csv"), here.path().join("data/z.csv")).unwrap();
    let [other_hash, other_digest] = known_by(&here.run(&["data.csv.path=data/z.csv"]).ended_by(0));
    assert_ne!(other_hash, hash);
    assert_eq!(other_digest, digest);
}

/// What an editor or a spreadsheet does to a file's lines is no change of the data: the run's test rows are still evaluated.
#[test]
fn line_ends_are_no_part_of_the_data() {
    let place = project(ROWS);
    let run = place.run(&["data.split.test=0.2"]).ended_by(0);
    let digest = run.summary("data_digest");
    let folder = run.0.to_str().unwrap();
    for rows in [ROWS.replace('\n', "\r\n"), ROWS.trim_end().to_owned(), format!("\u{feff}{ROWS}")] {
        fs::write(place.path().join("data/x.csv"), &rows).unwrap();
        let evaluated = place.runner(&["evaluate", folder]);
        assert_eq!(evaluated.code, Some(0), "{rows:?} {evaluated:?}");
        assert_eq!(place.run(&["data.split.test=0.2"]).ended_by(0).summary("data_digest"), digest);
    }
    fs::write(place.path().join("data/x.csv"), ROWS.replace("1,2", "1, 3")).unwrap();
    assert_eq!(place.runner(&["evaluate", folder]).code, Some(2));
}

/// The same rows, gzipped, are the same data, and `compare` shows no other difference.
#[test]
fn gzipped_rows_are_the_same_data() {
    let place = project(ROWS);
    let plain = place.run(&[]).ended_by(0);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(ROWS.as_bytes()).unwrap();
    fs::write(place.path().join("data/x.csv.gz"), gzip.finish().unwrap()).unwrap();
    let packed = place.run(&["data.csv.path=data/x.csv.gz"]).ended_by(0);
    assert_eq!(known_by(&packed)[1], known_by(&plain)[1]);
    let [plain, packed] = [plain, packed].map(|run| run.0.to_str().unwrap().to_owned());
    let compared = place.runner(&["compare", "--times", &plain, &packed]).stdout;
    assert!(compared.starts_with("2 runs, comparable"), "{compared}");
    // One setting, whose runs do the same work.
    assert!(compared.contains(" rows/s vs #1"), "{compared}");
    assert!(compared.contains("\n  #1, 2     2 ") && !compared.contains("x.csv.gz"), "{compared}");
    let answer = place.runner(&["compare", &plain, &packed]).stdout;
    assert!(!answer.contains(" path ") && !answer.contains("cannot tell"), "{answer}");
}

#[test]
fn a_digest_is_that_of_the_data_and_not_of_how_they_are_used() {
    let place = project(ROWS);
    let ran = place.run(&["seed=0,1", "data.csv.standardize=true"]);
    assert_eq!(ran.ended.code, Some(0), "{}", ran.ended.stderr);
    let export = place.runner(&["compare", ran.runs.to_str().unwrap(), "--export", "csv"]).stdout;
    let digests: Vec<&str> = {
        let mut lines = export.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let header = lines.next().unwrap();
        let column = header.iter().position(|name| *name == "data_digest").unwrap();
        lines.map(|cells| cells[column]).collect()
    };
    assert_eq!(digests.len(), 2);
    assert!(digests[0].len() == 16 && digests[0] == digests[1], "{digests:?}");

    let numbers: Vec<u8> = (0..40).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let place = Sandbox::new(
        "[data]\nbatch_size = 2\n[data.npy]\nfeatures = \"x.npy\"\nlabels = \"y.npy\"\n[model]\nloss = \"mse\"\n\
         layers = [{ linear = { out_features = 1 } }]\n[optimizer.sgd]\nlr = 0.001\n[trainer]\nmax_epochs = 1\n",
    );
    fs::write(place.path().join("x.npy"), npy("<f4", "(20, 2)", &numbers)).unwrap();
    fs::write(place.path().join("y.npy"), npy("<f4", "(20,)", &numbers[..80])).unwrap();
    let [resident, streamed] = ["resident", "streamed"]
        .map(|kind| place.run(&[&format!("data.placement={kind}")]).ended_by(0).summary("data_digest"));
    assert_eq!(resident, streamed);
}

/// A large array is known by samples; what was recorded says so, and `compare` does.
#[test]
fn a_digest_of_samples_is_said_to_be_one() {
    let place = Sandbox::new(
        "[data]\nbatch_size = 1\nplacement = \"streamed\"\n[data.npy]\nfeatures = \"x.npy\"\nlabels = \"y.npy\"\n\
         [model]\nloss = \"mse\"\nlayers = [{ linear = { out_features = 1 } }]\n[optimizer.sgd]\nlr = 0.001\n[trainer]\n\
         max_steps = 1\nvalidate_every_epochs = 0\n",
    );
    // 68 MiB, of which the disk holds the header and the last number.
    let header = npy("<f4", "(4, 4456448)", &[]);
    let file = fs::File::create(place.path().join("x.npy")).unwrap();
    (&file).write_all(&header).unwrap();
    file.set_len(header.len() as u64 + (68 << 20)).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_900_000_000))
        .unwrap();
    fs::write(place.path().join("y.npy"), npy("<f4", "(4,)", &[0; 16])).unwrap();
    let [large, again] = [1, 2].map(|seed| place.run(&[&format!("seed={seed}")]).ended_by(0));
    let data = |run: &Folder| run.text("environment.toml").parse::<toml::Table>().unwrap()["data"].clone();
    let facts = data(&large);
    assert_eq!(facts["sampled"].as_bool(), Some(true));
    assert_eq!(facts["modified"].as_str(), Some("2030-03-17T17:46:40.000Z"));
    let [large, again] = [large, again].map(|run| run.0.to_str().unwrap().to_owned());
    let words = "the data of all runs are compared by samples: the length of large files and 64 blocks";
    assert!(place.runner(&["compare", &large, &again]).stdout.starts_with(words));
    let times = place.runner(&["compare", "--times", &large, &again]).stdout;
    assert!(times.lines().next().unwrap().ends_with(words), "{times}");
    // Small files count by all their bytes.
    let place = project(ROWS);
    let facts = data(&place.run(&[]).ended_by(0));
    assert_eq!(facts["sampled"].as_bool(), Some(false));
}

/// Synthetic rows are drawn anew for each seed.
#[test]
fn synthetic_rows_are_those_of_their_seed() {
    let place = Sandbox::new(super::moved::SPEC);
    let [first, same, other] = ["seed=0", "seed=0", "seed=1"]
        .map(|seed| place.run(&[seed, "devices.num_gpus=0"]).ended_by(0).summary("data_digest"));
    assert_eq!(first, same);
    assert_ne!(first, other);
}
