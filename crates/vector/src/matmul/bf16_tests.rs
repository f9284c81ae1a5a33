//! Products of bfloat16: compared with f64 at odd sizes, and bit by bit with plain Rust.

use super::{tests::*, *};

fn kernels() -> Vec<Kernel> {
    ["amx_bf16", "avx512_bf16", "portable"].into_iter().filter_map(Kernel::bf16_named).collect()
}

/// The nearest bfloat16, ties to even.
fn rounded(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

/// Packs both operands, each in two shares as in a team.
fn laid_out(kernel: Kernel, lhs: Lhs<'_>, source: Source<'_>, [m, k, n]: [usize; 3]) -> [Vec<f32>; 2] {
    let strip = kernel.strip_rows().unwrap();
    let mut left = vec![f32::NAN; kernel.left_len(m, k)];
    let strips = m.div_ceil(strip);
    for share in [0..strips / 2, strips / 2..strips] {
        let range = kernel.left_range(k, share.start * strip..m.min(share.end * strip));
        kernel.pack_left(lhs, [m, k], share, &mut left[range]);
    }
    let right = packed(kernel, source, k, n);
    [left, right]
}

fn product(
    kernel: Kernel,
    [left, right]: &[Vec<f32>; 2],
    shape: [usize; 3],
    epilogue: Epilogue<'_>,
) -> Vec<f32> {
    let mut out = match epilogue {
        Epilogue::Update { .. } => numbers(shape[0] * shape[2], 9),
        _ => vec![f32::NAN; shape[0] * shape[2]],
    };
    kernel.multiply(Lhs::Packed(left), Rhs::Packed(right), shape, &mut out, epilogue);
    out
}

#[test]
fn products_at_odd_sizes_are_right_in_every_layout() {
    let sizes = [1, 2, 15, 16, 17, 31, 32, 33, 70];
    let all = sizes.iter().flat_map(|&m| sizes.iter().flat_map(move |&k| sizes.map(|n| [m, k, n])));
    for shape @ [m, k, n] in all.chain([[5, 2500, 3], [40, 2100, 600], [0, 5, 5], [5, 0, 5], [5, 5, 0]]) {
        let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
        let (at, bt) = (transposed(&a, m, k), transposed(&b, k, n));
        let [ra, rb] = [&a, &b].map(|x| x.iter().copied().map(rounded).collect::<Vec<f32>>());
        let exact = reference(&ra, &rb, shape);
        let mut of_plain: Option<[Vec<u32>; 2]> = None;
        for kernel in kernels().into_iter().rev() {
            let (rows, columns) = (Lhs::Rows { data: &a, stride: k }, Lhs::Columns { data: &at, stride: m });
            let operands = laid_out(kernel, rows, Source::Rows(&b), shape);
            let others = laid_out(kernel, columns, Source::Transposed(&bt), shape);
            let words = operands.each_ref().map(|x| bits(x));
            assert_eq!(words, others.each_ref().map(|x| bits(x)), "{:?} {shape:?}", kernel.bf16_name());
            assert_eq!(&words, of_plain.get_or_insert(words.clone()), "{:?} {shape:?}", kernel.bf16_name());
            let out = product(kernel, &operands, shape, Epilogue::Store);
            for (i, (x, (sum, error))) in out.iter().zip(&exact).enumerate() {
                let far = (f64::from(*x) - sum).abs();
                assert!(far <= *error, "{:?} {shape:?} [{i}]: {x} for {sum}", kernel.bf16_name());
            }
        }
    }
}

#[test]
fn tiles_have_the_bits_of_plain_rust() {
    let Some(amx) = Kernel::bf16_named("amx_bf16") else {
        eprintln!("skipped: no AMX here");
        return;
    };
    let plain = Kernel::bf16_named("portable").unwrap();
    for shape @ [m, k, n] in [[1, 1, 1], [32, 32, 32], [33, 65, 34], [64, 700, 40], [3, 2500, 5]] {
        // Spread over many binades, like weights and gradients.
        let wide = |count, seed| -> Vec<f32> {
            numbers(count, seed)
                .iter()
                .zip(numbers(count, seed + 7))
                .map(|(a, b)| a * (20.0 * b).exp2())
                .collect()
        };
        let (a, b) = (wide(m * k, 1), wide(k * n, 2));
        let operands = laid_out(amx, Lhs::Rows { data: &a, stride: k }, Source::Rows(&b), shape);
        let [by_amx, by_plain] =
            [amx, plain].map(|kernel| bits(&product(kernel, &operands, shape, Epilogue::Store)));
        assert_eq!(by_amx, by_plain, "{shape:?}");
    }
}

#[test]
fn numbers_at_the_ends_of_the_range_are_rounded_alike() {
    let strange = [
        0.0,
        -0.0,
        f32::MIN_POSITIVE,
        -f32::MIN_POSITIVE / 2.0,
        f32::from_bits(1),
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        f32::NAN,
        1.003_906_3,
        1.011_718_8,
        -1.003_906_2,
        3.4e38,
        1e-40,
    ];
    let k = strange.len();
    let words = kernels().into_iter().map(|kernel| {
        let mut left = vec![0.0; kernel.left_len(1, k)];
        kernel.pack_left(Lhs::Rows { data: &strange, stride: k }, [1, k], 0..1, &mut left);
        bits(&left)
    });
    let words: Vec<_> = words.collect();
    assert!(words.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn the_epilogues_are_applied_to_the_finished_sum() {
    for kernel in kernels() {
        for shape @ [m, k, n] in [[33, 40, 35], [64, 64, 64], [5, 2500, 7]] {
            let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
            let (bias, saved) = (numbers(n, 3), numbers(m * n, 4));
            let operands = laid_out(kernel, Lhs::Rows { data: &a, stride: k }, Source::Rows(&b), shape);
            let sums = product(kernel, &operands, shape, Epilogue::Store);
            let check = |epilogue, wanted: &dyn Fn(usize, f32) -> f32| {
                let out = product(kernel, &operands, shape, epilogue);
                let wanted: Vec<f32> = sums.iter().enumerate().map(|(i, sum)| wanted(i, *sum)).collect();
                assert_eq!(bits(&out), bits(&wanted), "{:?} {shape:?} {epilogue:?}", kernel.bf16_name());
            };
            let biased = |i: usize, sum: f32| sum + bias[i % n];
            check(Epilogue::Bias { bias: Some(&bias), relu: false }, &biased);
            check(Epilogue::Bias { bias: Some(&bias), relu: true }, &|i, sum| biased(i, sum).max(0.0));
            check(Epilogue::Bias { bias: None, relu: true }, &|_, sum| sum.max(0.0));
            let chosen = |i: usize, sum: f32| if saved[i] > 0.0 { sum } else { 0.0 };
            check(Epilogue::WherePositive { saved: &saved }, &chosen);
            if k < 2000 {
                let before = numbers(m * n, 9);
                check(Epilogue::Update { rate: 0.5 }, &|i, sum| (-0.5_f32).mul_add(sum, before[i]));
            }
        }
    }
}

#[test]
fn tiles_in_any_order_and_shares_of_rows_have_the_same_bits() {
    for (kernel, shape) in kernels().into_iter().flat_map(|k| [(k, [70, 2100, 600]), (k, [100, 64, 70])]) {
        let [m, k, n] = shape;
        let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
        let operands @ [left, right] =
            &laid_out(kernel, Lhs::Rows { data: &a, stride: k }, Source::Rows(&b), shape);
        for epilogue in [Epilogue::Store, Epilogue::Update { rate: 0.5 }] {
            let whole = product(kernel, operands, shape, epilogue);
            let grid = kernel.grid(shape, true, 2);
            assert_eq!((grid.passes(), grid.tiles()), if k > 2000 { (4, 3) } else { (1, 4) });
            let tiled = kernel.tiled(Lhs::Packed(left), Rhs::Packed(right), shape, epilogue, &grid);
            let (mut out, mut scratch) = (numbers(m * n, 9), Scratch::default());
            let upcoming = UpcomingRows { data: &b, width: n, order: &[0, 9, 2, 5, 1, 3, 8, 4] };
            for (pass, tile) in
                (0..grid.passes()).flat_map(|pass| (0..grid.tiles()).rev().map(move |t| (pass, t)))
            {
                let (rows, turn) = (grid.rows(tile), Turn { pass, tile, among: 0..grid.tiles() });
                tiled.take(&turn, upcoming, &mut out[rows.start * n..rows.end * n], &mut scratch);
            }
            assert_eq!(bits(&whole), bits(&out), "{:?} {shape:?} {epilogue:?}", kernel.bf16_name());
            // From the second strip on, like a thread's share of rows.
            let share = &left[kernel.left_range(k, 32..m)];
            let mut part = numbers(m * n, 9)[32 * n..].to_vec();
            kernel.multiply(Lhs::Packed(share), Rhs::Packed(right), [m - 32, k, n], &mut part, epilogue);
            assert_eq!(
                bits(&whole[32 * n..]),
                bits(&part),
                "{:?} {shape:?} {epilogue:?}",
                kernel.bf16_name()
            );
        }
    }
}

#[test]
#[should_panic(expected = "operand shorter than its shape")]
fn an_operand_that_is_too_short_is_refused() {
    let kernel = Kernel::bf16_named("portable").unwrap();
    let right = vec![0.0; kernel.packed_len(40, 5)];
    kernel.multiply(
        Lhs::Packed(&right[..100]),
        Rhs::Packed(&right),
        [4, 40, 5],
        &mut [0.0; 20],
        Epilogue::Store,
    );
}
