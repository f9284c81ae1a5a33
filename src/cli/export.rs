//! `runner export`: writes a run's model, a run, or its metrics for other programs.

use std::path::Path;

use super::{args::ExportOptions, predict, runs};
use crate::{
    predict::{PredictError, is_standard_output, quoted, write_onnx},
    report::{ReportError, write_metrics, write_mlflow},
    run::{Exit, print, print_error, print_stderr},
    units,
};

/// Runs the command.
pub fn export(options: &ExportOptions) -> Exit {
    match (&options.onnx, &options.mlflow, &options.parquet) {
        (Some(file), _, _) => onnx(options, file).unwrap_or_else(|e| predict::report(&e)),
        (_, Some(store), _) => mlflow(&options.model.run, store, options.quiet),
        (_, _, Some(file)) => parquet(&options.model.run, file),
        (None, None, None) => Exit::Refused,
    }
}

fn onnx(options: &ExportOptions, file: &Path) -> Result<Exit, PredictError> {
    let is_printed = is_standard_output(file);
    let trained = predict::open(&options.model, options.quiet)?;
    let [inputs, outputs] = write_onnx(&trained, file)?;
    let told = |text: &str| {
        if !options.quiet {
            print_stderr(text)
        }
    };
    told(&format!("inputs: {}\noutputs: {}\n", quoted(&inputs), quoted(&outputs)));
    let name = format!("{}\n", file.display());
    if is_printed {
        told(&name);
        return Ok(Exit::Done);
    }
    Ok(print(&name))
}

fn parquet(run: &str, file: &Path) -> Exit {
    match write_metrics(run, file) {
        Ok(()) => print(&format!("{}\n", file.display())),
        Err(e) => failed(&e),
    }
}

fn mlflow(run: &str, store: &Path, is_quiet: bool) -> Exit {
    match write_mlflow(run, store) {
        Ok(count) => {
            if !is_quiet {
                print_stderr(&format!("{} written\n", units::counted(count as u64, "run")));
            }
            print(&format!("{}\n", store.display()))
        }
        Err(e) => failed(&e),
    }
}

fn failed(error: &ReportError) -> Exit {
    if let ReportError::Write { .. } | ReportError::Parquet(_) = error {
        print_error(error, None);
        return Exit::Failed;
    }
    runs::refuse(error)
}
