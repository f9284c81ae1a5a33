//! `runner plot RUN ...`: draws curves of runs in the terminal.

use super::{args::PlotOptions, terminal::terminal_width};
use crate::{
    report::{self, PlotRequest, Style},
    run::{Exit, print_coloured, print_error},
};

/// Runs the command.
pub fn plot(options: &PlotOptions) -> Exit {
    let style = Style {
        width: usize::from(options.width.unwrap_or_else(terminal_width)),
        height: usize::from(options.height),
        color: anstream::stdout().current_choice() != anstream::ColorChoice::Never,
        linear: options.linear,
    };
    match report::plot(&PlotRequest { paths: &options.paths, metric: &options.metric, style }) {
        Ok(text) => print_coloured(&text),
        Err(e) => {
            print_error(&e, e.hint());
            Exit::Refused
        }
    }
}
