//! Formats tensors like PyTorch's `print(tensor)` (digits, columns, summarization), always with the shape.

use crate::{plan::lab::Value, spec::lab::DType};

/// Tensors with more elements are summarized by their edges.
const MOST_SHOWN: usize = 1000;

/// Elements shown at each end of a summarized axis.
const EDGE: usize = 3;

/// Maximum width of a line.
const LINE: usize = 80;

/// The prefix; further lines are indented by its width.
const HEAD: &str = "tensor(";

/// `tensor([[1., 1.]], shape=[1, 2], dtype=f32, device='virtual:0')`.
pub fn show(words: &[f32], Value { device, shape, dtype, .. }: &Value) -> String {
    let text = if *dtype == DType::F32 {
        let style = Style::from_values(&seen(words, shape));
        nested(words, shape, (HEAD.len(), style.width), &|value| style.bare(*value))
    } else {
        let numbers: Vec<i64> = words.chunks(dtype.words()).map(|words| dtype.decode(words)).collect();
        let width = seen(&numbers, shape).iter().map(|i| i.to_string().len()).max().unwrap_or(0);
        nested(&numbers, shape, (HEAD.len(), width), &|number| number.to_string())
    };
    let tail = format!("shape={shape:?}, dtype={}, device='{device}')", dtype.name());
    let last =
        text.lines().next_back().unwrap_or_default().len() + if text.contains('\n') { 0 } else { HEAD.len() };
    let between =
        if last + 2 + tail.len() > LINE { format!(",\n{}", " ".repeat(HEAD.len())) } else { ", ".to_owned() };
    format!("{HEAD}{text}{between}{tail}")
}

/// The shown indices of an axis; `None` stands for the omitted ones.
fn shown(length: usize, summarized: bool) -> Vec<Option<usize>> {
    if !summarized || length <= 2 * EDGE {
        return (0..length).map(Some).collect();
    }
    (0..EDGE).map(Some).chain([None]).chain((length - EDGE..length).map(Some)).collect()
}

/// The elements that are shown.
fn seen<T: Copy>(values: &[T], shape: &[usize]) -> Vec<T> {
    fn visit<T: Copy>(values: &[T], axes: &[usize], summarized: bool, seen: &mut Vec<T>) {
        match axes {
            [] => seen.extend(values),
            [length, inner @ ..] => {
                let size = values.len().checked_div(*length).unwrap_or(0);
                for i in shown(*length, summarized).into_iter().flatten() {
                    visit(&values[i * size..(i + 1) * size], inner, summarized, seen);
                }
            }
        }
    }
    let mut all = Vec::new();
    visit(values, shape, values.len() > MOST_SHOWN, &mut all);
    all
}

/// The elements in brackets, `width` wide, further lines indented.
fn nested<T>(
    values: &[T],
    axes: &[usize],
    (indent, width): (usize, usize),
    bare: &dyn Fn(&T) -> String,
) -> String {
    if values.is_empty() {
        return "[]".to_owned();
    }
    part(values, axes, (indent, width, values.len() > MOST_SHOWN), bare)
}

fn part<T>(
    values: &[T],
    axes: &[usize],
    (indent, width, summarized): (usize, usize, bool),
    bare: &dyn Fn(&T) -> String,
) -> String {
    let (length, inner) = match axes {
        [] => return values.first().map(bare).unwrap_or_default(),
        [length, inner @ ..] => (*length, inner),
    };
    let below = format!("\n{}", " ".repeat(indent + 1));
    if inner.is_empty() {
        let cell = |i: usize| format!("{:>width$}", bare(&values[i]));
        let cells: Vec<String> =
            shown(length, summarized).into_iter().map(|i| i.map_or_else(|| "...".to_owned(), cell)).collect();
        let per_line = (LINE.saturating_sub(indent) / (width + 2)).max(1);
        let lines: Vec<String> = cells.chunks(per_line).map(|line| line.join(", ")).collect();
        return format!("[{}]", lines.join(&format!(",{below}")));
    }
    let size = values.len().checked_div(length).unwrap_or(0);
    let parts: Vec<String> = shown(length, summarized)
        .into_iter()
        .map(|i| match i {
            Some(i) => part(&values[i * size..(i + 1) * size], inner, (indent + 1, width, summarized), bare),
            None => "...".to_owned(),
        })
        .collect();
    // A blank line between matrices, two between stacks of them.
    let between = format!(",{}{below}", "\n".repeat(inner.len() - 1));
    format!("[{}]", parts.join(&between))
}

/// The common format of a tensor's elements.
#[derive(Clone, Copy)]
struct Style {
    whole: bool,
    scientific: bool,
    width: usize,
}

impl Style {
    fn from_values(values: &[f32]) -> Self {
        let sizes = || values.iter().filter(|v| v.is_finite() && **v != 0.0).map(|v| f64::from(v.abs()));
        let (least, most) = sizes().fold((f64::INFINITY, 0.0_f64), |(a, b), v| (a.min(v), b.max(v)));
        let whole = values.iter().all(|v| !v.is_finite() || v.fract() == 0.0);
        let scientific = most > 0.0 && (most / least > 1000.0 || most > 1e8 || (!whole && least < 1e-4));
        let mut style = Self { whole, scientific, width: 0 };
        style.width = values.iter().map(|v| style.bare(*v).len()).max().unwrap_or(0);
        style
    }

    fn bare(self, value: f32) -> String {
        match value {
            v if v.is_nan() => "nan".to_owned(),
            v if v.is_infinite() => if v > 0.0 { "inf" } else { "-inf" }.to_owned(),
            v if self.scientific => {
                let text = format!("{v:.4e}");
                let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
                format!("{digits}e{sign}{exponent:0>2}")
            }
            v if self.whole => format!("{v:.0}."),
            v => format!("{v:.4}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan::DeviceId, spec::lab::Scalar};

    fn text(values: &[f32], axes: &[usize]) -> String {
        let (device, shape, len) = (DeviceId::Cpu, axes.to_vec(), values.len());
        show(values, &Value { device, shape, dtype: DType::F32, len })
    }

    #[test]
    fn whole_numbers_have_no_point() {
        let words = [1, -20, 300].map(|i| DType::I64.encode(Scalar::Integer(i)).unwrap()).concat();
        let value = Value { device: DeviceId::Cpu, shape: vec![3], dtype: DType::I64, len: 6 };
        assert_eq!(show(&words, &value), "tensor([  1, -20, 300], shape=[3], dtype=i64, device='cpu')");
    }

    /// As PyTorch 2 prints it, but for the text after the values.
    #[test]
    fn numbers_are_printed_as_in_the_textbook() {
        assert_eq!(text(&[2.5], &[]), "tensor(2.5000, shape=[], dtype=f32, device='cpu')");
        assert_eq!(text(&[], &[0, 2]), "tensor([], shape=[0, 2], dtype=f32, device='cpu')");
        assert_eq!(
            text(&[1.0, -10.0, f32::NAN], &[3]),
            "tensor([  1., -10.,  nan], shape=[3], dtype=f32, device='cpu')"
        );
        let four = [0.25, -1.5, 3.0, 100.0];
        let shown = "tensor([[ 0.2500, -1.5000],\n        [ 3.0000, 100.0000]], shape=[2, 2], dtype=f32, device='cpu')";
        assert_eq!(text(&four, &[2, 2]).replace("  ", " "), shown.replace("  ", " "));
        assert_eq!(
            text(&[1e-5, 1.0], &[2]),
            "tensor([1.0000e-05, 1.0000e+00], shape=[2], dtype=f32, device='cpu')"
        );
        assert_eq!(
            text(&[1e12, f32::INFINITY], &[2]),
            "tensor([1.0000e+12,        inf], shape=[2], dtype=f32, device='cpu')"
        );
        let cube = text(&[1.0; 8], &[2, 2, 2]);
        assert_eq!(
            cube,
            "tensor([[[1., 1.],\n         [1., 1.]],\n\n        [[1., 1.],\n         [1., 1.]]], shape=[2, 2, 2], dtype=f32, device='cpu')"
        );
    }

    #[test]
    fn long_ones_show_their_edges_and_wrap() {
        assert_eq!(
            text(&[1.0; 1001], &[1001]),
            "tensor([1., 1., 1., ..., 1., 1., 1.], shape=[1001], dtype=f32, device='cpu')"
        );
        let rows = text(&[0.5; 10_000], &[100, 100]);
        assert_eq!(rows.lines().count(), 7 + 1, "{rows}");
        assert_eq!(rows.lines().nth(3), Some("        ...,"), "{rows}");
        let line = text(&[0.5; 20], &[20]);
        assert_eq!(line.lines().map(|l| l.matches("0.5000").count()).collect::<Vec<_>>(), [9, 9, 2]);
    }
}
