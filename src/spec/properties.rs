//! What holds for every spec: a written one reads back the same, and garbage is told, never a panic.

use std::{path::Path, time::Duration};

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::{load::load_text, *};

fn read_any(text: &str, overrides: &[String]) -> Result<Loaded, Failure> {
    load_text(Path::new("x.toml"), Path::new("/folder"), text.to_owned(), overrides)
}

fn read(text: &str, overrides: &[String]) -> Result<Experiment, Failure> {
    match read_any(text, overrides)? {
        Loaded::Train(experiment) => Ok(*experiment),
        Loaded::Lab(experiment) => Err(experiment.failure([(0, Problem::at_key("kind", "of the lab"))])),
    }
}

fn positive() -> impl Strategy<Value = f64> {
    prop_oneof![1e-30..1e30_f64, Just(1e-8), Just(0.1), Just(1.0), Just(f32::MIN_POSITIVE.into()), Just(3e38)]
}

fn non_negative() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), positive()]
}

fn below_one() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 0.0..1.0_f64]
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![1..100_u64, Just(i64::MAX as u64)]
}

fn path() -> impl Strategy<Value = std::path::PathBuf> {
    "/[^\0/.]{1,12}/[a-z\"'\\\\\n ]{1,8}x".prop_map(Into::into)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[a-z ]{0,10}"]
}

fn devices() -> BoxedStrategy<Devices> {
    let request = prop_oneof![
        prop_oneof![(0..=1024_u32).prop_map(GpuCount::Exactly), Just(GpuCount::All)]
            .prop_map(Request::NumGpus),
        Just(Request::Use(vec![DeviceName::Cpu])),
        proptest::collection::btree_set(any::<u32>(), 1..4)
            .prop_map(|s| Request::Use(s.into_iter().map(DeviceName::Gpu).collect())),
    ];
    let on_missing = select(vec![OnMissing::Error, OnMissing::Clamp, OnMissing::Cpu]);
    let engine = select(vec![EngineChoice::Auto, EngineChoice::Serial, EngineChoice::Team]);
    let scaling = select(vec![
        (Scaling::Strong, LrScaling::None),
        (Scaling::Weak, LrScaling::None),
        (Scaling::Weak, LrScaling::Linear),
        (Scaling::Weak, LrScaling::Sqrt),
    ]);
    (request, on_missing, scaling, engine)
        .prop_map(|(request, on_missing, scaling, engine)| Devices {
            request,
            on_missing,
            scaling: scaling.0,
            lr_scaling: scaling.1,
            precision: Precision::F32,
            engine,
        })
        .boxed()
}

fn source() -> BoxedStrategy<Source> {
    let finite = prop_oneof![Just(-0.0), -1e30..1e30_f64];
    let synthetic = (vec(finite.clone(), 1..4), finite, non_negative(), 1..9_usize, 1..9_usize).prop_map(
        |(weights, bias, noise, train_rows, validation_rows)| {
            Source::SyntheticRegression(SyntheticRegression {
                weights,
                bias,
                noise,
                train_rows,
                validation_rows,
            })
        },
    );
    let split = || prop_oneof![path().prop_map(Ok), (0.001..1.0_f64).prop_map(Err)];
    let missing = select(vec![Missing::Error, Missing::Mean, Missing::Drop]);
    let csv = (
        (path(), text(), option::of(Just(vec!["a".to_owned(), "b\"".to_owned()])), split()),
        (missing, any::<bool>(), select(vec![',', ';', '\t', '|']), any::<bool>()),
    );
    let csv = csv.prop_map(|((path, target, features, split), (missing, standardize, delimiter, header))| {
        Source::Csv(Csv {
            path,
            target: format!("target {target}"),
            features,
            categorical: vec!["c".to_owned()],
            ignore: vec!["".to_owned()],
            missing,
            standardize,
            standardize_target: false,
            delimiter,
            header,
            validation_path: split.clone().ok(),
            validation_fraction: split.err(),
        })
    });
    let idx = (path(), path(), split(), positive()).prop_map(|(images, labels, split, scale)| {
        let (validation_images, validation_labels) = (split.clone().ok(), split.clone().ok());
        Source::Idx(Idx {
            images,
            labels,
            validation_images,
            validation_labels,
            validation_fraction: split.err(),
            scale,
        })
    });
    let npy = (path(), path(), split()).prop_map(|(features, labels, split)| {
        let (validation_features, validation_labels) = (split.clone().ok(), split.clone().ok());
        let validation_fraction = split.err();
        Source::Npy(Npy { features, labels, validation_features, validation_labels, validation_fraction })
    });
    prop_oneof![synthetic, csv, idx, npy].boxed()
}

fn model() -> BoxedStrategy<Model> {
    let linear =
        (1..9_usize, option::of(1..9_usize), any::<bool>()).prop_map(|(out_features, in_features, bias)| {
            Layer::Linear(Linear { out_features, in_features, bias })
        });
    let layer = prop_oneof![
        linear,
        select(vec![Layer::Relu, Layer::Gelu, Layer::Tanh, Layer::Sigmoid]),
        below_one().prop_map(|p| Layer::Dropout { p }),
        non_negative().prop_map(|eps| Layer::LayerNorm { eps }),
    ];
    let init = prop_oneof![
        select(vec![Init::Pytorch, Init::XavierUniform, Init::KaimingNormal]),
        non_negative().prop_map(|std| Init::Normal { std }),
        path().prop_map(Init::File),
    ];
    let loss = select(vec![Loss::Mse, Loss::L1, Loss::Huber, Loss::CrossEntropy]);
    (vec(layer, 1..5), loss, init).prop_map(|(layers, loss, init)| Model { layers, loss, init }).boxed()
}

fn optimizer() -> BoxedStrategy<Optimizer> {
    let sgd = (positive(), positive(), any::<bool>(), non_negative()).prop_map(
        |(lr, momentum, nesterov, weight_decay)| Optimizer::Sgd(Sgd { lr, momentum, nesterov, weight_decay }),
    );
    let adaptive = || (positive(), below_one(), below_one(), non_negative(), non_negative());
    let adam = adaptive().prop_map(|(lr, beta1, beta2, eps, weight_decay)| {
        Optimizer::Adam(Adam { lr, beta1, beta2, eps, weight_decay })
    });
    let adamw = adaptive().prop_map(|(lr, beta1, beta2, eps, weight_decay)| {
        Optimizer::Adamw(AdamW { lr, beta1, beta2, eps, weight_decay })
    });
    let rmsprop = (positive(), below_one(), non_negative(), non_negative(), any::<bool>(), non_negative());
    let rmsprop = rmsprop.prop_map(|(lr, alpha, eps, momentum, centered, weight_decay)| {
        Optimizer::Rmsprop(Rmsprop { lr, alpha, eps, momentum, centered, weight_decay })
    });
    prop_oneof![sgd, adam, adamw, rmsprop].boxed()
}

fn curve() -> BoxedStrategy<Curve> {
    let one_cycle = (positive(), option::of(count()), below_one(), any::<bool>(), positive()).prop_map(
        |(max_lr, total_steps, pct_start, flag, factor)| {
            Curve::OneCycle(OneCycle {
                max_lr,
                total_steps,
                pct_start,
                anneal_strategy: if flag { Anneal::Cos } else { Anneal::Linear },
                cycle_momentum: flag,
                base_momentum: 0.5,
                max_momentum: 0.75,
                div_factor: factor,
                final_div_factor: factor,
                three_phase: !flag,
            })
        },
    );
    prop_oneof![
        (count(), positive()).prop_map(|(step_size, gamma)| Curve::Step(Step { step_size, gamma })),
        positive().prop_map(|gamma| Curve::MultiStep(MultiStep { milestones: vec![1, 5, 9], gamma })),
        positive().prop_map(|gamma| Curve::Exponential(Exponential { gamma })),
        (option::of(count()), non_negative())
            .prop_map(|(t_max, eta_min)| Curve::Cosine(Cosine { t_max, eta_min })),
        (1e-9..1.0_f64, 0.0..1.0_f64, count()).prop_map(|(start_factor, end_factor, total_iters)| {
            Curve::Linear(LinearRamp { start_factor, end_factor, total_iters })
        }),
        one_cycle,
    ]
    .boxed()
}

fn schedule() -> BoxedStrategy<Schedule> {
    let chain = (vec((count(), curve()), 0..3), curve()).prop_map(|(links, last)| {
        let links = links.into_iter().map(|(steps, curve)| Stage { steps: Some(steps), curve });
        Rule::Chain { chain: links.chain([Stage { steps: None, curve: last }]).collect() }
    });
    let moving =
        (select(vec![Interval::Step, Interval::Epoch]), prop_oneof![curve().prop_map(Rule::One), chain])
            .prop_map(|(interval, rule)| Schedule { interval, rule });
    prop_oneof![Just(Schedule::CONSTANT), moving].boxed()
}

fn trainer() -> BoxedStrategy<Trainer> {
    let time = (0..3_000_000_000_u64, 1..1_000_000_000_u32).prop_map(|(s, ns)| Duration::new(s, ns));
    let stopping = (0..9_u64, non_negative()).prop_map(|(patience, min_delta)| EarlyStopping {
        metric: Monitor::ValidationLoss,
        patience,
        min_delta,
    });
    (count(), option::of(count()), option::of(time), non_negative(), count(), option::of(stopping))
        .prop_map(
            |(max_epochs, max_steps, max_time, gradient_clip_val, validate_every_epochs, early_stopping)| {
                Trainer {
                    max_epochs,
                    max_steps,
                    max_time,
                    gradient_clip_val,
                    validate_every_epochs,
                    early_stopping,
                }
            },
        )
        .boxed()
}

fn logging() -> impl Strategy<Value = Logging> {
    let policy = select(vec![Policy::Immediate, Policy::Buffered, Policy::PerEpoch, Policy::Off]);
    (policy, option::of(count()), any::<bool>()).prop_map(|(policy, flush_every, more)| Logging {
        policy,
        flush_every: flush_every.filter(|_| policy == Policy::Buffered),
        metrics: if more { vec![Metric::Loss, Metric::Lr, Metric::GradNorm] } else { vec![Metric::Loss] },
        trace: more,
        system_every_s: more.then_some(0.25),
    })
}

prop_compose! {
    fn spec()(
        name in "[a-zA-Z0-9_ä][a-zA-Z0-9._=+-]{0,20}",
        description in text(),
        seed in prop_oneof![0..100_u64, Just(MAX_SEED)],
        devices in devices(),
        (batch_size, shuffle) in (1..999_usize, any::<bool>()),
        placement in select(vec![Placement::Auto, Placement::Resident, Placement::Streamed]),
        source in source(),
        mut model in model(),
        optimizer in optimizer(),
        schedule in schedule(),
        trainer in trainer(),
        logging in logging(),
    ) -> Spec {
        if matches!(source, Source::SyntheticRegression(_)) && model.loss.classifies() {
            model.loss = Loss::Huber;
        }
        let data = Data { batch_size, shuffle, placement, source };
        Spec { name, description, seed, kind: Kind::Train, devices, data, model, optimizer, schedule, trainer, logging }
    }
}

proptest! {
    #[test]
    fn a_resolved_spec_reads_back_the_same(spec in spec()) {
        let text = spec.to_toml();
        let experiment = read(&text, &[]).map_err(|f| TestCaseError::fail(format!("{text}\n{f}")))?;
        prop_assert_eq!(&experiment.trials[0].spec, &spec, "{}", text);
        prop_assert_eq!(experiment.hash8(), spec.hash8());
    }

    #[test]
    fn garbage_is_told(text in any::<String>(), overrides in vec(any::<String>(), 0..3)) {
        is_told(&text, &overrides);
    }

    #[test]
    fn a_damaged_spec_is_told(
        template in select(templates::TEMPLATES.to_vec()),
        cuts in vec((any::<prop::sample::Index>(), 0..4_usize, "[\\[\\]{}=\"'.,\n# a-z0-9-]{0,3}"), 1..4),
        overrides in vec("~?[a-z_.0-9]{0,24}=?[\\[\\]{}=\"'., a-z0-9-]{0,6}", 0..2),
    ) {
        let mut text: Vec<char> = template.text.chars().collect();
        for (at, length, insert) in cuts {
            let at = at.index(text.len());
            let end = (at + length).min(text.len());
            text.splice(at..end, insert.chars());
        }
        is_told(&text.into_iter().collect::<String>(), &overrides);
    }

    #[test]
    fn overrides_of_real_keys_are_told(
        key in select(vec![
            "seed", "name", "data", "data.batch_size", "model.layers", "model.layers.0", "model.layers.0.linear.in_features",
            "optimizer", "optimizer.sgd", "optimizer.sgd.lr", "devices.num_gpus", "devices.use", "sweep", "sweep.grid",
            "schedule.chain", "trainer.max_time", "logging.metrics", "logging.metrics.0",
        ]),
        value in "[\\[\\]{}=\"'., a-z0-9-]{0,12}",
        delete in any::<bool>(),
    ) {
        let template = templates::find("sweep").map_or("", |t| t.text);
        let arguments = [if delete { format!("~{key}") } else { format!("{key}={value}") }];
        is_told(template, &arguments);
    }
}

/// An experiment, or at least one problem that can be shown.
fn is_told(text: &str, overrides: &[String]) {
    match read(text, overrides) {
        Ok(experiment) => assert!(!experiment.trials.is_empty()),
        Err(failure) => {
            assert!(!failure.problems.is_empty());
            assert!(failure.render(false).starts_with("error: "));
            assert!(failure.render(true).contains("error"));
        }
    }
}
