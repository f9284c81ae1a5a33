//! `runner compare PATH ...`: runs side by side.

use super::{args::CompareOptions, run::terminal_width};
use crate::{
    report,
    run::{Exit, print, print_error, print_stderr},
};

/// Runs the command.
pub fn compare(options: &CompareOptions) -> Exit {
    match report::compare(&options.paths) {
        Ok(comparison) => {
            for reason in comparison.damaged() {
                print_stderr(&format!("warning: left out: {reason}\n"));
            }
            let text = match options.export {
                Some(format) => {
                    // The comparison on the screen says so in its first line.
                    if let Some(warning) = comparison.warning() {
                        print_stderr(&format!("warning: {warning}\n"));
                    }
                    if let Some(words) = comparison.builds() {
                        print_stderr(&format!("warning: {words}\n"));
                    }
                    comparison.export(format.into())
                }
                None if options.quiet => format!("{}\n", comparison.comparability()),
                None => comparison.table(terminal_width()),
            };
            print(&text)
        }
        Err(e) => {
            print_error(&e, e.hint());
            Exit::Refused
        }
    }
}
