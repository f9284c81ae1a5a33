//! `runner export`: a run's model, or a run, for other programs.

use std::path::Path;

use super::{args::ExportOptions, predict, runs};
use crate::{
    predict::{PredictError, is_standard_output, quoted, write_onnx},
    report::{ReportError, write_mlflow},
    run::{Exit, print, print_error, print_stderr},
    units,
};

/// Runs the command.
pub fn export(options: &ExportOptions) -> Exit {
    match (&options.onnx, &options.mlflow) {
        (Some(file), _) => onnx(options, file).unwrap_or_else(|e| predict::report(&e)),
        (None, Some(store)) => mlflow(&options.model.run, store),
        (None, None) => Exit::Refused,
    }
}

fn onnx(options: &ExportOptions, file: &Path) -> Result<Exit, PredictError> {
    let is_printed = is_standard_output(file);
    let trained = predict::open(&options.model)?;
    let [inputs, outputs] = write_onnx(&trained, file)?;
    print_stderr(&format!("inputs: {}\noutputs: {}\n", quoted(&inputs), quoted(&outputs)));
    let name = format!("{}\n", file.display());
    if is_printed {
        print_stderr(&name);
        return Ok(Exit::Done);
    }
    Ok(print(&name))
}

fn mlflow(run: &str, store: &Path) -> Exit {
    match write_mlflow(run, store) {
        Ok(count) => {
            print_stderr(&format!("{} written\n", units::counted(count as u64, "run")));
            print(&format!("{}\n", store.display()))
        }
        Err(e @ ReportError::Write { .. }) => {
            print_error(e, None);
            Exit::Failed
        }
        Err(e) => runs::refuse(&e),
    }
}
