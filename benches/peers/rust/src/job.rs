//! A job as passed by `benches/peers/contenders.py`, which takes it from `workloads.py`.

use std::path::PathBuf;
use std::str::FromStr;

use crate::Outcome;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    Mse,
    CrossEntropy,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimizer {
    Sgd,
    /// With betas of 0.9 and 0.999, epsilon 1e-8.
    Adam,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub name: String,
    /// Widths of the layers, beginning with the input; ReLU between them.
    pub widths: Vec<usize>,
    pub loss: Loss,
    pub optimizer: Optimizer,
    pub lr: f64,
    pub batch: usize,
    /// Whether it validates on all validation rows after every epoch.
    pub validates: bool,
    pub epochs: usize,
    /// Epochs of an untimed fit before the timed one.
    pub warm_up: usize,
    pub threads: usize,
    /// The folder of the .npy files.
    pub data: PathBuf,
    /// Where every step's loss is written, as CSV.
    pub losses: PathBuf,
}

impl Job {
    /// `NAME --widths 784,256,10 --loss mse|cross_entropy --optimizer sgd|adam --lr X --batch N --validates 0|1 --epochs N
    /// --warm-up N --threads N --data FOLDER --losses FILE`
    pub fn read(words: impl Iterator<Item = String>) -> Outcome<Self> {
        let words: Vec<String> = words.collect();
        let (name, options) = words.split_first().ok_or("say which job; benches/peers/run does")?;
        let mut options: Vec<(&str, &str)> = options
            .chunks(2)
            .map(|pair| match pair {
                [key, value] => Ok((key.as_str(), value.as_str())),
                _ => Err(format!("{} has no value", pair[0])),
            })
            .collect::<Result<_, _>>()?;
        let mut take = |key: &str| -> Outcome<String> {
            let place = options.iter().position(|(k, _)| *k == key).ok_or(format!("{key} is missing"))?;
            Ok(options.swap_remove(place).1.to_string())
        };
        let job = Self {
            name: name.clone(),
            widths: take("--widths")?.split(',').map(|w| parsed("--widths", w)).collect::<Outcome<_>>()?,
            loss: match take("--loss")?.as_str() {
                "mse" => Loss::Mse,
                "cross_entropy" => Loss::CrossEntropy,
                other => return Err(format!("no loss is called `{other}`").into()),
            },
            optimizer: match take("--optimizer")?.as_str() {
                "sgd" => Optimizer::Sgd,
                "adam" => Optimizer::Adam,
                other => return Err(format!("no optimizer is called `{other}`").into()),
            },
            lr: parsed("--lr", &take("--lr")?)?,
            batch: at_least_one("--batch", &take("--batch")?)?,
            validates: parsed::<u8>("--validates", &take("--validates")?)? != 0,
            epochs: at_least_one("--epochs", &take("--epochs")?)?,
            warm_up: parsed("--warm-up", &take("--warm-up")?)?,
            threads: at_least_one("--threads", &take("--threads")?)?,
            data: take("--data")?.into(),
            losses: take("--losses")?.into(),
        };
        if let Some((key, _)) = options.first() {
            return Err(format!("{key} is not known").into());
        }
        if job.widths.len() < 2 || job.widths.contains(&0) {
            return Err("--widths names two widths at least, each of one at least".into());
        }
        Ok(job)
    }

    pub fn inputs(&self) -> usize {
        self.widths[0]
    }

    pub fn outputs(&self) -> usize {
        self.widths[self.widths.len() - 1]
    }
}

fn parsed<T: FromStr>(key: &str, word: &str) -> Outcome<T> {
    word.parse().map_err(|_| format!("{key} cannot be `{word}`").into())
}

fn at_least_one(key: &str, word: &str) -> Outcome<usize> {
    match parsed(key, word)? {
        0 => Err(format!("{key} cannot be `0`").into()),
        number => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "W5 --widths 64,32,10 --loss cross_entropy --optimizer adam --lr 0.001 --batch 32 --validates 0 \
                         --epochs 100 --warm-up 1 --threads 2 --data there --losses l.csv";

    fn read(words: &str) -> Outcome<Job> {
        Job::read(words.split_whitespace().map(str::to_string))
    }

    #[test]
    fn a_job_is_read() {
        let job = read(WORDS).unwrap();
        assert_eq!((job.inputs(), job.outputs(), job.widths.len()), (64, 10, 3));
        assert_eq!((job.loss, job.optimizer, job.lr), (Loss::CrossEntropy, Optimizer::Adam, 1e-3));
        assert_eq!((job.batch, job.epochs, job.warm_up, job.threads, job.validates), (32, 100, 1, 2, false));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (from, to, told) in [
            ("--lr 0.001", "", "--lr is missing"),
            ("--lr 0.001", "--lr fast", "--lr cannot be `fast`"),
            ("--batch 32", "--batch 0", "--batch cannot be `0`"),
            ("adam", "lion", "no optimizer is called `lion`"),
            ("64,32,10", "64", "--widths names two widths at least, each of one at least"),
            ("--data there", "--data there --colour red", "--colour is not known"),
            ("--losses l.csv", "--losses", "--losses has no value"),
        ] {
            assert_eq!(read(&WORDS.replace(from, to)).unwrap_err().to_string(), told);
        }
    }
}
