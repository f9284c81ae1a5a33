//! The output of a parity check.

use std::fmt::Write;

use crate::{
    plan::agreement::{Curve, JUDGED, Rule},
    record::text_table,
    spec::Precision,
    units,
};

/// The output.
#[derive(Default)]
pub struct Page {
    /// The full text.
    pub text: String,
    /// Its last line.
    pub verdict: String,
    /// Whether all device counts agree.
    pub holds: bool,
}

/// The page; the first curve is the reference.
pub fn page(name: &str, curves: &[Curve], rule: Rule, notes: &[String]) -> Page {
    let Some((reference, others)) = curves.split_first() else { return Page::default() };
    let steps = units::counted(reference.losses.len() as u64, "step");
    let mut text = format!("{name}: {steps} of {}\n", reference.rows);
    text.extend(notes.iter().map(|note| format!("  {note}\n")));
    text.push('\n');
    let has_later = reference.losses.len() > JUDGED;
    let later_header = if has_later { &["later", "at step"][..] } else { &[] };
    let header = [
        &["devices", "last loss", "difference", "at step", "of the limit"],
        later_header,
        &["parameters", "verdict"],
    ]
    .concat();
    let last = |curve: &Curve| curve.losses.last().map_or(String::new(), |loss| units::number(*loss));
    let mut first = vec![String::new(); header.len()];
    (first[0], first[1], first[header.len() - 1]) =
        (reference.devices.clone(), last(reference), "reference".into());
    let mut rows = vec![first];
    let mut failing = 0;
    for curve in others {
        let difference = rule.difference(curve, reference);
        let holds = rule.holds(&difference);
        failing += u64::from(!holds);
        let bits = curve.losses == reference.losses && curve.parameters == reference.parameters;
        let verdict = match holds {
            true if bits => "the same bits",
            true => "the same",
            false => "**differs**",
        };
        let mut cells = vec![
            curve.devices.clone(),
            last(curve),
            units::number(difference.loss),
            units::count(difference.step as u64),
            units::number(difference.of_limit),
        ];
        if has_later {
            let later = difference.later.map(|l| [units::number(l.of_limit), units::count(l.step as u64)]);
            cells.extend(later.unwrap_or_default());
        }
        cells.extend([units::number(difference.parameters), verdict.to_owned()]);
        rows.push(cells);
    }
    text += &text_table::text(&header, &rows, |place| (1..header.len() - 1).contains(&place));
    text += &legend(rule, &reference.devices, has_later);
    let counts = others.len() as u64;
    let verdict = match failing {
        0 => format!("every count of devices gives the results of {}", reference.devices),
        n => format!(
            "{n} of {} do not give the results of {}",
            units::counted(counts, "count"),
            reference.devices
        ),
    };
    let _ = writeln!(text, "  {verdict}");
    Page { text, verdict, holds: failing == 0 }
}

/// Explains the table and its tolerances.
fn legend(rule: Rule, reference: &str, has_later: bool) -> String {
    let [of_loss, of_targets] = rule.parts();
    let targets = match rule.target_square {
        0.0 => String::new(),
        square => {
            let square = units::number(square);
            format!(" + {of_targets:.3e} times {square}, the mean square of the targets")
                .replace(".000e", "e")
        }
    };
    let of_loss = format!("{of_loss:.3e}").replace(".000e", "e");
    let mut text = String::new();
    let _ = writeln!(
        text,
        "\n  shown is the step whose loss comes nearest to the limit, or goes furthest beyond it:"
    );
    let _ = writeln!(text, "  a loss may differ from that of {reference} by {of_loss} of it{targets},");
    let parameters = format!("{:.3e}", rule.parameters()).replace(".000e", "e");
    if has_later {
        let _ = writeln!(text, "  over the first {JUDGED} steps, which the verdict is about");
        let _ = writeln!(
            text,
            "  what rounding sets apart grows with every step: `later` shows by how much of the same limit\n  \
             beyond step {JUDGED}, and `parameters` are those after the last step; neither is judged"
        );
    } else {
        let _ = writeln!(
            text,
            "  the parameters after the last step, as one vector, by {parameters} of its length"
        );
    }
    if let Some(words) = rounding(rule.precision) {
        let _ = writeln!(text, "  {words}");
    }
    text
}

/// Why the tolerances are wide.
fn rounding(precision: Precision) -> Option<&'static str> {
    match precision {
        Precision::F32 => None,
        Precision::Tf32 => {
            Some("(32 times 2^-11, to which tf32 rounds the operands of products; the CPU computes in f32)")
        }
        Precision::Bf16 => Some(
            "(32 times 2^-8, to which bf16 rounds the operands of products; the reference computes in f32)",
        ),
    }
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
        let rule = Rule { target_square: 4.0, precision: Precision::F32 };
        let notes = ["the first trial of the sweep".to_owned(), "weak scaling: not here".to_owned()];
        let Page { text, verdict, holds } = page("x", &[cpu.clone(), same, near, far], rule, &notes);
        assert_eq!(verdict, "1 of 3 counts do not give the results of cpu");
        assert!(!holds);
        insta::assert_snapshot!(text, @r"
        x: 2 steps of 32 rows
          the first trial of the sweep
          weak scaling: not here

          devices                          last loss  difference  at step  of the limit  parameters  verdict
          cpu                                  1.000                                                 reference
          virtual:0                            1.000           0        1             0           0  the same bits
          virtual:0, virtual:1                 1.000    1.000e-6        2       0.09996    7.081e-6  the same
          virtual:0, virtual:1, virtual:2      1.500      0.5000        2         49980      0.7071  **differs**

          shown is the step whose loss comes nearest to the limit, or goes furthest beyond it:
          a loss may differ from that of cpu by 1e-5 of it + 1e-9 times 4.000, the mean square of the targets,
          the parameters after the last step, as one vector, by 1e-4 of its length
          1 of 3 counts do not give the results of cpu
        ");
        let Page { text, holds, .. } =
            page("x", &[cpu.clone(), cpu], Rule { target_square: 0.0, precision: Precision::F32 }, &[]);
        assert!(holds);
        insta::assert_snapshot!(text, @r"
        x: 2 steps of 32 rows

          devices  last loss  difference  at step  of the limit  parameters  verdict
          cpu          1.000                                                 reference
          cpu          1.000           0        1             0           0  the same bits

          shown is the step whose loss comes nearest to the limit, or goes furthest beyond it:
          a loss may differ from that of cpu by 1e-5 of it,
          the parameters after the last step, as one vector, by 1e-4 of its length
          every count of devices gives the results of cpu
        ");
    }

    #[test]
    fn many_steps_and_rounded_operands_say_what_is_judged() {
        let cpu = curve("cpu", &[1.0; JUDGED + 50], &[1.0]);
        let mut losses = [1.0; JUDGED + 50];
        (losses[7], losses[JUDGED + 20]) = (1.01, 1.5);
        let gpu = curve("gpu:0", &losses, &[1.2]);
        let rule = Rule { target_square: 1.0, precision: Precision::Tf32 };
        let Page { text, holds, .. } = page("x", &[cpu, gpu], rule, &[]);
        assert!(holds);
        insta::assert_snapshot!(text, @r"
        x: 250 steps of 32 rows

          devices  last loss  difference  at step  of the limit  later  at step  parameters  verdict
          cpu          1.000                                                                 reference
          gpu:0        1.000     0.01000        8        0.6302  31.51      221      0.2000  the same

          shown is the step whose loss comes nearest to the limit, or goes furthest beyond it:
          a loss may differ from that of cpu by 1.562e-2 of it + 2.441e-4 times 1.000, the mean square of the targets,
          over the first 200 steps, which the verdict is about
          what rounding sets apart grows with every step: `later` shows by how much of the same limit
          beyond step 200, and `parameters` are those after the last step; neither is judged
          (32 times 2^-11, to which tf32 rounds the operands of products; the CPU computes in f32)
          every count of devices gives the results of cpu
        ");
    }
}
