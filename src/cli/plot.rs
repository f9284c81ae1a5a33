//! `runner plot RUN ...`: draws curves of runs in the terminal.

use super::{args::PlotOptions, runs::refuse, terminal::terminal_width};
use crate::{
    report::{self, PlotRequest, Style},
    run::{Exit, print_coloured, warn},
};

/// Runs the command.
pub fn plot(options: &PlotOptions) -> Result<Exit, Exit> {
    let style = Style {
        width: usize::from(options.width.unwrap_or_else(terminal_width)),
        height: usize::from(options.height),
        color: anstream::stdout().current_choice() != anstream::ColorChoice::Never,
    };
    let request = PlotRequest { paths: &options.paths, metric: options.metric.as_deref(), style };
    let (text, foreign) = report::plot(&request).map_err(refuse)?;
    foreign.iter().for_each(|why| warn(format!("left out: {why}")));
    Ok(print_coloured(&text))
}
