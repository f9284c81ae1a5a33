//! The answer of a comparison, for the screen: which setting is best, how certain that is, what the figures do not say, and a
//! table, best first.

mod caveats;
mod notes;
mod setting_words;
mod table;

pub(super) use caveats::{OTHER_ROWS, SAME_ROWS, caveats};
pub(super) use notes::{IN_ORDER, last_epoch, notes, shared_training};
pub(super) use setting_words::SettingWords;
pub(super) use table::more;

use std::fmt::Write;

use super::{
    ReportError,
    comparison::Comparison,
    configurations::FINISHED,
    grouping::distinct,
    key::short,
    matching::{lost_in_words, without_another},
    order::Question,
    ranking::{Candidate, Ranking},
    run::{PLANNED, RUNNING, Run, UNFINISHED, varies_setting},
};
use crate::{host::escape_line, run::SampleUnit, units};

impl Comparison {
    /// For each task its best setting, with a table below, for a terminal of `width` columns.
    pub fn answer(&self, question: &Question, width: u16) -> Result<String, ReportError> {
        let mut sections = Vec::new();
        let rankings = self.rankings(question)?;
        for ranking in &rankings {
            let mut text = if rankings.len() > 1 { self.task_name(ranking) } else { String::new() };
            let shown = self.shown_settings(ranking, question)?;
            text += &self.verdict(ranking, &shown, width);
            text.extend(self.caveats_of(ranking).iter().map(|words| format!("  {words}\n")));
            text += &self.best_run(ranking);
            text += &self.repeat_it(ranking);
            text += &self.better_stopped(ranking);
            text += &self.ranked_table(ranking, &shown, question, width)?;
            text += &notes(self, ranking);
            text += &self.uneven(ranking);
            text += &self.left_out(ranking);
            text += &self.input_lines(shown.iter().flat_map(|setting| setting.places.iter().copied()));
            // Folded axes could be mistaken for seeds.
            if question.by.is_empty() {
                text += &self.effects(ranking);
            }
            text.extend(
                self.warning().filter(|_| !ranking.metric.is_learned).map(|words| format!("  {words}\n")),
            );
            sections.push(text);
        }
        let apart = self.judged_apart(question).map(|words| format!("{words}\n"));
        let of_data = [self.tasks_apart(question)?, self.sampled()].into_iter().flatten();
        let apart: String = of_data.map(|words| format!("{words}\n")).chain(apart).collect();
        let space = if apart.is_empty() { "" } else { "\n" };
        let virtual_times = self.virtual_times().map(|words| format!("  {words}\n")).unwrap_or_default();
        Ok(apart + space + &sections.join("\n") + &virtual_times)
    }

    /// `best: #12 lr 0.03 width 32, validation loss 0.0615 [0.0583, 0.0640], n 5; not distinguishable from
    /// #15 (...)`, with the digits of a table in which these are `shown`.
    pub(in crate::report) fn verdict(&self, ranking: &Ranking, shown: &[&Candidate], width: u16) -> String {
        let Ranking { metric, settings, .. } = ranking;
        let Some(best) = settings.first() else {
            if ranking.has_final_models_alone(self) {
                return "final model: not ranked, since nothing validated it\n".to_owned();
            }
            let has_finished = self.runs.iter().any(|run| run.status == FINISHED);
            let why = if has_finished {
                format!("no finished run has {}", metric.name)
            } else {
                format!("no run has finished{}", self.so_far(ranking))
            };
            return format!("best: {why}\n");
        };
        let name = ranking.name(self, best);
        let words = SettingWords::new(ranking, shown);
        let value = format!("{} {}", metric.name, words.value(best));
        let count = best.counted();
        let first = if metric.has_direction() { "best" } else { "lowest" };
        if settings.len() == 1 && best.samples.len() > 1 {
            // The value is the mean over all folded combinations, none of which has exactly this value.
            return format!("{value}{count}; {first}: {name}\n");
        }
        if ranking.are_all_equal() {
            let equals = self.equals_in_words(ranking).unwrap_or_default();
            return format!("none is best: {value}{count};\n  {equals}\n");
        }
        let answer = format!("{first}: {name}, {value}{count}");
        if settings.len() == 1 {
            return format!("{answer}\n");
        }
        let doubts: Vec<String> =
            [self.doubt(ranking, &words)].into_iter().chain(self.equals_in_words(ranking)).collect();
        let doubt = doubts.join("; ");
        let fits = answer.chars().count() + doubt.chars().count() + 2 <= usize::from(width);
        format!("{answer}{}{doubt}\n", if fits { "; " } else { ";\n  " })
    }

    /// How certain it is that the best setting is the best.
    fn doubt(&self, ranking: &Ranking, words: &SettingWords<'_>) -> String {
        let apart = |setting: &Candidate| {
            let Some((difference, words)) = setting.difference.zip(words.difference(setting)) else {
                return String::new();
            };
            let kind = if difference.pairs > 0 { "paired difference" } else { "difference" };
            // The interval is of this difference alone, p of all pairs.
            let p = setting.p.map(|p| format!(", p {}", p_value(p))).unwrap_or_default();
            format!(" ({kind} {words}{p})")
        };
        let each = ranking.each;
        if ranking.settings.iter().all(|setting| setting.samples.len() < 2) {
            return self.one_each(ranking);
        }
        let named = |setting: &Candidate| self.numbered(&setting.places) + &apart(setting);
        let (tested, untested): (Vec<&Candidate>, Vec<&Candidate>) =
            ranking.rivals().partition(|rival| rival.is_tested());
        let is_in_order = ranking.settings[0].is_in_order();
        let better = if ranking.metric.has_direction() { "better" } else { "lower" };
        let mut words = Vec::new();
        if let [first, more @ ..] = &tested[..] {
            let (what, on) = match is_in_order {
                true => (format!("not {better} than"), " on every fold"),
                false => ("not distinguishable from".to_owned(), ""),
            };
            let (number, apart) = (self.numbered(&first.places), apart(first));
            let lost = self.but_lost(ranking, first, &number);
            words.push(format!("{what} {number}{on}{apart}{}{lost}", units::and_more(more.len())));
        }
        if let [first, more @ ..] = &untested[..] {
            let why = match first.difference.is_some_and(|difference| difference.pairs > 0) {
                _ if first.lacks_rows() || ranking.settings[0].lacks_rows() => {
                    "unrecorded rows cannot tell".to_owned()
                }
                true => format!("one shared {each} cannot tell"),
                false if is_in_order => "no shared fold tells".to_owned(),
                false => format!("too few {each}s to tell"),
            };
            let lost = self.but_lost(ranking, first, &self.numbered(&first.places));
            words.push(format!("{why} it from {}{}{lost}", named(first), units::and_more(more.len())));
        }
        words.extend(self.ahead(ranking, &apart));
        let others: Vec<&Candidate> = ranking.of_other_rows().collect();
        if let [first, more @ ..] = &others[..] {
            let named = self.numbered(&first.places);
            words.push(format!(
                "not comparable with {named}{}, judged by other rows",
                units::and_more(more.len())
            ));
        }
        if words.is_empty() {
            let mut others = ranking.settings.iter().skip(1).filter(|own| !ranking.equals_best(own));
            let Some(next) = others.next() else { return String::new() };
            let next = format!("of which {} is next{}", self.numbered(&next.places), apart(next));
            words.push(match each {
                _ if is_in_order => format!("{better} on every fold than all others, {next}"),
                _ => format!("{better} than all others, {next}"),
            });
        }
        words.join("; ") + &self.but_lost(ranking, &ranking.settings[0], "the best")
    }

    /// Which settings equal the best but for rounding.
    fn equals_in_words(&self, ranking: &Ranking) -> Option<String> {
        let equals: Vec<usize> = ranking.equals().map(|setting| setting.places[0]).collect();
        let best = self.numbered(&ranking.settings[0].places);
        let (equals, are) = (self.numbers(&equals), if equals.len() == 1 { "equals" } else { "equal" });
        (!equals.is_empty()).then(|| {
            format!(
                "{equals} {are} {best} within rounding: they differ in nothing that changes what is learned"
            )
        })
    }

    /// That one seed of each setting tells nothing, and what would.
    fn one_each(&self, ranking: &Ranking) -> String {
        // Repeats of one seed learn the same.
        let is_repeated = |setting: &Candidate| {
            setting.places.iter().filter(|&&place| self.runs[place].repeat().is_some()).count() > 1
        };
        let are_seeds = || ranking.keys.iter().any(|key| !varies_setting(key));
        let way_out = match ranking.settings.iter().any(is_repeated) {
            _ if are_seeds() || self.takes_no_repeats(&ranking.settings[0]) => String::new(),
            true => " (`sweep.repeat_seeds=true` can)".to_owned(),
            false => {
                let more = self.seeds_left(ranking).unwrap_or_else(|| "sweep.repeats=5".to_owned());
                format!(" (`{more}` can)")
            }
        };
        format!("one {} each cannot tell whether that is more than luck{way_out}", ranking.each)
    }

    /// The command that runs more seeds of an interrupted sweep.
    fn seeds_left(&self, ranking: &Ranking) -> Option<String> {
        let ranked = &self.runs[ranking.settings.first()?.places[0]];
        let seeds =
            |run: &Run| run.axes.iter().filter(|(key, _)| !varies_setting(key)).cloned().collect::<Vec<_>>();
        let is_more = |run: &&Run| {
            let is_left = [PLANNED, UNFINISHED, "interrupted", "waiting"].contains(&&*run.status);
            is_left && run.sweep == ranked.sweep && seeds(run) != seeds(ranked)
        };
        let mut left = ranking.left_out.iter().map(|&place| &self.runs[place]);
        let folder = left.find(is_more)?.sweep.as_deref()?;
        Some(format!("runner run --resume {}", escape_line(folder)))
    }

    /// `, but of #3 2 of 5 runs diverged (#3, 8)`: how those runs of a setting ended that have no result; nothing of those that are
    /// still to end.
    fn but_lost(&self, ranking: &Ranking, setting: &Candidate, name: &str) -> String {
        const TO_COME: [&str; 7] =
            [FINISHED, PLANNED, RUNNING, "waiting", "skipped", "interrupted", UNFINISHED];
        let is_own = |run: &Run| {
            let mut values = ranking.keys.iter().zip(&setting.values);
            values.all(|(key, value)| run.axis(key).unwrap_or("-") == value)
        };
        let is_lost = |run: &Run| !TO_COME.contains(&&*run.status) && is_own(run);
        let lost = ranking.left_out.iter().copied().filter(|&place| is_lost(&self.runs[place]));
        let mut lost: Vec<usize> = lost.collect();
        if ranking.metric.is_learned {
            lost = without_another(self, lost, &setting.places);
        }
        match lost.len() {
            0 => String::new(),
            count => format!(", but of {name} {}", lost_in_words(self, &lost, count + setting.places.len())),
        }
    }

    /// `#1 is lower on the 3 seeds that both have (paired difference -0.2, p 0.002), but of it 1 of 4 runs diverged (#7)`: the
    /// setting that is most ahead of the best, though ranked behind it.
    fn ahead(&self, ranking: &Ranking, apart: &dyn Fn(&Candidate) -> String) -> Option<String> {
        let Ranking { metric, each, .. } = ranking;
        let ahead: Vec<&Candidate> = ranking.ahead().collect();
        let difference = |own: &Candidate| own.difference.map_or(0.0, |own| metric.cost(own.mean));
        let first = ahead.iter().min_by(|a, b| difference(a).total_cmp(&difference(b)))?;
        let side = if metric.more_is_better { "higher" } else { "lower" };
        let counted =
            |count: usize| if count == 1 { format!("one {each}") } else { format!("{count} {each}s") };
        let on = match first.difference.map_or(0, |difference| difference.pairs) {
            0 => format!("{side} by {} of its own", counted(first.samples.len())),
            1 => format!("{side} on the one {each} that both have"),
            pairs => format!("{side} on the {} that both have", counted(pairs)),
        };
        let lost = self.but_lost(ranking, first, "it");
        let more = match ahead.len() - 1 {
            0 => String::new(),
            more => format!(", and {} more", units::count(more as u64)),
        };
        Some(format!("{} is {on}{}{lost}{more}", self.numbered(&first.places), apart(first)))
    }

    /// The name of the task's specs, as a heading if there are several tasks; with what makes it another task than those of the same
    /// name: `sw, separation 3`.
    pub(in crate::report) fn task_name(&self, ranking: &Ranking) -> String {
        let places = ranking.all_places();
        let names = distinct(places.iter().filter_map(|&place| self.runs[place].axis("name")));
        let mut text = names.join(", ");
        let others = (0..self.runs.len()).filter(|place| !places.contains(place));
        if others.filter_map(|place| self.runs[place].axis("name")).any(|name| names.contains(&name)) {
            let keys: Vec<&String> = self.axes.iter().filter(|key| self.tasks.differ_in(key)).collect();
            for (key, title) in keys.iter().zip(short(&keys)) {
                if let [value] = distinct(places.iter().filter_map(|&place| self.runs[place].axis(key)))[..] {
                    text.push_str(&format!(", {title} {value}"));
                }
            }
        }
        format!("{}\n", escape_line(&text))
    }

    /// Lists settings that lack seeds, folds or combinations that others have.
    pub(in crate::report) fn uneven(&self, ranking: &Ranking) -> String {
        let mut text = String::new();
        let mut say = |what: &str, settings: &[&Candidate]| {
            let places: Vec<usize> = settings.iter().map(|setting| setting.places[0]).collect();
            if !places.is_empty() {
                let _ = writeln!(text, "  {what}: {}", self.numbers(&places)); // cannot fail
            }
        };
        let all = |is: &dyn Fn(&Candidate) -> bool| -> Vec<&Candidate> {
            ranking.settings.iter().filter(|own| is(own)).collect()
        };
        let is_last = |own: &&Candidate| ranking.comes_last(own);
        let (last, others): (Vec<_>, Vec<_>) = ranking.lacking_folds(&self.runs).partition(is_last);
        say("without some of their folds", &others);
        say("without some of their folds, ranked last", &last);
        let (last, others): (Vec<_>, Vec<_>) = ranking.lacking_seeds().partition(is_last);
        // Settings rank by their seeds, also where several share a split.
        let seeds = if ranking.each == SampleUnit::Split { SampleUnit::Seed } else { ranking.each };
        say(&format!("fewer {seeds}s, compared by those that both have"), &others);
        say(&format!("fewer {seeds}s, ranked last"), &last);
        let each = ranking.each;
        let each = if ranking.metric.is_learned { format!("{each}s") } else { "repeats".to_owned() };
        let incomplete =
            format!("incomplete, {each} that lack a combination of the folded axes do not count");
        say(&incomplete, &all(&|setting| setting.incomplete > 0));
        let fewer = "fewer combinations of the folded axes than others, which may decide the difference";
        say(fewer, &all(&|setting| setting.combinations[0] < setting.combinations[1]));
        let devices = |setting: &Candidate| {
            distinct(setting.places.iter().filter_map(|&place| self.runs[place].figure("devices_used"))).len()
        };
        let pooled = "ran on different devices, whose times are taken together";
        let is_pooled = |setting: &Candidate| {
            !ranking.metric.is_learned && setting.combinations[1] <= 1 && devices(setting) > 1
        };
        say(pooled, &all(&is_pooled));
        text
    }
}

/// `0.041`, `<0.001`.
pub fn p_value(p: f64) -> String {
    match p {
        p if p < 0.001 => "<0.001".to_owned(),
        p if p < 0.1 => format!("{p:.3}"),
        p => format!("{p:.2}"),
    }
}
