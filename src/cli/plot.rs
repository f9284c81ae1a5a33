//! `runner plot RUN ...`: draws curves of runs in the terminal.

use super::{args::PlotOptions, runs::refuse, terminal::terminal_width};
use crate::{
    report::{self, PlotRequest, Style},
    run::{Exit, print_coloured},
};

/// Runs the command.
pub fn plot(options: &PlotOptions) -> Result<Exit, Exit> {
    let style = Style {
        width: usize::from(options.width.unwrap_or_else(terminal_width)),
        height: usize::from(options.height),
        color: anstream::stdout().current_choice() != anstream::ColorChoice::Never,
    };
    let request = PlotRequest { paths: &options.paths, metric: options.metric.as_deref(), style };
    report::plot(&request).map(|text| print_coloured(&text)).map_err(refuse)
}
