//! Whether a step meets tensors of two devices, and whether it declares that.

use super::{step::Outlook, tensors::Tour};
use crate::spec::{
    Problem,
    lab::{Expect, Step, StepOp},
};

impl Tour<'_> {
    /// Whether all operands are on one device. Reports a difference that the step does not declare, and one that it
    /// declares and that is not there.
    pub(super) fn outlook(&mut self, index: usize, step: &Step) -> Outlook {
        let is_declared = step.expect == Some(Expect::DeviceMismatch);
        let parameter;
        let (left, right) = match &step.op {
            StepOp::Add([a, b]) | StepOp::Matmul([a, b]) => (a, b),
            StepOp::Net(net) => {
                let Some(first) = net.parameter_names().next() else {
                    if is_declared {
                        self.report_vain(index, "the net has no parameters");
                    }
                    return Outlook::Done;
                };
                parameter = first;
                (&net.input, &parameter)
            }
            _ => return Outlook::Done,
        };
        let Some(a) = self.made.get(left) else { return Outlook::Done };
        let of_left = (a.asked, self.values[a.value].device);
        let of_right = match (&step.op, self.made.get(right)) {
            (StepOp::Net(_), _) => step.device.map_or(of_left, |name| (name, self.find(name))),
            (_, Some(b)) => (b.asked, self.values[b.value].device),
            (_, None) => return Outlook::Done,
        };
        let ((a_asked, a), (b_asked, b)) = (of_left, of_right);
        let message = format!("`{left}` is on {a} and `{right}` on {b}");
        match (a == b, is_declared) {
            (true, false) => Outlook::Done,
            (false, true) => {
                let mut free = ["Z", "Y", "X"].into_iter().filter(|name| left != name && right != name);
                let free = free.next().unwrap_or("Z");
                Outlook::Raises(format!("{message}; copy one: `{free} = {left}.copy({b})`"))
            }
            (true, true) if a_asked != b_asked => {
                Outlook::Skipped(format!("it takes two devices: {a_asked} and {b_asked} are both {a} here"))
            }
            (true, true) => {
                let why = if left == right {
                    format!("`{left}` is both operands")
                } else {
                    format!("`{left}` and `{right}` are both on {a}")
                };
                self.report_vain(index, &why);
                Outlook::Done
            }
            (false, false) => {
                let mut free = ["Z", "Y", "X"].into_iter().filter(|name| !self.made.contains_key(*name));
                let free = free.next().unwrap_or("copied");
                let hint = format!(
                    "copy one: `name = \"{free}\"`, `copy = \"{left}\"`, `device = \"{b_asked}\"`; or declare it: `expect = \
                     \"device_mismatch\"`"
                );
                let key = format!("tensors.step.{index}.{}", step.op.name());
                self.problems.push(Problem::at_key(key, &message).hint(hint));
                Outlook::Raises(message)
            }
        }
    }

    /// Reports that a step declares an error which it will not raise.
    fn report_vain(&mut self, index: usize, why: &str) {
        let message = format!("this step will not raise `device_mismatch`: {why}");
        let problem = Problem::at_key(format!("tensors.step.{index}.expect"), message);
        self.problems.push(problem.hint("remove `expect`, or use a tensor of another device"));
    }
}
