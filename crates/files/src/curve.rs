//! Loss curves: read point by point from `metrics.csv`, and compared bit by bit.

use std::path::Path;

use crate::{
    FileError,
    csv_lines::{self, is_validation, wrong},
};

/// What was found in a `metrics.csv` besides its points.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tail {
    /// Whether it has training losses.
    pub has_losses: bool,
    /// Whether the file ends with an incomplete line, which was ignored.
    pub torn: bool,
}

/// Reads a `metrics.csv` of any size, and calls `point` with every training loss and its step, in order.
pub fn read(path: &Path, point: &mut dyn FnMut(u64, f32)) -> Result<Tail, FileError> {
    let mut has_losses = false;
    let torn = csv_lines::for_each_row(path, ["step", "split", "loss"], |[step, split, loss]| {
        if !is_validation(split.as_bytes())? && !loss.is_empty() {
            has_losses = true;
            let step = step.parse().map_err(|_| wrong(step.as_bytes(), "step", "is not an integer"))?;
            point(step, loss.parse().map_err(|_| wrong(loss.as_bytes(), "loss", "is not a number"))?);
        }
        Ok(())
    })?;
    Ok(Tail { has_losses, torn })
}

/// Compares two curves point by point over the steps they have in common.
pub struct Against<'a> {
    first: &'a [(u64, f32)],
    common: u64,
    parts: Option<CurveParting>,
}

impl<'a> Against<'a> {
    /// Compares with this curve of steps and losses, in order.
    pub fn new(first: &'a [(u64, f32)]) -> Self {
        Self { first, common: 0, parts: None }
    }

    /// Takes the next point.
    pub fn take(&mut self, step: u64, other: f32) {
        while let Some(((first_step, first), rest)) = self.first.split_first()
            && *first_step <= step
        {
            self.first = rest;
            if *first_step == step {
                self.compare(step, *first, other);
            }
        }
    }

    fn compare(&mut self, step: u64, first: f32, other: f32) {
        self.common += 1;
        if first.to_bits() == other.to_bits() {
            return;
        }
        let relative = relative_difference(first, other);
        let parting = self.parts.get_or_insert(CurveParting {
            step,
            first,
            other,
            relative,
            largest: (step, relative),
        });
        // A NaN on one side counts as larger than any number.
        if relative.total_cmp(&parting.largest.1).is_gt() {
            parting.largest = (step, relative);
        }
    }

    /// The result.
    pub fn difference(self) -> CurveDifference {
        let common = self.common;
        match self.parts {
            _ if common == 0 => CurveDifference::NothingInCommon,
            None => CurveDifference::Same { common },
            Some(parting) => CurveDifference::Parts { parting, common },
        }
    }
}

/// The difference relative to the larger magnitude; infinite if only one side is finite.
fn relative_difference(first: f32, other: f32) -> f64 {
    let (first, other) = (f64::from(first), f64::from(other));
    if !(first.is_finite() && other.is_finite()) {
        return f64::INFINITY;
    }
    let scale = first.abs().max(other.abs());
    if scale == 0.0 { 0.0 } else { (first - other).abs() / scale }
}

/// How two loss curves differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CurveDifference {
    /// No common step.
    NothingInCommon,
    /// They have different data or a different loss function.
    OtherTask,
    /// One has losses of steps, the other means of epochs.
    MeansAndSteps,
    /// Equal bits at all steps in common.
    Same {
        common: u64,
    },
    Parts {
        parting: CurveParting,
        common: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurveParting {
    /// The first step whose losses differ.
    pub step: u64,
    /// The losses there.
    pub first: f32,
    pub other: f32,
    /// Their difference relative to the larger one.
    pub relative: f64,
    /// The step of the largest relative difference, and that difference.
    pub largest: (u64, f64),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn against(other: &[(u64, f32)], first: &[(u64, f32)]) -> CurveDifference {
        let mut against = Against::new(first);
        other.iter().for_each(|&(step, loss)| against.take(step, loss));
        against.difference()
    }

    #[test]
    fn curves_are_compared_at_common_steps() {
        let first = [(1, 1.0), (2, 0.5), (3, 0.25), (5, 2.0)];
        assert_eq!(against(&first, &first), CurveDifference::Same { common: 4 });
        let other = [(2, 0.5), (3, 0.2), (4, 9.0), (5, 1.0)];
        let CurveDifference::Parts { parting, common } = against(&other, &first) else { panic!("they part") };
        assert_eq!((parting.step, parting.first, parting.other, common), (3, 0.25, 0.2, 3));
        assert!((parting.relative - 0.2).abs() < 1e-6);
        assert_eq!(parting.largest, (5, 0.5));
        assert_eq!(against(&[(7, 1.0)], &first), CurveDifference::NothingInCommon);
    }

    #[test]
    fn not_a_number_equals_itself_and_differs_from_all_else() {
        let nan = [(1, f32::NAN)];
        assert_eq!(against(&nan, &nan), CurveDifference::Same { common: 1 });
        let CurveDifference::Parts { parting, .. } = against(&nan, &[(1, 1.0)]) else { panic!("they part") };
        assert_eq!(parting.relative, f64::INFINITY);
    }
}
