//! `runner export`: writes a run's model, a run, or its metrics for other programs.

use std::path::Path;

use super::{
    args::{CategoryRule, ExportOptions},
    predict, runs,
};
use crate::{
    predict::{Models, PredictError, is_standard_output, quoted, write_onnx},
    report::{ReportError, write_metrics, write_mlflow},
    run::{Exit, print, print_stderr},
    units,
};

/// Runs the command.
pub fn export(options: &ExportOptions) -> Result<Exit, Exit> {
    match (&options.onnx, &options.mlflow, &options.parquet) {
        (Some(file), _, _) => onnx(options, file).map_err(predict::report),
        (_, Some(store), _) => mlflow(&options.model.run, store, options.quiet),
        (_, _, Some(file)) => parquet(&options.model.run, file),
        (None, None, None) => Err(Exit::Refused),
    }
}

fn onnx(options: &ExportOptions, file: &Path) -> Result<Exit, PredictError> {
    let is_printed = is_standard_output(file);
    let predictor = predict::open(&options.model, Models::One, options.quiet)?;
    let [inputs, outputs] =
        write_onnx(predictor.first(), file, options.unknown_category == CategoryRule::Ignore)?;
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

fn parquet(run: &str, file: &Path) -> Result<Exit, Exit> {
    write_metrics(run, file).map_err(failed)?;
    Ok(print(&format!("{}\n", file.display())))
}

fn mlflow(run: &str, store: &Path, is_quiet: bool) -> Result<Exit, Exit> {
    let count = write_mlflow(run, store).map_err(failed)?;
    if !is_quiet {
        print_stderr(&format!("{} written\n", units::counted(count as u64, "run")));
    }
    Ok(print(&format!("{}\n", store.display())))
}

fn failed(error: ReportError) -> Exit {
    match error {
        ReportError::Write { .. } | ReportError::Parquet(_) => Exit::failed(error, None),
        _ => runs::refuse(error),
    }
}
