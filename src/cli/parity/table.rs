//! What parity prints.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use super::rule::{Curve, PARAMETERS, Rule};
use crate::units;

/// The page, and whether every count of devices did the same mathematics. The first curve is what the others are held
/// against.
pub fn page(name: &str, curves: &[Curve], rule: Rule, of_sweep: bool) -> (String, bool) {
    let Some((reference, others)) = curves.split_first() else { return (String::new(), false) };
    let steps = units::counted(reference.losses.len() as u64, "step");
    let sweep = if of_sweep { ", by the first trial of the sweep" } else { "" };
    let mut text = format!("{name}: {steps} of {}{sweep}\n\n", reference.rows);
    let mut table = Table::new();
    let header = ["devices", "last loss", "difference", "at step", "of the limit", "parameters", "verdict"];
    table.load_style(presets::NOTHING).set_header(header);
    let last = |curve: &Curve| curve.losses.last().map_or(String::new(), |loss| units::number(*loss));
    let nothing = String::new;
    table.add_row([
        reference.devices.clone(),
        last(reference),
        nothing(),
        nothing(),
        nothing(),
        nothing(),
        "reference".into(),
    ]);
    let mut failing = 0;
    for curve in others {
        let difference = rule.difference(curve, reference);
        failing += u64::from(!difference.holds());
        let bits = curve.losses == reference.losses && curve.parameters == reference.parameters;
        let verdict = match difference.holds() {
            true if bits => "the same bits",
            true => "the same",
            false => "**differs**",
        };
        table.add_row([
            curve.devices.clone(),
            last(curve),
            units::number(difference.loss),
            units::count(difference.step as u64),
            units::number(difference.of_limit),
            units::number(difference.parameters),
            verdict.to_owned(),
        ]);
    }
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if place == 0 { 2 } else { 0 }, 2));
        if (1..6).contains(&place) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    text.extend(table.lines().map(|line| format!("{}\n", line.trim_end())));
    let targets = match rule.target_square {
        0.0 => String::new(),
        square => format!(" + 1e-9 times {}, the mean square of the targets", units::number(square)),
    };
    let reference = &reference.devices;
    // A String takes every write.
    let _ = writeln!(
        text,
        "\n  shown is the step whose loss comes nearest to the limit, or goes furthest beyond it:"
    );
    let _ = writeln!(text, "  a loss may differ from that of {reference} by 1e-5 of it{targets},");
    let _ = writeln!(
        text,
        "  the parameters after the last step, as one vector, by {PARAMETERS:e} of its length"
    );
    let counts = others.len() as u64;
    let verdict = match failing {
        0 if counts == 1 => "the other count of devices does the same mathematics".to_owned(),
        0 => format!("all {counts} other counts of devices do the same mathematics"),
        n => format!("{n} of {} do not do the same mathematics", units::counted(counts, "count")),
    };
    let _ = writeln!(text, "  {verdict}");
    (text, failing == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(devices: &str, losses: &[f64], parameters: &[f32]) -> Curve {
        let (losses, parameters) = (losses.to_vec(), parameters.to_vec());
        Curve { devices: devices.into(), rows: "32 rows".into(), losses, parameters }
    }

    #[test]
    fn a_count_that_differs_is_named() {
        let cpu = curve("cpu", &[2.0, 1.0], &[1.0, 1.0]);
        let same = Curve { devices: "virtual:0".into(), ..cpu.clone() };
        let near = curve("virtual:0, virtual:1", &[2.0, 1.000001], &[1.0, 1.00001]);
        let far = curve("virtual:0, virtual:1, virtual:2", &[2.0, 1.5], &[1.0, 2.0]);
        let rule = Rule { target_square: 4.0 };
        let (text, holds) = page("x", &[cpu.clone(), same, near, far], rule, true);
        assert!(!holds);
        insta::assert_snapshot!(text, @r"
        x: 2 steps of 32 rows, by the first trial of the sweep

          devices                          last loss  difference  at step  of the limit  parameters  verdict
          cpu                                  1.000                                                 reference
          virtual:0                            1.000           0        1             0           0  the same bits
          virtual:0, virtual:1                 1.000    1.000e-6        2       0.09996    7.081e-6  the same
          virtual:0, virtual:1, virtual:2      1.500      0.5000        2         49980      0.7071  **differs**

          shown is the step whose loss comes nearest to the limit, or goes furthest beyond it:
          a loss may differ from that of cpu by 1e-5 of it + 1e-9 times 4.000, the mean square of the targets,
          the parameters after the last step, as one vector, by 1e-4 of its length
          1 of 3 counts do not do the same mathematics
        ");
        let (text, holds) = page("x", &[cpu.clone(), cpu], Rule { target_square: 0.0 }, false);
        assert!(holds);
        insta::assert_snapshot!(text, @r"
        x: 2 steps of 32 rows

          devices  last loss  difference  at step  of the limit  parameters  verdict
          cpu          1.000                                                 reference
          cpu          1.000           0        1             0           0  the same bits

          shown is the step whose loss comes nearest to the limit, or goes furthest beyond it:
          a loss may differ from that of cpu by 1e-5 of it,
          the parameters after the last step, as one vector, by 1e-4 of its length
          the other count of devices does the same mathematics
        ");
    }
}
