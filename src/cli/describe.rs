//! Describes one planned trial, for `runner check`.

use super::page::Page;
use crate::{
    data::Dataset,
    plan::{Described, DeviceId, Engine, ExpectedTime, Machine, Movement, Trial, sum_of, transfers},
    program::StepSource,
    record::{self, cause, devices_in_words, text_table, too_busy},
    run::{Rehearsal, Unmeasured, bf16_unit},
    spec::{Every, Monitor, Precision, Rule},
    train::LrScheduler,
    units,
};

/// Maximum number of remarks about the data shown; a wide table may have one per column, and `run.log` has
/// all of them.
const NOTES: usize = 8;

/// About how many steps of a schedule are looked at for its highest rate.
const MOST_LOOKS: u64 = 10_000;

/// The page: a line per fact, the layers as a table. `measured` is what a rehearsal found; `lines` are names and values to show with
/// the others.
pub fn describe(
    trial: &Trial,
    machine: &Machine,
    dataset: &Dataset,
    (measured, lines): (&Result<Rehearsal, Unmeasured>, &[(&str, String)]),
) -> String {
    let mut page = Page::new(&trial.spec.name);
    page.list("machine", other_machine(machine).into_iter());
    page.row("devices", devices_in_words(&trial.devices.requested, &trial.devices.used_names()));
    page.more(trial.devices.lack.as_ref().map(ToString::to_string));
    shares(&mut page, trial);
    data(&mut page, trial, &[dataset.summary(), dataset.notes.clone()].concat());
    model(&mut page, trial);
    page.row("optimizer", optimizer(trial));
    steps(&mut page, trial);
    checkpoints(&mut page, trial);
    cost(&mut page, trial, (machine, measured));
    page.row("engine", record::engine(trial));
    page.more(compiled_step(trial, machine));
    let on_cpu = trial.spec.devices.precision == Precision::Bf16 && !trial.engine.is_gpu();
    let unit = match machine.described {
        Some(_) => machine.bf16_unit.as_deref().filter(|_| on_cpu),
        None => bf16_unit(trial),
    };
    if let Some(unit) = unit {
        let tiles = units::bytes(trial.programs.packed_bytes(true));
        page.row(
            "precision",
            format!(
                "bf16 by {unit}: operands are rounded into {tiles} of tiles; sums and parameters are f32"
            ),
        );
    }
    moves(&mut page, trial);
    memory(&mut page, trial, machine);
    lines.iter().for_each(|(name, value)| page.row(name, value));
    if machine.described.is_none() {
        page.build();
    }
    page.into_text()
}

/// The machine, if it is not this one.
fn other_machine(machine: &Machine) -> Option<String> {
    let Described { file, .. } = machine.described.as_ref()?;
    let gpus = match &machine.gpus[..] {
        [] => "no GPU".to_owned(),
        [one] => one.model.clone(),
        [first, ..] => format!("{} of {}", units::counted(machine.gpus.len() as u64, "GPU"), first.model),
    };
    Some(format!("that of {file}: {gpus}; it is not here, so nothing is measured"))
}

/// The resources that a compiled step needs on its multiprocessor.
fn compiled_step(trial: &Trial, machine: &Machine) -> Option<String> {
    let gpu = trial.devices.used.first()?.real_gpu(machine).filter(|_| trial.engine == Engine::Compiled)?;
    let (precision, room) = (trial.spec.devices.precision, gpu.limits.step_room());
    let StepSource { blocks, threads, elements, barriers, .. } =
        *StepSource::get(&trial.programs, precision, room).ok()?;
    let [shared, room] = [4 * elements as u64, room.shared_bytes].map(units::bytes);
    if blocks > 1 {
        let rounds = match precision {
            Precision::F32 => "",
            Precision::Tf32 => "; some large products are in f32",
            Precision::Bf16 => "; large products round less than bf16: to tf32, or not at all",
        };
        return Some(format!(
            "a grid of {blocks} blocks of {threads} threads, with {shared} of shared memory each; {barriers} barriers of the \
             grid a step{rounds}"
        ));
    }
    if barriers == 0 && precision != Precision::F32 {
        return Some("one warp keeps the model in its registers, and computes in f32".to_owned());
    }
    Some(format!(
        "one block of {threads} threads keeps {shared} of {room} in shared memory; {barriers} barriers a step"
    ))
}

/// The share of a step that each of several devices does, and what they sum.
fn shares(page: &mut Page, trial: &Trial) {
    if trial.world_size() == 1 {
        return;
    }
    let mut runs: Vec<(usize, Vec<String>)> = Vec::new();
    for (name, programs) in trial.devices.used_names().into_iter().zip(trial.ranks()) {
        let rows = programs.train.rows;
        match runs.iter_mut().find(|(known, _)| *known == rows) {
            Some((_, names)) => names.push(name),
            None => runs.push((rows, vec![name])),
        }
    }
    let each = runs.iter().map(|(rows, names)| {
        let rows = units::counted(*rows as u64, "row");
        format!("{rows} of a step on {}", names.join(", "))
    });
    page.more(each.collect::<Vec<_>>());
    let bytes = units::bytes(sum_of(&trial.programs.train).map_or(0, |sum| 4 * sum.payload as u64));
    page.more([format!("all-reduce of {bytes} per step: the gradients, and the step's loss and metrics")]);
    page.more(trial.sums.as_ref().map(|sums| format!("summed {}", record::all_reduce(sums))));
    page.more(record::weak_scaling(trial));
}

fn memory(page: &mut Page, trial: &Trial, machine: &Machine) {
    let used = &trial.devices.used;
    let in_host = units::bytes(trial.footprint.in_host_memory(used));
    let free = units::bytes(machine.memory_available);
    if trial.devices.on_cpu() {
        let of_rows = trial.chunks.map_or(String::new(), |_| {
            let (bytes, count) = trial.footprint.chunks;
            let chunks = units::counted(count, "chunk");
            format!(", {} of it for {chunks} of rows at most", units::bytes(bytes))
        });
        return page.row("memory", format!("{in_host}{of_rows}, {free} free"));
    }
    let own = || used.iter().zip(&trial.footprint.devices);
    let on_gpus = own().filter_map(|(place, bytes)| {
        let free = machine.gpus.get(place.own_gpu()? as usize).map_or(0, |gpu| gpu.memory_free);
        let on = if trial.world_size() == 1 { "the device".to_owned() } else { place.to_string() };
        Some(format!("{} on {on}, {} free", units::bytes(*bytes), units::bytes(free)))
    });
    let mut lines: Vec<String> = on_gpus.collect();
    let virtual_devices = || own().filter(|(place, _)| matches!(place, DeviceId::Virtual(_)));
    let rows = match trial.chunks {
        Some(_) => "rows on their way",
        None => "rows",
    };
    let of_rows = units::bytes(trial.footprint.host);
    match virtual_devices().map(|(_, bytes)| *bytes).max() {
        None => lines.push(format!("{in_host} on the host, {of_rows} of it for {rows}: {free} free")),
        Some(most) => {
            let count = virtual_devices().count() as u64;
            let devices = units::counted(count, "virtual device");
            lines.push(format!("{in_host} for {devices}, all in the host's memory: {free} free"));
            let each = if count > 1 { "on each of them" } else { "on it" };
            let most = units::bytes(most);
            lines.push(format!("{most} {each}, {of_rows} for {rows}"));
        }
    }
    page.list("memory", lines.into_iter());
}

fn data(page: &mut Page, trial: &Trial, notes: &[String]) {
    let facts = trial.facts;
    let target = match facts.classes {
        Some(classes) => format!("{} classes", units::count(classes as u64)),
        None => units::counted(facts.targets as u64, "target"),
    };
    let features = units::counted(facts.features as u64, "feature");
    page.row("data", format!("{}: {features}, {target}", trial.spec.data.source.name()));
    let validation = match facts.validation_rows {
        0 => "none to validate on".to_owned(),
        rows => format!("{} to validate on", units::count(rows as u64)),
    };
    let placement = match trial.chunks {
        Some(chunks) => {
            let checked = if facts.in_file() { " from the file, and checked then" } else { "" };
            match chunks.train < facts.train_rows {
                true => {
                    format!("streamed in chunks of {}{checked}", units::counted(chunks.train as u64, "row"))
                }
                false => format!("streamed, an epoch in one chunk of rows{checked}"),
            }
        }
        None if facts.in_file() => "fetched from the file row by row, and checked then".to_owned(),
        None => format!("{} resident on the device", units::bytes(trial.data_bytes)),
    };
    let train = units::counted(facts.train_rows as u64, "row");
    page.more([format!("{train} to train on, {validation}; {placement}")]);
    page.more(notes.iter().take(NOTES).cloned());
    if notes.len() > NOTES {
        page.more([format!("and {} more such notes, in the run's run.log", notes.len() - NOTES)]);
    }
}

fn model(page: &mut Page, trial: &Trial) {
    let total = trial.programs.layout.parameter_count();
    let parameters = units::counted(total, "parameter");
    page.row("model", format!("{parameters}, {}; loss {}", units::bytes(total * 4), trial.spec.model.loss));
    let batch = trial.programs.train.batch;
    let rows = trial.layers.iter().map(|layer| {
        let shape = |width: usize| format!("[{batch}, {width}]");
        let parameters = if layer.parameters > 0 { units::count(layer.parameters) } else { String::new() };
        vec![
            layer.index.to_string(),
            layer.name.to_owned(),
            shape(layer.inputs),
            shape(layer.outputs),
            parameters,
        ]
    });
    let header = ["layer", "", "input", "output", "parameters"];
    page.more(text_table::lines(&header, &rows.collect::<Vec<_>>(), |place| place != 1));
}

/// What is said of counts if the run may end before its planned steps.
fn at_most(trial: &Trial) -> &'static str {
    let trainer = &trial.spec.trainer;
    if trainer.early_stopping.is_some() || trainer.max_time.is_some() { " at most" } else { "" }
}

/// A figure that grows with the run: the least, where the planned steps are more than can be counted, or it is itself.
fn of_run(trial: &Trial, value: u64) -> String {
    // What does not grow with the run is far below.
    let is_least = value == u64::MAX || (trial.steps == u64::MAX && value >> 50 > 0);
    format!("{}{}", if is_least { "at least " } else { "" }, units::count(value))
}

fn steps(page: &mut Page, trial: &Trial) {
    let at_most = at_most(trial);
    let at_least = if trial.steps == u64::MAX { "at least " } else { "" };
    let epochs = units::counted(trial.steps.div_ceil(trial.steps_per_epoch), "epoch");
    let rows = units::counted(trial.programs.train.batch as u64, "row");
    let last = trial.programs.train_last.as_ref();
    let last = last.map_or(String::new(), |p| format!(", the last of them on {}", p.batch));
    let per_epoch = units::count(trial.steps_per_epoch);
    page.row(
        "steps",
        format!(
            "{}{at_most}, in {at_least}{epochs}; {per_epoch} per epoch on {rows} each{last}",
            of_run(trial, trial.steps)
        ),
    );
}

/// How often the state is saved, and the size of each checkpoint.
fn checkpoints(page: &mut Page, trial: &Trial) {
    let Some(rule) = &trial.spec.checkpoint else { return };
    let (often, count) = match rule.every {
        Every::Epochs(n) => (units::counted(n, "epoch"), Some(trial.checkpoints(0.0))),
        Every::Steps(n) => (units::counted(n, "step"), Some(trial.checkpoints(0.0))),
        Every::Minutes(n) => (format!("{} min", units::exact(n)), None),
    };
    let count =
        count.map_or(String::new(), |count| format!(", {} in all{}", of_run(trial, count), at_most(trial)));
    let bytes = units::bytes(4 * trial.saved_numbers());
    page.row("checkpoint", format!("every {often}{count}; {bytes} each"));
}

fn cost(page: &mut Page, trial: &Trial, (machine, measured): (&Machine, &Result<Rehearsal, Unmeasured>)) {
    let lower_bound = &trial.lower_bound;
    let instructions = units::counted(trial.programs.train.instructions.len() as u64, "instruction");
    let on = if trial.world_size() == 1 { "" } else { ", on the first device" };
    page.row(
        "a step",
        format!(
            "{instructions}, {}, {} read and written{on}",
            flop(lower_bound.cost.flops),
            units::bytes(lower_bound.cost.bytes as u64)
        ),
    );
    if machine.described.is_some() {
        let about = |own: ExpectedTime| {
            let (step, by) = (units::seconds(own.step_s), lower_bound.rates.origin.name());
            format!("about {step} by {by} rates, bound by {}", cause(own.bound, own.processor))
        };
        return page.more(ExpectedTime::new(trial, machine).map(about));
    }
    let measured = match measured {
        Ok(own) => Some(match too_busy(own.others) {
            Some(words) => format!("{} measured, roughly: {words}", units::seconds(own.step_s)),
            None => format!("{} measured", units::seconds(own.step_s)),
        }),
        Err(Unmeasured::NotHere) => None,
        Err(why) => Some(format!("its steps were not timed: {why}")),
    };
    if trial.engine.is_gpu() && !lower_bound.rates.processor.is_gpu() {
        // These rates are the CPU's; GPU estimates are shown with the engine.
        let more = "`runner devices --measure` measures the rates that an estimate is made of";
        return page.more(measured.map(|measured| format!("{measured}; {more}")));
    }
    let of_several = lower_bound.rates.processor.is_gpu() && trial.world_size() > 1;
    let of = if of_several { " of the slowest GPU" } else { "" };
    let parts = lower_bound.by(trial.threads);
    let about = format!(
        "about {} by {} rates{of}, bound by {}",
        units::seconds(parts.total_s()),
        lower_bound.rates.origin.name(),
        cause(parts.bound(), lower_bound.rates.processor)
    );
    page.more([measured.map_or(about.clone(), |measured| format!("{about}; {measured}"))]);
}

/// What is copied between host and devices, with the waits of the host, and read from files: a line per row of `transfers.csv`.
fn moves(page: &mut Page, trial: &Trial) {
    let all = transfers(trial);
    let of = |kind: &'static str| all.iter().filter(move |own| own.kind == kind);
    let copies: Vec<&Movement> = all.iter().filter(|own| !matches!(own.kind, "sync" | "read")).collect();
    if copies.is_empty() {
        page.row("moves", "nothing: the CPU's memory is the host's");
    } else {
        let waits = of("sync").filter_map(|own| own.count).fold(0, u64::saturating_add);
        let times = count_of(trial, waits, of("sync").any(|own| own.for_each_more.is_some()));
        let time = if waits == 1 { "time" } else { "times" };
        page.row("moves", format!("over the whole run; the host waits {times} {time} for a device"));
        let row = |own: &&Movement| {
            let wait = of("sync").find(|wait| own.kind == "d2h" && wait.purpose == own.purpose);
            let more = own.for_each_more.filter(|(_, bytes)| *bytes > 0);
            let more =
                more.map(|(what, bytes)| format!("and {} for each further {what}", units::count(bytes)));
            let (kind, purpose) = (own.kind.to_owned(), own.purpose.to_owned());
            let count =
                |own: &Movement| count_of(trial, own.count.unwrap_or_default(), own.for_each_more.is_some());
            let (count, waits) = (count(own), wait.map(count).unwrap_or_default());
            vec![kind, purpose, count, of_run(trial, own.bytes), waits, more.unwrap_or_default()]
        };
        let rows: Vec<_> = copies.iter().map(row).collect();
        let heading = ["kind", "purpose", "copies", "bytes", "waits", ""];
        page.more(text_table::lines(&heading, &rows, |column| (2..5).contains(&column)));
    }
    let read: Vec<String> =
        of("read").map(|own| format!("{} {}", own.purpose, of_run(trial, own.bytes))).collect();
    if !read.is_empty() {
        page.more([format!("read from the file: {} bytes over the whole run", read.join(", "))]);
    }
}

/// `10`, `at least 11`.
fn count_of(trial: &Trial, count: u64, may_be_more: bool) -> String {
    if may_be_more { format!("at least {}", units::count(count)) } else { of_run(trial, count) }
}

/// `sgd, lr 0.01, constant`; `sgd, lr 0.002 at first, at most 0.05, 2e-7 at the end: one_cycle`.
fn optimizer(trial: &Trial) -> String {
    let name = trial.spec.optimizer.name();
    let curves: Vec<_> = match &trial.spec.schedule.rule {
        Rule::Constant => {
            return format!("{name}, lr {}, constant", units::exact(trial.effective_optimizer().0.lr()));
        }
        Rule::One(curve) => vec![curve.name()],
        Rule::Chain { chain } => chain.iter().map(|stage| stage.curve.name()).collect(),
    };
    let (optimizer, schedule) = trial.effective_optimizer();
    let scheduler = LrScheduler::new(&optimizer, &schedule);
    let lr_at = |step: u64| scheduler.lr_at(step, step / trial.steps_per_epoch.max(1)).lr;
    let last = trial.steps.saturating_sub(1);
    let all = (0..=last).step_by((trial.steps / MOST_LOOKS + 1) as usize).map(lr_at);
    let short = |lr: f64| units::exact(format!("{lr:.3e}").parse().unwrap_or(lr));
    let [first, most, end] = [lr_at(0), all.fold(0.0, f64::max), lr_at(last)].map(short);
    let most = if most == first { String::new() } else { format!(", at most {most}") };
    let end = match schedule.plateau() {
        Some((_, plateau)) => {
            let validations = units::counted(plateau.patience, "validation");
            let metric = plateau.metric.unwrap_or(Monitor::LOSS).column();
            let factor = units::exact(plateau.factor);
            format!("times {factor} after more than {validations} without a better {metric}")
        }
        None => format!("{end} at the end"),
    };
    format!("{name}, lr {first} at first{most}, {end}: {}", curves.join(", then "))
}

/// `448 FLOP`, `26.75 kFLOP`.
pub(super) fn flop(value: f64) -> String {
    if value < 9999.5 { format!("{value:.0} FLOP") } else { format!("{}FLOP", units::rate(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flop_with_prefixes() {
        let words = [0.0, 448.0, 9999.0, 26_752.0, 2.75e6, 3.2e13].map(flop);
        assert_eq!(words, ["0 FLOP", "448 FLOP", "9999 FLOP", "26.75 kFLOP", "2.750 MFLOP", "32.00 TFLOP"]);
    }
}
