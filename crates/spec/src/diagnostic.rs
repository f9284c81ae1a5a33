//! Prints problems in the style of rustc: message, location, the underlined source line, hint.

use std::{fmt, ops::Range, path::Path};

use annotate_snippets::{Annotation, AnnotationKind, Element, Group, Level, Origin, Renderer, Snippet};
use runner_base::host::escape_line;

use super::{
    problem::{Location, Problem},
    reader::{IN_BRACKETS, MAX_PROBLEMS},
    tree::{FIRST_BASE, Span},
};

/// The texts of a spec: the file, then the overrides in the order given.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources {
    own: Vec<Text>,
    /// The files that the file extends.
    bases: Vec<Text>,
}

#[derive(Clone, Debug)]
struct Text {
    name: String,
    text: String,
}

impl Sources {
    /// The user typed the arguments after the first `derived`.
    pub fn new(path: &Path, file: String, arguments: &[String], derived: usize) -> Self {
        let file = Text { name: escape_line(&path.to_string_lossy()).into_owned(), text: file };
        // One alone needs no number.
        let name = |place: usize| match place.checked_sub(derived) {
            None => "set by refit".to_owned(),
            Some(_) if arguments.len() - derived == 1 => "argument".to_owned(),
            Some(place) => format!("argument {}", place + 1),
        };
        let arguments =
            arguments.iter().enumerate().map(|(place, a)| Text { name: name(place), text: a.clone() });
        Self { own: std::iter::once(file).chain(arguments).collect(), bases: Vec::new() }
    }

    /// The number of the next text that is added.
    pub fn next_base(&self) -> usize {
        FIRST_BASE + self.bases.len()
    }

    pub fn add_base(&mut self, path: &Path, text: String) {
        self.bases.push(Text { name: escape_line(&path.to_string_lossy()).into_owned(), text });
    }

    fn get(&self, source: usize) -> Option<&Text> {
        match source.checked_sub(FIRST_BASE) {
            Some(base) => self.bases.get(base),
            None => self.own.get(source),
        }
    }

    /// Where a value comes from that is not written in the file.
    pub fn origin(&self, span: Span) -> Option<String> {
        if span.source == 0 || span.is_argument() {
            return span.is_argument().then(|| "command line".to_owned());
        }
        let Text { name, text } = self.get(span.source)?;
        Some(format!(
            "from {name}:{}",
            1 + text.as_bytes()[..span.start].iter().filter(|byte| **byte == b'\n').count()
        ))
    }

    /// The number that was meant, if the place is within the values of an override such as `lr=0,5`.
    fn decimal_comma(&self, place: &Location) -> Option<String> {
        let Location::Span { source: source @ 1..FIRST_BASE, range } = place else { return None };
        let (name, values) = self.get(*source)?.text.split_once('=')?;
        let (whole, digits) = values.trim().split_once(',').filter(|_| range.start > name.len())?;
        let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // Two whole numbers such as 3 and 4 are rather two values.
        let is_number = whole.strip_prefix(['+', '-']).unwrap_or(whole) == "0" && are_digits(digits);
        is_number.then(|| format!("{whole}.{digits}"))
    }

    /// Makes one problem of those of each value where an override such as `sizes=16,64` was meant as one list.
    fn list_without_brackets(&self, problem: &mut Problem) {
        let Location::Span { source: source @ 1..FIRST_BASE, range } = &problem.place else { return };
        let Some((name, values)) = self.get(*source).and_then(|text| text.text.split_once('=')) else {
            return;
        };
        let is_one_list =
            values.contains(',') && !values.contains(['[', '{', '(']) && range.start > name.len();
        let Some(message) = expects_list(problem).filter(|_| is_one_list) else { return };
        problem.message = format!("{message}, found values of a sweep");
        let hint =
            format!("{IN_BRACKETS}: `{name}=[{values}]`; a comma alone separates the values of a sweep");
        problem.hint = Some(hint);
        problem.place =
            Location::Span { source: *source, range: name.len() + 1..name.len() + 1 + values.len() };
    }
}

/// The message up to what was found, of a problem with an item that should be a list.
fn expects_list(problem: &Problem) -> Option<&str> {
    let hint = problem.hint.as_deref()?;
    problem
        .message
        .split_once(", found ")
        .filter(|_| hint.starts_with(IN_BRACKETS))
        .map(|(message, _)| message)
}

/// Everything that is wrong, each problem with its location in a source text or a file.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What is wrong, in the order of the texts; never empty.
    pub problems: Vec<Problem>,
    pub(super) sources: Sources,
}

impl Failure {
    /// Problems outside the spec, such as those of a data file or the command line.
    pub fn new(problems: Vec<Problem>) -> Self {
        Self { problems, sources: Sources::default() }
    }

    /// Sorts the problems by source text and position.
    pub(super) fn from_problems(mut problems: Vec<Problem>, sources: Sources) -> Self {
        problems.sort_by_key(|p| match &p.place {
            Location::Span { source, range } => (1, *source, range.start),
            _ => (0, 0, 0),
        });
        for problem in &mut problems {
            if let Some(number) = sources.decimal_comma(&problem.place) {
                let words = format!("a comma separates the values of a sweep: `{number}` is a number");
                problem.hint = Some(match problem.hint.take() {
                    Some(hint) => format!("{hint}; {words}"),
                    None => words,
                });
            }
        }
        problems.iter_mut().for_each(|problem| sources.list_without_brackets(problem));
        problems.dedup();
        Self { problems, sources }
    }

    /// All problems as text, with a line that counts them if there are several. Nothing is said by color
    /// alone.
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let mut out = String::new();
        for problem in self.problems.iter().take(MAX_PROBLEMS) {
            let rendered = renderer.render(&[self.group(problem)]);
            if self.elements(problem).is_empty() {
                // The bar between a source line and its hint; it is dropped if there is no source line.
                let is_bar = |line: &str| line.trim_end_matches("\u{1b}[0m").ends_with('|');
                let lines = rendered.lines().enumerate().filter(|(place, line)| *place != 1 || !is_bar(line));
                out += &lines.map(|(_, line)| line).collect::<Vec<_>>().join("\n");
            } else {
                out += &rendered;
            }
            out += "\n\n";
        }
        let count = self.problems.len();
        if count > 1 {
            let count =
                if count < MAX_PROBLEMS { count.to_string() } else { format!("at least {MAX_PROBLEMS}") };
            let place = self.sources.own.first().map_or(String::new(), |file| format!(" in {}", file.name));
            out += &renderer
                .render(&[Group::with_title(Level::ERROR.primary_title(format!("{count} problems{place}")))]);
            out += "\n";
        } else {
            out.pop();
        }
        out
    }

    fn group<'a>(&'a self, problem: &'a Problem) -> Group<'a> {
        let mut group =
            Level::ERROR.primary_title(escape_line(&problem.message)).elements(self.elements(problem));
        for (place, words) in &problem.related {
            if matches!(place, Location::Nowhere) {
                group = group.element(Level::NOTE.message(escape_line(words)));
            }
        }
        if let Some(hint) = &problem.hint {
            group = group.element(Level::HELP.with_name(Some("hint")).message(escape_line(hint)));
        }
        group
    }

    fn elements<'a>(&'a self, problem: &'a Problem) -> Vec<Element<'a>> {
        let primary = match &problem.place {
            Location::Span { source, range } => (*source, range.clone()),
            Location::File { path, line, column, text } => {
                return vec![file_element(path, *line, *column, text.as_deref(), problem.label.as_deref())];
            }
            Location::Row { path, row } => {
                let label = problem.label.as_ref().map(|label| format!(": {label}")).unwrap_or_default();
                let place = format!("{}, row {row} (counted from 0){label}", path.display());
                return vec![Origin::path(escape_line(&place).into_owned()).into()];
            }
            Location::Key(_) | Location::Nowhere => return Vec::new(),
        };
        let mut marks = vec![(primary.0, primary.1, AnnotationKind::Primary, problem.label.as_deref())];
        for (place, words) in &problem.related {
            if let Location::Span { source, range } = place {
                marks.push((*source, range.clone(), AnnotationKind::Context, Some(words.as_str())));
            }
        }
        // One view per text, the primary one first.
        let mut elements = Vec::new();
        while let Some(&(source, ..)) = marks.first() {
            let (here, elsewhere): (Vec<_>, Vec<_>) = marks.into_iter().partition(|m| m.0 == source);
            if let Some(text) = self.sources.get(source) {
                let here = here.into_iter().map(|(_, range, kind, label)| (range, kind, label)).collect();
                elements.push(view(text, here));
            }
            marks = elsewhere;
        }
        elements
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Failure {}

/// The marked lines of a text. Only these are passed on, because a spec may be long.
fn view<'a>(text: &'a Text, marks: Vec<(Range<usize>, AnnotationKind, Option<&'a str>)>) -> Element<'a> {
    let all = text.text.as_str();
    let clip = |at: usize| floor_char_boundary(all, at.min(all.len()));
    let first = marks.iter().map(|m| clip(m.0.start)).min().unwrap_or(0);
    let last = marks.iter().map(|m| clip(m.0.start)).max().unwrap_or(0);
    let begin = all[..first].rfind('\n').map_or(0, |i| i + 1);
    let end = all[last..].find('\n').map_or(all.len(), |i| last + i);
    // Carriage returns at the end, however many, are not shown, and marks are clipped to what is shown.
    let end = begin + all[begin..end].trim_end_matches('\r').len();
    let annotations = marks.into_iter().map(|(range, kind, label)| {
        // A value that spans several lines is marked on its first line.
        let start = clip(range.start).min(end);
        let line_end = all[start..].find('\n').map_or(end, |i| (start + i).min(end));
        let stop = clip(range.end).clamp(start, line_end);
        annotate(kind, start - begin..stop - begin, label)
    });
    Snippet::source(&all[begin..end])
        .line_start(1 + all[..begin].matches('\n').count())
        .path(text.name.as_str())
        .annotations(annotations)
        .into()
}

fn file_element<'a>(
    path: &Path,
    line: Option<u64>,
    column: Option<u64>,
    text: Option<&'a str>,
    label: Option<&'a str>,
) -> Element<'a> {
    let name = escape_line(&path.to_string_lossy()).into_owned();
    let (Some(line), Some(text)) = (line, text) else {
        let origin = Origin::path(name);
        return match line {
            Some(line) => origin.line(line as usize).char_column(column.unwrap_or(1) as usize).into(),
            None => origin.into(),
        };
    };
    let range = match column {
        Some(column) => {
            let mut ends = text.char_indices().map(|(i, _)| i).skip(column.max(1) as usize - 1);
            let start = ends.next().unwrap_or(text.len());
            start..ends.next().unwrap_or(text.len())
        }
        None => 0..text.len(),
    };
    Snippet::source(text)
        .line_start(line as usize)
        .path(name)
        .annotation(annotate(AnnotationKind::Primary, range, label))
        .into()
}

fn annotate<'a>(kind: AnnotationKind, range: Range<usize>, label: Option<&'a str>) -> Annotation<'a> {
    match label {
        Some(label) => kind.span(range).label(escape_line(label)),
        None => kind.span(range),
    }
}

fn floor_char_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
