//! What a run says of itself beside its figures: before its first step, of what was found on the way, and at its end.

use crate::{
    data::Dataset,
    device::Grain,
    event::{Event, Header, Level},
    host,
    plan::{AllReduceMethod, AllReducePlan, Engine, Trial},
    record::{EventSender, Findings},
    spec::{Layer, Policy},
    train::{self, Closed},
};

/// How finely a trial's steps are timed and by whose clock, in words.
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

/// What the GPUs did that a reader of the figures must know.
pub fn report_findings(findings: &Findings, sender: &EventSender) -> Result<(), Closed> {
    for throttled in &findings.throttled {
        let text = format!("a limit of power or heat held clocks back, so that times mean less: {throttled}");
        send(sender, Event::Notice(Level::Warning, text))?;
    }
    for (name, joules) in &findings.energy_j {
        send(sender, Event::Notice(Level::Info, format!("{name} took {joules:.1} J")))?;
    }
    Ok(())
}

pub fn send(sender: &EventSender, event: Event) -> Result<(), Closed> {
    sender.send(event).map_err(|_| Closed)
}

/// The first events: what is known before the first step.
pub fn begin(
    trial: &Trial,
    dataset: &Dataset,
    devices: &[String],
    sender: &EventSender,
) -> Result<(), Closed> {
    let header = Header {
        name: trial.spec.name.clone(),
        devices_requested: trial.devices.requested.clone(),
        devices_used: devices.to_vec(),
        virtual_devices: trial.devices.any_virtual(),
        scaling: trial.spec.devices.scaling.name().into(),
        scaling_note: trial.scaling_in_words(),
        precision: trial.spec.devices.precision.name().into(),
        engine: trial.engine.name().into(),
        metrics: trial.spec.logging.metrics.clone(),
        classifies: trial.spec.model.loss.classifies(),
        epoch_means: trial.spec.logging.policy == Policy::PerEpoch,
        train_rows: trial.facts.train_rows as u64,
        steps_planned: trial.steps,
        epochs_planned: trial.steps.div_ceil(trial.steps_per_epoch),
        max_time_s: trial.spec.trainer.max_time.map(|most| most.as_secs_f64()),
        build: host::BUILD,
    };
    send(sender, Event::Started(Box::new(header)))?;
    let info = |text: String| send(sender, Event::Notice(Level::Info, text));
    if let Some(note) = &trial.devices.note {
        send(sender, Event::Notice(Level::Warning, note.clone()))?;
    }
    info(format!("engine {}: {}", trial.engine.name(), trial.engine_reason))?;
    if !trial.engine.is_gpu() {
        info(format!("products by {}, denormals flushed to zero", trial.instruction_set))?;
    }
    info(format!("steps are timed by {}", timed_by(trial)))?;
    trial.scaling_in_words().map_or(Ok(()), info)?;
    for remark in trial.remarks() {
        send(sender, Event::Notice(Level::Warning, remark))?;
    }
    dataset.notes.iter().try_for_each(|note| info(note.clone()))
}

/// How gradients are summed. Where only GPUs are used, to go through the host is what one would not expect.
pub fn report_sums(trial: &Trial, sums: &AllReducePlan, sender: &EventSender) -> Result<(), Closed> {
    let unexpected = sums.by == AllReduceMethod::Host && trial.gpus.len() == trial.world_size();
    let level = if unexpected { Level::Warning } else { Level::Info };
    send(sender, Event::Notice(level, format!("gradients are summed {}", sums.in_words())))
}

/// Where the data were made by a known formula and the model can be it: how far the weights are off.
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
    send(sender, Event::Notice(Level::Info, text))
}
