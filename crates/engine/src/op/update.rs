//! The optimizer's step over the flat buffers. Each rule has a file of its own.

use super::{
    Access, Adam, Cost, Encoder, Kind, Operation, Record, Refused, Rmsprop, Sgd, Slice,
    record::Hyper,
    reference::Memory,
    run::{Context, Slices},
    split::Split,
};
use crate::spec::Optimizer;

#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    pub rule: UpdateRule,
    pub values: Slice,
    pub gradients: Slice,
    /// The rule's state, updated in place: the first value of every parameter, then the second of every one,
    /// and so on.
    pub state: Option<Slice>,
}

/// What an update rule has to define. Values that change from step to step are in [`Hyper`].
pub(super) trait Rule {
    /// State values per parameter.
    fn state(&self) -> usize;
    /// Operations per parameter.
    fn operations(&self) -> usize;
    /// How many of these belong to slow functions (a square root, a division, an exponential).
    fn function_operations(&self) -> usize {
        0
    }
    /// Updates one parameter in double precision, by the algorithms in `torch.optim`'s documentation.
    fn reference(&self, hyper: &Hyper, w: &mut f64, gradient: f64, state: &mut [&mut f64]);
    /// Updates a share of the parameters, in PyTorch's order of operations. Unused states are empty.
    fn run(&self, hyper: &Hyper, values: &mut [f32], gradients: &[f32], state: [&mut [f32]; 3]);
    /// Its kernel, flags and constants.
    fn record(&self) -> (Kind, i32, [f32; 6]);
    /// C++ text that constructs its kernel type with these constants and the step's `hyper`.
    fn emit(&self) -> String;
}

macro_rules! rules {
    ($($rule:ident),*) => {
        /// An update rule, with the values that stay the same in every step.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum UpdateRule {
            $($rule($rule),)*
        }

        impl UpdateRule {
            fn rule(&self) -> &dyn Rule {
                match self {
                    $(Self::$rule(rule) => rule,)*
                }
            }

            #[inline]
            pub(super) fn run(&self, ([gradients, ..], [values, a, b, c]): Slices<'_>, context: &mut Context<'_>) {
                match self {
                    $(Self::$rule(rule) => rule.run(&context.at.hyper, values, gradients, [a, b, c]),)*
                }
            }
        }
    };
}

rules! { Sgd, Adam, Rmsprop }

impl UpdateRule {
    pub const PLAIN_SGD: Self = Self::Sgd(Sgd { momentum: false, nesterov: false, weight_decay: 0.0 });

    /// The rule of an optimizer. `moves_momentum`: whether the schedule changes the momentum.
    pub fn new(optimizer: &Optimizer, moves_momentum: bool) -> Self {
        match optimizer {
            Optimizer::Sgd(o) => Self::Sgd(Sgd::new(o, moves_momentum)),
            Optimizer::Adam(o) => Self::Adam(Adam::new(o.beta2, o.eps, o.weight_decay, false)),
            Optimizer::Adamw(o) => Self::Adam(Adam::new(o.beta2, o.eps, o.weight_decay, true)),
            Optimizer::Rmsprop(o) => Self::Rmsprop(Rmsprop::new(o, moves_momentum)),
        }
    }

    /// The values that change from step to step, computed in f64 and rounded once. `step` counts from 1.
    pub fn hyper(optimizer: &Optimizer, lr: f64, momentum: f64, step: u64) -> Hyper {
        match optimizer {
            Optimizer::Sgd(_) | Optimizer::Rmsprop(_) => Sgd::hyper(lr, momentum),
            Optimizer::Adam(o) => Adam::hyper(lr, momentum, o.beta2, 1.0, step),
            Optimizer::Adamw(o) => Adam::hyper(lr, momentum, o.beta2, 1.0 - lr * o.weight_decay, step),
        }
    }

    /// Whether it is plain SGD, which may be fused into the ops that compute the gradients.
    pub fn is_plain(&self) -> bool {
        matches!(self, Self::Sgd(sgd) if !sgd.momentum && sgd.weight_decay == 0.0)
    }

    /// C++ text that constructs its kernel type with these constants and the step's `hyper`.
    pub fn emit(&self) -> String {
        self.rule().emit()
    }

    /// State values per parameter.
    pub fn state_per_parameter(&self) -> usize {
        self.rule().state()
    }
}

impl Operation for Update {
    fn access(&self) -> Access {
        Access::new([self.gradients], [self.values, self.state.unwrap_or_default()])
    }

    fn cost(&self) -> Cost {
        let (n, rule) = (self.values.len, self.rule.rule());
        let functions = (rule.function_operations() * n) as f64;
        Cost { functions, ..Cost::new(rule.operations() * n, (3 + 2 * rule.state()) * n) }
    }

    fn reference(&self, memory: &mut Memory) {
        let (mut w, g) = (memory.get(self.values), memory.get(self.gradients));
        let mut state = self.state.map(|s| memory.get(s)).unwrap_or_default();
        let n = w.len().max(1);
        let mut states: Vec<_> = state.chunks_mut(n).map(|s| s.iter_mut()).collect();
        for (w, g) in w.iter_mut().zip(g) {
            let mut own: Vec<&mut f64> = states.iter_mut().filter_map(Iterator::next).collect();
            self.rule.rule().reference(&memory.hyper, w, g, &mut own);
        }
        memory.set(self.values, &w);
        if let Some(to) = self.state {
            memory.set(to, &state);
        }
    }

    fn split(&self, split: &mut Split<'_>) {
        let Self { rule, values, gradients, state } = *self;
        let states = rule.state_per_parameter();
        split.each(values.len, |part| {
            let own = |k: usize| match state {
                Some(s) if states > k => s.part(k * values.len + part.start..k * values.len + part.end),
                _ => Slice::default(),
            };
            let writes = [values.part(part.clone()), own(0), own(1), own(2)];
            (rule, Access::new([gradients.part(part.clone())], writes))
        });
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        let (kind, flags, f) = self.rule.rule().record();
        Ok(Record {
            n: e.int(self.values.len)?,
            flags,
            f,
            at: e.optional([Some(self.values), Some(self.gradients), self.state])?,
            ..Record::new(kind)
        })
    }
}
