//! Every instruction alone, at sizes around those of vectors, strips and tiles.

use runner::{
    device::PassKind,
    program::{
        Accumulator, Activate, ActivateBackward, Activation, Adam, Add, BiasGradient, BufferId, Clip,
        Dropout, DropoutBackward, Gather, Hyper, InputGradient, Instruction, LayerNorm, LayerNormBackward,
        LayerNormGradient, Linear, Log, LogTarget, Loss, LossKind, Mean, Norm, NormKind, Op, Phase, Program,
        Programs, Rmsprop, RowSource, Sgd, Slice, Update, UpdateRule, WeightGradient, Zero,
        reference::Memory,
    },
};

use super::{At, Bench, Numbers, TEAMS, bits, close, programs::weight, run, sums};

const ROWS: [usize; 5] = [1, 2, 31, 33, 257];
const WIDTHS: [usize; 8] = [1, 2, 3, 10, 31, 33, 100, 257];

/// Rows of data that precede the batch.
pub const BEFORE: usize = 3;
pub const STEP: u64 = 7;
pub const SLOT: usize = 2;
pub const HYPER: Hyper =
    Hyper { rate: 0.05, first: 0.3, correction: 0.4, decay_factor: 0.99, loss_scale: 1.7 };

/// A program of independent instructions.
pub struct Suite {
    pub bench: Bench,
    numbers: Numbers,
    pub ops: Vec<Op>,
}

impl Suite {
    pub fn new() -> Self {
        let mut suite = Self { bench: Bench::new(None), numbers: Numbers(5), ops: Vec::new() };
        assert_eq!(suite.random(1).buffer, suite.bench.layout.values);
        assert_eq!(suite.random(8).buffer, suite.bench.layout.log);
        suite
    }

    pub fn push(&mut self, op: impl Into<Op>) {
        self.ops.push(op.into());
    }

    fn random(&mut self, len: usize) -> Slice {
        let numbers = self.numbers.take(len);
        self.bench.holding(numbers)
    }

    /// Numbers several times larger than usual, so that both ends of every function are covered.
    fn wide(&mut self, len: usize) -> Slice {
        let numbers = self.numbers.take(len).into_iter().map(|x| 6.0 * x).collect();
        self.bench.holding(numbers)
    }

    pub fn products(&mut self, rows: usize, inputs: usize, outputs: usize) {
        let x = self.random(rows * inputs);
        let dy = self.random(rows * outputs);
        let weight = self.random(inputs * outputs);
        let cases = [
            (None, true, false),
            (None, false, false),
            (Some(Activation::Relu), true, false),
            (Some(Activation::Relu), false, false),
            (Some(Activation::Gelu), true, true),
            (Some(Activation::Gelu), false, false),
            (Some(Activation::Silu), true, true),
            (Some(Activation::Tanh), true, false),
            (Some(Activation::Sigmoid), true, false),
        ];
        for (activation, biased, keep) in cases {
            let bias = biased.then(|| self.random(outputs));
            let pre = keep.then(|| self.random(rows * outputs));
            let y = self.random(rows * outputs);
            self.push(Linear { x, weight, bias, activation, pre, y, rows, inputs, outputs });
        }
        for activation in [None].into_iter().chain(Activation::ALL.map(Some)) {
            let derivative = activation.map(|f| (f, self.random(rows * inputs)));
            let dx = self.random(rows * inputs);
            self.push(InputGradient { dy, weight, dx, derivative, rows, inputs, outputs });
        }
        for update in [false, true] {
            let to = self.random(inputs * outputs);
            self.push(WeightGradient { x, dy, to, update, rows, inputs, outputs });
            let to = self.random(outputs);
            self.push(BiasGradient { dy, to, update, rows, outputs });
        }
    }

    /// Gradients that a GPU computes in one launch: of each layer with another activation before it, in four launches
    /// of which two are left, and for a derivative that needs the activation's input in three of which two are left.
    pub fn merged_gradients(&mut self, rows: usize, inputs: usize, outputs: usize) {
        for activation in [None].into_iter().chain(Activation::ALL.map(Some)) {
            let mut x = self.numbers.take(rows * inputs);
            // What RELU has made is not negative.
            if activation == Some(Activation::Relu) {
                x.iter_mut().for_each(|x| *x = x.max(0.0));
            }
            let (x, dy) = (self.bench.holding(x), self.random(rows * outputs));
            let weight = self.random(inputs * outputs);
            let needs_input = activation.is_some_and(Activation::derivative_needs_input);
            let saved = if needs_input { self.random(rows * inputs) } else { x };
            let derivative = activation.map(|f| (f, saved));
            let dx = self.random(rows * inputs);
            self.push(InputGradient { dy, weight, dx, derivative, rows, inputs, outputs });
            let (to, of_bias) = (self.random(inputs * outputs), self.random(inputs));
            self.push(WeightGradient { x, dy, to, update: false, rows, inputs, outputs });
            self.push(BiasGradient { dy: dx, to: of_bias, update: false, rows, outputs: inputs });
        }
        for (activation, width) in
            [(Activation::Relu, inputs), (Activation::Gelu, inputs), (Activation::Tanh, outputs)]
        {
            let (saved, dy) = (self.random(rows * width), self.random(rows * width));
            self.push(ActivateBackward { activation, saved, dy, rows, width });
            let to = self.random(width);
            self.push(BiasGradient { dy, to, update: false, rows, outputs: width });
        }
    }

    pub fn elementwise(&mut self, rows: usize, width: usize) {
        let x = self.wide(rows * width);
        for activation in Activation::ALL {
            let y = self.random(rows * width);
            self.push(Activate { activation, x, y, rows, width });
            let (saved, dy) = (self.random(rows * width), self.random(rows * width));
            self.push(ActivateBackward { activation, saved, dy, rows, width });
        }
        for len in [rows * width, width] {
            let (b, y) = (self.random(len), self.random(rows * width));
            self.push(Add { a: x, b, y });
        }
        for (p, layer) in [(0.1, 0), (0.5, 3), (0.9, 3)] {
            let y = self.random(rows * width);
            self.push(Dropout { x, y, p, layer, first: 2, rows, width });
            let dy = self.random(rows * width);
            self.push(DropoutBackward { dy, p, layer, first: 2, rows, width });
        }
    }

    pub fn layer_norms(&mut self, rows: usize, width: usize) {
        let (x, dy) = (self.random(rows * width), self.random(rows * width));
        let (weight, bias) = (self.random(width), self.random(width));
        for eps in [1e-5, 0.1] {
            let y = self.random(rows * width);
            let stats = (eps > 0.01).then(|| self.random(2 * rows));
            // One unit has no variance, so only rounding errors relative to eps are left; a large eps hides
            // them.
            let eps = if width < 3 { 0.1 } else { eps };
            self.push(LayerNorm { x, weight, bias, y, stats, eps, rows, width });
        }
        let mut stats = self.numbers.take(2 * rows);
        stats.iter_mut().skip(1).step_by(2).for_each(|scale| *scale = scale.abs() + 0.5);
        let stats = self.bench.holding(stats);
        let dx = self.random(rows * width);
        self.push(LayerNormBackward { dy, x, weight, stats, dx, rows, width });
        for update in [false, true] {
            let (weight, bias) = (self.random(width), self.random(width));
            self.push(LayerNormGradient { dy, x, stats, weight, bias, update, rows, width });
        }
    }

    pub fn losses(&mut self, rows: usize, width: usize) {
        let prediction = self.wide(rows * width);
        let numbers = self.random(rows * width);
        let classes: Vec<f32> = (0..rows).map(|row| (row * 7 % width) as f32).collect();
        let classes = self.bench.holding(classes);
        let pairs = (0..rows).map(|row| row * 7 % width).flat_map(|class| [class as f32, weight(class)]);
        let pairs = self.bench.holding(pairs.collect());
        let weighed = self.random(rows * (width + 1));
        for (learn, total_rows) in [(true, rows), (true, 3 * rows + 1), (false, rows)] {
            let kinds = [LossKind::Mse, LossKind::L1, LossKind::Huber, LossKind::CrossEntropy];
            for (kind, weighted) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
                let per_row = self.random(rows);
                let hits = kind.classifies().then(|| self.random(rows));
                let gradient = learn.then(|| self.random(rows * width));
                let target = match kind.classifies() {
                    true if weighted => pairs,
                    true => classes,
                    false if weighted => weighed,
                    false => numbers,
                };
                self.push(Loss {
                    kind,
                    prediction,
                    target,
                    weighted,
                    per_row,
                    hits,
                    gradient,
                    rows,
                    first: total_rows - rows,
                    total_rows,
                    width,
                });
                // A GPU's launch has these, too.
                for of in [Some(per_row), hits].into_iter().flatten().filter(|_| total_rows == rows) {
                    let cell = self.random(1);
                    self.push(Mean { of, cell, scale: 1.0 / rows.max(1) as f64 });
                }
            }
        }
    }

    /// State for a rule. A mean square must be positive, and above the square of the mean of the same
    /// numbers.
    fn state_of(&mut self, rule: UpdateRule, len: usize) -> Slice {
        let mut numbers = self.numbers.take(rule.state_per_parameter() * len);
        numbers.iter_mut().for_each(|x| *x = x.abs());
        if let UpdateRule::Rmsprop(_) = rule {
            numbers[..len].iter_mut().for_each(|x| *x += 1.5);
        }
        self.bench.holding(numbers)
    }

    pub fn updates(&mut self, len: usize) {
        let adam =
            |decoupled| Adam { beta2: 0.9, one_minus_beta2: 0.1, eps: 1e-3, weight_decay: 0.1, decoupled };
        let sgd = |momentum, nesterov| Sgd { momentum, nesterov, weight_decay: 0.1 };
        let gradients = self.random(len);
        let sgd = [sgd(false, false), sgd(true, false), sgd(true, true)].map(UpdateRule::Sgd);
        let rmsprop = |momentum, centered| Rmsprop {
            alpha: 0.9,
            one_minus_alpha: 0.1,
            eps: 1e-2,
            momentum,
            centered,
            weight_decay: 0.1,
        };
        let rmsprop = [(false, false), (true, false), (false, true), (true, true)]
            .map(|(momentum, centered)| UpdateRule::Rmsprop(rmsprop(momentum, centered)));
        let adam = [adam(false), adam(true)].map(UpdateRule::Adam);
        for rule in sgd.into_iter().chain(adam).chain(rmsprop) {
            let values = self.random(len);
            let state = (rule.state_per_parameter() > 0).then(|| self.state_of(rule, len));
            self.push(Update { rule, values, gradients, state });
        }
        for (norm, max_norm) in [(4.0, 0.5), (0.25, 0.5), (0.0, 0.5)] {
            let (gradients, norm) = (self.random(len), self.bench.holding(vec![norm]));
            self.push(Clip { gradients, norm, max_norm });
        }
        let of = self.random(len);
        for how in [NormKind::Chunked, NormKind::Exact, NormKind::Squared] {
            let cell = self.random(1);
            self.push(Norm { of, cell, how });
        }
        let (of, cell) = (self.random(len), self.random(1));
        self.push(Mean { of, cell, scale: 1.0 / len as f64 });
        let of = self.random(len);
        self.push(Zero { of });
    }

    pub fn data(&mut self, rows: usize, width: usize) {
        let all = rows + BEFORE + 2;
        for buffer in [0, 1] {
            self.bench.contents[buffer] = self.numbers.take(all * if buffer == 0 { width } else { 2 });
        }
        self.bench.contents[4] = (0..all).rev().map(|row| row as f32).collect();
        let layout = &self.bench.layout;
        let (features, targets, place) = (layout.train_features, layout.train_targets, layout.order);
        for (source, first) in [(RowSource::Position, 1), (RowSource::Order(place), 2), (RowSource::Chunk, 1)]
        {
            let (x, y) = (self.random(rows * width), self.random(rows * 2));
            let target_width = 2;
            self.push(Gather { features, targets, source, first, x, y, rows, width, target_width });
        }
    }

    pub fn log(&mut self, rows: usize) {
        let cells = self.random(2);
        self.push(Log { cells, to: LogTarget::Row(BufferId(6)) });
        self.push(Log { cells, to: LogTarget::Sums { rows, weighted: false, sums: Accumulator::Epoch } });
        self.push(Log { cells: Slice { len: 1, ..cells }, to: LogTarget::Flag });
    }

    /// Checks products. The tolerance grows with the longest sum, as rounding does.
    fn check_products(mut self, [rows, inputs, outputs]: [usize; 3]) {
        self.products(rows, inputs, outputs);
        let longest = rows.max(inputs).max(outputs) as f64;
        self.check(rows, 1e-6 * (1.0 + longest.sqrt()), &format!("{rows} rows, {inputs} to {outputs}"));
    }

    fn program(&self, rows: usize) -> Program {
        let instruction = |op: &Op| Instruction { op: op.clone(), phase: Phase::Other };
        Program { batch: rows, rows, instructions: self.ops.iter().map(instruction).collect() }
    }

    /// All instructions as one program, and the memory after the reference ran it.
    pub fn reference(&self, rows: usize) -> (Program, Memory) {
        let program = self.program(rows);
        let mut memory = self.bench.memory();
        (memory.position, memory.step, memory.slot, memory.hyper) = (BEFORE, STEP, SLOT, HYPER);
        memory.run(&program.instructions);
        (program, memory)
    }

    /// Compares the contents of all buffers except the data with the reference.
    pub fn compare(&self, got: &[Vec<f32>], memory: &Memory, tolerance: f64, what: &str) {
        let texts: Vec<String> = self.ops.iter().map(|op| format!("{op:?}")).collect();
        for (i, (got, want)) in got.iter().zip(&memory.buffers[5..]).enumerate() {
            let id = BufferId(i + 5);
            let name = format!("{id:?}");
            let place = texts.iter().position(|text| text.contains(&name));
            let op = place.map(|place| &self.ops[place]);
            // Gradients of a mean are divided by its number of terms, so the tolerance shrinks with it.
            let terms = match op {
                Some(Op::Loss(Loss { gradient: Some(g), kind, total_rows: rows, width, .. }))
                    if g.buffer == id =>
                {
                    if kind.classifies() {
                        *rows
                    } else {
                        rows * width
                    }
                }
                _ => 1,
            };
            let got: Vec<f32> = got.iter().map(|x| x * terms as f32).collect();
            let want: Vec<f64> = want.iter().map(|x| x * terms as f64).collect();
            close(&got, &want, tolerance, &format!("{what}: {op:?}"));
        }
    }

    /// The bits of all buffers except the data, after one thread ran everything.
    pub fn bits(&self, rows: usize) -> Vec<Vec<u32>> {
        let mut executor = self.bench.executor(&self.programs(self.program(rows)), 1);
        assert_eq!(run(&mut executor, Self::at(rows), 1, &[HYPER]), None);
        bits(&self.bench.read(&mut executor))
    }

    fn programs(&self, train: Program) -> Programs {
        let layout = self.bench.layout.clone();
        Programs { layout, train, train_last: None, validate: None, validate_last: None }
    }

    fn at(rows: usize) -> At {
        At { work: PassKind::Train, step: STEP, position: BEFORE, rows: BEFORE + rows, slot: SLOT }
    }

    /// Runs everything with teams of every size, and compares with the reference.
    pub fn check(self, rows: usize, tolerance: f64, what: &str) {
        let (train, memory) = self.reference(rows);
        let (programs, at) = (self.programs(train), Self::at(rows));
        let mut first: Option<(Vec<Vec<f32>>, Vec<f64>)> = None;
        for threads in TEAMS {
            let mut executor = self.bench.executor(&programs, threads);
            assert_eq!(run(&mut executor, at, 1, &[HYPER]), None);
            let got = self.bench.read(&mut executor);
            let sums = sums(&mut executor, Accumulator::Epoch, 2);
            if let Some((seen, seen_sums)) = &first {
                assert!(bits(&got) == bits(seen), "{what}: {threads} threads have other bits");
                assert_eq!(&sums, seen_sums);
                continue;
            }
            self.compare(&got, &memory, tolerance, what);
            sums.iter().zip(&memory.sums[0]).for_each(|(got, want)| assert!((got - want).abs() < 1e-9));
            first = Some((got, sums));
        }
    }
}

#[test]
fn products_follow_the_reference() {
    for rows in ROWS {
        for inputs in WIDTHS {
            for outputs in WIDTHS {
                Suite::new().check_products([rows, inputs, outputs]);
            }
        }
    }
}

#[test]
fn all_else_follows_the_reference() {
    for rows in ROWS {
        for width in WIDTHS {
            let mut suite = Suite::new();
            suite.data(rows, width);
            suite.elementwise(rows, width);
            suite.losses(rows, width);
            suite.layer_norms(rows, width);
            suite.updates(rows * width);
            suite.log(rows);
            suite.check(rows, 2e-6, &format!("{rows} rows of {width}"));
        }
    }
}

#[test]
fn products_of_long_sums_follow_the_reference() {
    for shape in [[3, 1023, 33], [700, 65, 129], [65, 700, 600], [1025, 3, 10]] {
        Suite::new().check_products(shape);
    }
}
