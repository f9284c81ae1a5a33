//! What a training reports besides its metrics: before its first step and at its end.

use std::time::Duration;

use super::{device_group::bf16_unit, resumed::Resumed};
use crate::{
    data::Dataset,
    device::Grain,
    event::{Best, BestSoFar, Closed, Event, Header, Level},
    host,
    plan::{AllReduceMethod, AllReducePlan, Engine, Trial},
    record::{self, EventSender},
    spec::Layer,
    train::{self, DeviceGroup},
    units,
    vector::matmul::Kernel,
};

/// The granularity and clock of the step times, in words.
pub fn timed_by(trial: &Trial) -> &'static str {
    match (trial.engine, train::grain(trial)) {
        (Engine::Launch, _) => "phases, by events of the GPU, which are read later",
        (engine, _) if engine.is_gpu() => {
            "blocks of steps, by events of the GPU, which are read later: this engine runs many steps as one piece of work"
        }
        (_, Grain::Phases) => "phases",
        (_, Grain::Blocks) => {
            "blocks of steps: one takes less than 10 µs by the cost model, and a clock would be much of that"
        }
    }
}

/// Sends the first events: what is known before the first step.
pub fn begin(
    trial: &Trial,
    dataset: &Dataset,
    resumed: Option<&Resumed>,
    sender: &EventSender,
) -> Result<(), Closed> {
    let monitor = trial.spec.trainer.monitor;
    let best = resumed.and_then(|resumed| resumed.state.facts.best.as_ref()).map(|best| {
        let BestSoFar { value, epoch, step, .. } = *best;
        Best { monitor, value, epoch, step, is_restored: false }
    });
    let header = Header {
        name: trial.spec.name.to_string(),
        lab: None,
        lab_unit: "",
        devices_requested: trial.devices.requested.clone(),
        devices_used: trial.devices.used_names(),
        virtual_devices: trial.devices.any_virtual(),
        scaling: trial.spec.devices.scaling.name().into(),
        precision: trial.spec.devices.precision.name().into(),
        engine: trial.engine.name().into(),
        metrics: trial.spec.logging.metrics.clone(),
        classifies: trial.spec.model.loss.classifies(),
        weak_scaling: record::weak_scaling(trial),
        monitor: Some(monitor),
        best,
        data_digest: dataset.digest.clone(),
        peak_planned_bytes: Some(trial.footprint.in_host_memory(&trial.devices.used)),
        train_rows: trial.facts.train_rows as u64,
        steps_planned: trial.steps,
        epochs_planned: trial.steps.div_ceil(trial.steps_per_epoch),
        resumed_after: resumed.map(|resumed| resumed.state.facts.step),
        max_time_s: trial.spec.trainer.max_time.map(|most| most.as_secs_f64()),
        may_skip_steps: trial.spec.trainer.early_stopping.is_some(),
        build: host::BUILD,
    };
    let info = |text: String| Event::Notice(Level::Info, text);
    let warning = |text: String| Event::Notice(Level::Warning, text);
    let mut events = vec![Event::Started(Box::new(header))];
    events.extend(trial.devices.lack.iter().map(|lack| warning(lack.to_string())));
    events.push(info(format!("engine {}", record::engine(trial))));
    if !trial.engine.is_gpu() {
        let unit = bf16_unit(trial).unwrap_or(Kernel::detect().name());
        events.push(info(format!("products by {unit}, denormals flushed to zero")));
    }
    events.push(info(format!("steps are timed by {}", timed_by(trial))));
    events.extend(record::weak_scaling(trial).map(info));
    events.extend(record::remarks(trial, &[]).into_iter().map(warning));
    let damaged = resumed.iter().flat_map(|resumed| &resumed.damaged);
    events.extend(damaged.map(|damaged| {
        warning(format!("an older checkpoint serves, since a newer one cannot be used: {damaged}"))
    }));
    events.extend(resumed.map(|Resumed { name, .. }| info(format!("resumed from checkpoints/{name}"))));
    events.extend(dataset.notes.iter().cloned().map(info));
    sender.send_all(events)
}

/// Sends what was found while loading the devices: the time it took, what products gain, warnings, and how
/// gradients are summed.
pub fn report_devices(
    trial: &Trial,
    (loading, group, warnings, sums): (Duration, &mut DeviceGroup, &[String], &Option<AllReducePlan>),
    sender: &EventSender,
) -> Result<(), Closed> {
    if trial.engine.is_gpu() {
        let text = format!(
            "loaded and warmed up in {}, before the first step: kernels, memory, graphs, connections",
            units::seconds(loading.as_secs_f64())
        );
        sender.send(Event::Notice(Level::Info, text))?;
    }
    // A device that is lost is reported by its next command.
    if let Some(gains) = group.product_gains().ok().flatten() {
        sender.send(Event::Notice(Level::Info, gains))?;
    }
    for warning in warnings {
        sender.send(Event::Notice(Level::Warning, warning.clone()))?;
    }
    let Some(sums) = sums else { return Ok(()) };
    // With GPUs only, nobody expects sums through the host.
    let unexpected =
        sums.by == AllReduceMethod::Host && trial.devices.used.iter().all(|place| place.is_real_gpu());
    let level = if unexpected { Level::Warning } else { Level::Info };
    sender.send(Event::Notice(level, format!("gradients are summed {}", record::all_reduce(sums))))
}

/// For synthetic data and a single linear layer: the largest error of the trained weights.
pub fn compare_with_truth(
    trial: &Trial,
    dataset: &Dataset,
    values: &[f32],
    sender: &EventSender,
) -> Result<(), Closed> {
    let (Some((weights, bias)), [Layer::Linear(_)]) = (&dataset.truth, &trial.spec.model.layers[..]) else {
        return Ok(());
    };
    let mut parameters = trial.programs.layout.parameters.iter();
    let Some(weight) = parameters.next() else { return Ok(()) };
    let own = &values[weight.offset..weight.offset + weight.elements()];
    let worst = own.iter().zip(weights).map(|(w, t)| (f64::from(*w) - t).abs()).fold(0.0, f64::max);
    let mut text = format!("the weights are within {worst:.2e} of those that made the data");
    if let Some(own) = parameters.next() {
        let off = (f64::from(values[own.offset]) - bias).abs();
        text.push_str(&format!(", the bias within {off:.2e}"));
    }
    sender.send(Event::Notice(Level::Info, text))
}
