//! Kernels compiled for one program: every loss and odd sizes against the reference and the interpreter, and
//! proof that no barrier is superfluous. Whole epochs under every rule are in `programs`, with the other
//! engines.

use runner::{
    program::{
        Adam, Hyper, LossKind, Options, Programs, Role, StepSource, UpdateRule, lower, reference::Memory,
    },
    spec::Layer,
};

use super::{
    driver::{Driver, Order},
    machine::{Engine, Machine},
};
use crate::conformance::{Bench, Numbers, bits, close, gradients::linear, programs::weight};

/// An experiment with full batches and one smaller batch.
pub struct Job {
    pub layers: Vec<Layer>,
    pub loss: LossKind,
    pub features: usize,
    pub targets: usize,
    pub weighted: bool,
    pub batch: usize,
    pub rule: UpdateRule,
}

pub const ADAM: UpdateRule = UpdateRule::Adam(Adam {
    beta2: 0.99,
    one_minus_beta2: 0.01,
    eps: 1e-3,
    weight_decay: 0.0,
    decoupled: false,
});

pub const STEPS: usize = 5;

impl Job {
    /// 64-32-10 under Adam.
    pub fn digits() -> Self {
        let layers = vec![linear(32, true), Layer::Relu, linear(10, true)];
        let loss = LossKind::CrossEntropy;
        Self { layers, loss, features: 64, targets: 1, weighted: false, batch: 32, rule: ADAM }
    }

    pub fn linear_regression() -> Self {
        Self {
            layers: vec![linear(1, true)],
            loss: LossKind::Mse,
            features: 2,
            targets: 1,
            weighted: false,
            batch: 32,
            rule: UpdateRule::PLAIN_SGD,
        }
    }

    pub fn programs(&self) -> Programs {
        lower(&Options {
            weighted: self.weighted,
            rule: self.rule,
            log_slots: 3 * (STEPS + 1),
            last: Some(self.batch.div_ceil(2)),
            ordered: true,
            fold_update: true,
            ..Options::new(&self.layers, self.loss, [self.features, self.targets], self.batch)
        })
    }

    pub fn bench(&self, programs: &Programs) -> Bench {
        let mut bench = Bench::new(Some(&programs.layout));
        let (mut numbers, rows) = (Numbers(31), self.batch * 3 * (STEPS + 1));
        bench.contents[0] = numbers.take(rows * self.features);
        bench.contents[1] = match self.loss.classifies() {
            true if self.weighted => {
                (0..rows).map(|row| row * 3 % 10).flat_map(|class| [class as f32, weight(class)]).collect()
            }
            true => (0..rows).map(|row| (row * 3 % 10) as f32).collect(),
            false => numbers.take(rows * (self.targets + usize::from(self.weighted))),
        };
        bench.contents[4] = (0..rows).map(|i| (i * 7 % rows) as f32).collect();
        for parameter in &programs.layout.parameters {
            let scale = 1.0 / (parameter.shape[0] as f32).sqrt();
            for i in parameter.offset..parameter.offset + parameter.elements() {
                bench.contents[programs.layout.values.0][i] = numbers.next() * scale;
            }
        }
        bench
    }
}

pub fn hyper() -> Vec<Hyper> {
    let hyper = |t| Hyper {
        rate: 0.05 / (t + 1) as f32,
        first: 0.2,
        correction: 0.9,
        decay_factor: 1.0,
        loss_scale: 1.2,
    };
    (0..=STEPS).map(hyper).collect()
}

/// The contents of all lasting buffers after several full steps and a smaller one.
fn run(driver: &Driver, engine: Engine, programs: &Programs, bench: &Bench) -> Vec<Vec<f32>> {
    let (mut machine, hyper) = (Machine::new(driver, bench), hyper());
    machine.run(engine, &programs.train, STEPS, &hyper[..STEPS]);
    machine.run(engine, programs.train_last.as_ref().unwrap(), 1, &hyper[STEPS..]);
    kept(bench, &machine.read()).map(|(_, numbers)| numbers).collect()
}

pub fn kept(bench: &Bench, all: &[Vec<f32>]) -> impl Iterator<Item = (usize, Vec<f32>)> {
    let lasts = |role: Role| matches!(role, Role::Values | Role::State | Role::Log);
    let buffers = bench.layout.buffers.iter().enumerate().skip(5);
    buffers
        .filter(move |(_, b)| lasts(b.role))
        .map(|(i, _)| (i, all[i - 5].clone()))
        .collect::<Vec<_>>()
        .into_iter()
}

/// Runs a job in three orders of threads: the numbers are the reference's, and the bits are the same.
pub fn check(driver: &Driver, engine: Engine, job: &Job, what: &str) {
    let programs = job.programs();
    let bench = job.bench(&programs);
    let mut memory: Memory = bench.memory();
    for (step, hyper) in hyper().into_iter().enumerate() {
        memory.hyper = hyper;
        let program = if step < STEPS { &programs.train } else { programs.train_last.as_ref().unwrap() };
        memory.run(&program.instructions);
        memory.position += program.batch;
        memory.step += 1;
    }
    let mut first = None;
    for order in Order::ALL {
        driver.order(order);
        let got = run(driver, engine, &programs, &bench);
        match &first {
            Some(first) => assert!(*first == bits(&got), "{what}, {order:?}: other bits"),
            None => {
                for ((i, want), got) in kept(&bench, &vec![Vec::new(); bench.layout.buffers.len()]).zip(&got)
                {
                    drop(want);
                    close(
                        got,
                        &memory.buffers[i],
                        1e-5,
                        &format!("{what}: {}", bench.layout.buffers[i].name),
                    );
                }
                first = Some(bits(&got));
            }
        }
    }
}

#[test]
fn every_loss_at_odd_sizes_follows_the_reference() {
    let Some(driver) = Driver::get() else { return };
    for (loss, outputs, weighted) in [
        (LossKind::Mse, 3, false),
        (LossKind::L1, 1, false),
        (LossKind::Huber, 5, false),
        (LossKind::CrossEntropy, 10, false),
        (LossKind::CrossEntropy, 10, true),
        (LossKind::Mse, 1, true),
        (LossKind::Huber, 5, true),
    ] {
        let targets = if loss.classifies() { 1 } else { outputs };
        for (features, hidden, batch, rule) in [
            (7, 9, 13, ADAM),
            (64, 32, 32, UpdateRule::PLAIN_SGD),
            (1, 1, 1, UpdateRule::PLAIN_SGD),
            (30, 50, 70, ADAM),
        ] {
            let layers = vec![linear(hidden, true), Layer::Tanh, linear(outputs, true)];
            let what = format!("{loss:?} of {targets}, {features}-{hidden}-{outputs} of {batch}");
            check(
                driver,
                Engine::TensorBlock,
                &Job { layers, loss, features, targets, weighted, batch, rule },
                &what,
            );
        }
    }
}

#[test]
fn the_jobs_that_it_is_for_follow_the_reference() {
    let Some(driver) = Driver::get() else { return };
    check(driver, Engine::Compiled, &Job::digits(), "digits without tensor cores");
    check(driver, Engine::TensorBlock, &Job::digits(), "digits");
    check(driver, Engine::Compiled, &Job::linear_regression(), "linear regression");
    let deep = vec![
        linear(64, true),
        Layer::Relu,
        linear(64, true),
        Layer::Silu,
        linear(64, true),
        Layer::Sigmoid,
        linear(1, true),
    ];
    check(
        driver,
        Engine::TensorBlock,
        &Job { layers: deep, batch: 64, features: 10, ..Job::linear_regression() },
        "three hidden layers",
    );
}

/// Two epochs and a part of a third, each with a smaller batch at its end and an order of its own.
#[test]
fn one_launch_runs_several_epochs() {
    let Some(driver) = Driver::get() else { return };
    let layers = vec![Layer::Dropout { p: 0.2 }, linear(9, true), Layer::Tanh, linear(1, true)];
    several_epochs(&Job { layers, features: 7, batch: 13, ..Job::linear_regression() });
    several_epochs(&Job { features: 3, batch: 13, rule: ADAM, ..Job::linear_regression() });
    let layers = vec![linear(1, false)];
    several_epochs(&Job { layers, loss: LossKind::Huber, batch: 70, ..Job::linear_regression() });
    // A weight that stays in the blocks of a grid; statistics of rows.
    let layers = vec![linear(129, true), Layer::LayerNorm { eps: 0.0 }, Layer::Relu, linear(10, true)];
    several_epochs(&Job { layers, features: 65, batch: 13, ..Job::digits() });
    // One buffer for the batch, since two do not fit.
    let layers = vec![linear(2, true), Layer::Gelu, linear(3, true)];
    let job = Job { layers, features: 400, targets: 3, batch: 64, rule: ADAM, ..Job::linear_regression() };
    let programs = job.programs();
    let source = Machine::new(driver, &job.bench(&programs)).source(Engine::TensorBlock, &programs.train);
    assert!(source.text.contains("gather_rows"), "{}", source.text);
    several_epochs(&job);
}

fn several_epochs(job: &Job) {
    let Some(driver) = Driver::get() else { return };
    let programs = job.programs();
    let (full, last) = (&programs.train, programs.train_last.as_ref().unwrap());
    let rows = STEPS * full.batch + last.batch;
    let mut bench = job.bench(&programs);
    // Nothing is left of earlier steps where rows of a smaller batch are not.
    for (buffer, contents) in programs.layout.buffers.iter().zip(&mut bench.contents) {
        if buffer.role == Role::Activation {
            contents.fill(f32::NAN);
        }
    }
    bench.contents[4] = (0..3 * rows).map(|i| (i * 7 % rows) as f32).collect();
    bench.contents[4][rows..2 * rows].reverse();
    let turns: Vec<bool> = (0..2 * (STEPS + 1) + 3).map(|step| step % (STEPS + 1) == STEPS).collect();
    let hyper: Vec<Hyper> = turns.iter().enumerate().map(|(i, _)| hyper()[i % STEPS]).collect();
    let mut memory: Memory = bench.memory();
    // Dropout counts on all bits of the step.
    memory.step = (1 << 32) - 7;
    for (is_last, hyper) in turns.iter().zip(&hyper) {
        memory.hyper = *hyper;
        let program = if *is_last { last } else { full };
        memory.run(&program.instructions);
        memory.position += program.batch;
        memory.step += 1;
        if *is_last {
            memory.position = 0;
            memory.buffers[4].rotate_left(rows);
        }
    }
    let mut whole = None;
    let compiled = [Engine::TensorBlock, Engine::CompiledGrid, Engine::TensorGrid];
    // A launch may begin with the smaller batch.
    let compiled = compiled.into_iter().flat_map(|engine| [[15, 0], [5, 10]].map(|parts| (engine, parts)));
    let others = [Engine::Walk { threads: 64 }, Engine::Kernels { blocks: 2 }].map(|engine| (engine, [0; 2]));
    for (engine, parts) in compiled.chain(others) {
        let mut machine = Machine::new(driver, &bench);
        (machine.at.rows, machine.at.step) = (rows as u64, (1 << 32) - 7);
        let mut first = 0;
        if engine.is_compiled() {
            let source = machine.try_source(engine, full, Some(last)).unwrap();
            for steps in parts {
                let module = machine.compiled(&source.text);
                machine.run_compiled(module, &source, full, steps, &hyper[first..first + steps]);
                first += steps;
            }
        } else {
            for (is_last, hyper) in turns.iter().zip(&hyper) {
                machine.run(engine, if *is_last { last } else { full }, 1, &[*hyper]);
            }
        }
        let all = machine.read();
        for (i, got) in kept(&bench, &all) {
            close(&got, &memory.buffers[i], 1e-5, &format!("{engine:?}: {}", bench.layout.buffers[i].name));
        }
        if engine.is_compiled() {
            let left = bits(&kept(&bench, &all).map(|(_, numbers)| numbers).collect::<Vec<_>>());
            if let Some((known, whole)) = whole.replace((engine, left.clone())).filter(|own| own.0 == engine)
            {
                assert_eq!(whole, left, "{known:?}: a launch may end anywhere");
            }
        }
    }
}

/// Removes each barrier in turn. Then some order of threads must give different numbers.
#[test]
fn no_barrier_can_be_missing() {
    let Some(driver) = Driver::get() else { return };
    let job = Job::digits();
    let programs = job.programs();
    let bench = job.bench(&programs);
    let left = |source: &StepSource| {
        let mut all = Vec::new();
        for order in Order::ALL {
            driver.order(order);
            let mut machine = Machine::new(driver, &bench);
            let module = machine.compiled(&source.text);
            machine.run_compiled(module, source, &programs.train, STEPS, &hyper()[..STEPS]);
            all.push(bits(&kept(&bench, &machine.read()).map(|(_, numbers)| numbers).collect::<Vec<_>>()));
        }
        all
    };
    let source = Machine::new(driver, &bench).source(Engine::TensorBlock, &programs.train);
    let right = left(&source);
    assert!(right.iter().all(|bits| *bits == right[0]));
    const BARRIER: &str = "        __syncthreads();\n";
    let barriers: Vec<usize> = source.text.match_indices(BARRIER).map(|(at, _)| at).collect();
    assert_eq!(barriers.len() + 1, source.barriers, "one more ends the step:\n{}", source.text);
    for at in barriers {
        let text = source.text[..at].to_owned() + &source.text[at + BARRIER.len()..];
        let found = left(&StepSource { text, ..source.clone() });
        assert!(
            found.iter().any(|bits| *bits != right[0]),
            "nothing shows that a barrier is missing:\n{}",
            source.text
        );
    }
}

/// What makes a step fast: few barriers, rows fetched ahead, and updates fused with the gradients.
#[test]
fn a_step_has_few_barriers() {
    let Some(driver) = Driver::get() else { return };
    for (job, barriers) in
        [(Job::digits(), 5), (Job { features: 40, batch: 70, ..Job::linear_regression() }, 4)]
    {
        let programs = job.programs();
        let source = Machine::new(driver, &job.bench(&programs)).source(Engine::TensorBlock, &programs.train);
        assert_eq!(source.barriers, barriers, "{}", source.text);
        assert!(source.text.contains("rows_ahead<") && !source.text.contains("gather_op"), "{}", source.text);
        let learns = matches!(job.rule, UpdateRule::Adam(_));
        assert_eq!(source.text.contains("learn(Adam{"), learns, "{}", source.text);
        assert!(!source.text.contains("adam_op"), "{}", source.text);
    }
}
