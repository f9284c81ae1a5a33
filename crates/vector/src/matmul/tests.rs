//! Products compared with f64 sums at odd sizes, and bit by bit between different splits, for every
//! instruction set of the machine.

use proptest::prelude::*;

use super::*;

const SIZES: [usize; 9] = [0, 1, 2, 7, 10, 16, 31, 33, 100];

fn kernels() -> Vec<Kernel> {
    ["avx512", "avx2", "portable"].into_iter().filter_map(Kernel::named).collect()
}

/// Pseudo-random elements in -1..1.
pub(super) fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(next).collect()
}

pub(super) fn transposed(data: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|c| (0..rows).map(move |r| data[r * columns + c])).collect()
}

/// The product in f64, with a bound on each element's rounding error.
pub(super) fn reference(a: &[f32], b: &[f32], [m, k, n]: [usize; 3]) -> Vec<(f64, f64)> {
    let mut out = Vec::with_capacity(m * n);
    for i in 0..m {
        for j in 0..n {
            let terms = (0..k).map(|l| f64::from(a[i * k + l]) * f64::from(b[l * n + j]));
            let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
            out.push((sum, (k + 4) as f64 * f64::from(f32::EPSILON) * (size + 2.0)));
        }
    }
    out
}

pub(super) fn packed(kernel: Kernel, source: Source<'_>, k: usize, n: usize) -> Vec<f32> {
    // Aligned to a cache line, as in the arena: only then large operands bypass the caches.
    let mut room = vec![f32::NAN; kernel.packed_len(k, n) + 16];
    let start = room.as_ptr().align_offset(64);
    let out = &mut room[start..][..kernel.packed_len(k, n)];
    // Packed in two shares, as in a team.
    let units = kernel.units(k, n);
    for share in [0..units / 2, units / 2..units] {
        let range = kernel.unit_range(k, n, share.clone());
        kernel.pack(source, [k, n], share, &mut out[range]);
    }
    assert!(out.iter().all(|x| !x.is_nan()), "a number was not written");
    out.to_vec()
}

pub(super) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// All ways to compute a product give equal bits, close to the reference.
fn all_ways(kernel: Kernel, [m, k, n]: [usize; 3]) {
    let shape = [m, k, n];
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let (at, bt) = (transposed(&a, m, k), transposed(&b, k, n));
    let (rows, columns) = (Lhs::Rows { data: &a, stride: k }, Lhs::Columns { data: &at, stride: m });
    let from_rows = packed(kernel, Source::Rows(&b), k, n);
    let from_transposed = packed(kernel, Source::Transposed(&bt), k, n);
    assert_eq!(bits(&from_rows), bits(&from_transposed), "packing {} {shape:?}", kernel.name());
    let mut first = vec![f32::NAN; m * n];
    kernel.multiply(rows, Rhs::Rows(&b), shape, &mut first, Epilogue::Store);
    for (i, (x, (exact, error))) in first.iter().zip(reference(&a, &b, shape)).enumerate() {
        assert!((f64::from(*x) - exact).abs() <= error, "{} {shape:?} [{i}]: {x} for {exact}", kernel.name());
    }
    for (lhs, rhs) in
        [(rows, Rhs::Packed(&from_rows)), (columns, Rhs::Rows(&b)), (columns, Rhs::Packed(&from_rows))]
    {
        let mut out = vec![f32::NAN; m * n];
        kernel.multiply(lhs, rhs, shape, &mut out, Epilogue::Store);
        assert_eq!(bits(&first), bits(&out), "{} {shape:?}", kernel.name());
    }
}

#[test]
fn products_at_odd_sizes_are_right_in_every_layout() {
    for kernel in kernels() {
        for m in SIZES {
            for k in SIZES {
                for n in SIZES {
                    all_ways(kernel, [m, k, n]);
                }
            }
        }
        // More than one block of k; more than one group of columns; the left operand copied.
        for shape in [[3, 1023, 33], [17, 641, 10], [29, 700, 1025], [5, 2, 2049], [1023, 3, 31]] {
            all_ways(kernel, shape);
        }
    }
}

#[test]
fn the_epilogues_are_applied_to_the_finished_sum() {
    for kernel in kernels() {
        for shape @ [m, k, n] in [[9, 5, 10], [20, 33, 40], [15, 400, 600], [31, 7, 1]] {
            let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
            let (bias, saved) = (numbers(n, 3), numbers(m * n, 4));
            let exact = reference(&a, &b, shape);
            let at = transposed(&a, m, k);
            let orders = [Lhs::Rows { data: &a, stride: k }, Lhs::Columns { data: &at, stride: m }];
            for lhs in orders {
                let check = |epilogue, wanted: &dyn Fn(usize, f64) -> f64| {
                    let mut out = saved.clone();
                    kernel.multiply(lhs, Rhs::Rows(&b), shape, &mut out, epilogue);
                    for (i, (x, (sum, error))) in out.iter().zip(&exact).enumerate() {
                        let wanted = wanted(i, *sum);
                        assert!(
                            (f64::from(*x) - wanted).abs() <= *error,
                            "{epilogue:?} {shape:?}: {x} for {wanted}"
                        );
                    }
                };
                let biased = |i: usize, sum: f64| sum + f64::from(bias[i % n]);
                check(Epilogue::Bias { bias: Some(&bias), relu: false }, &biased);
                check(Epilogue::Bias { bias: Some(&bias), relu: true }, &|i, sum| biased(i, sum).max(0.0));
                check(Epilogue::Bias { bias: None, relu: true }, &|_, sum| sum.max(0.0));
                check(Epilogue::Update { rate: 0.5 }, &|i, sum| f64::from(saved[i]) - 0.5 * sum);
                check(Epilogue::WherePositive { saved: &saved }, &|i, sum| {
                    if saved[i] > 0.0 { sum } else { 0.0 }
                });
            }
        }
    }
}

#[test]
fn a_rectifier_lets_nan_through() {
    for kernel in kernels() {
        let mut out = [0.0; 3];
        let lhs = Lhs::Rows { data: &[f32::NAN, 1.0, -1.0], stride: 1 };
        kernel.multiply(
            lhs,
            Rhs::Rows(&[1.0]),
            [3, 1, 1],
            &mut out,
            Epilogue::Bias { bias: None, relu: true },
        );
        assert!(out[0].is_nan(), "{}", kernel.name());
        assert_eq!(out[1..], [1.0, 0.0]);
        kernel.dot_rows(Lines::new(&[f32::NAN, 1.0, -1.0], 1), &[1.0], 0.0, true, &mut out);
        assert!(out[0].is_nan(), "{}", kernel.name());
        assert_eq!(out[1..], [1.0, 0.0]);
    }
}

#[test]
fn a_left_operand_may_be_a_part_of_wider_rows() {
    for kernel in kernels() {
        let (a, b) = (numbers(40 * 50, 1), numbers(20 * 30, 2));
        let tight: Vec<f32> = a.chunks(50).flat_map(|row| &row[3..23]).copied().collect();
        let (mut one, mut two) = (vec![0.0; 40 * 30], vec![0.0; 40 * 30]);
        let shape = [40, 20, 30];
        kernel.multiply(
            Lhs::Rows { data: &a[3..], stride: 50 },
            Rhs::Rows(&b),
            shape,
            &mut one,
            Epilogue::Store,
        );
        kernel.multiply(
            Lhs::Rows { data: &tight, stride: 20 },
            Rhs::Rows(&b),
            shape,
            &mut two,
            Epilogue::Store,
        );
        assert_eq!(bits(&one), bits(&two));
    }
}

#[test]
#[should_panic(expected = "operand shorter than its shape")]
fn an_operand_that_is_too_short_is_refused() {
    let lhs = Lhs::Rows { data: &[0.0; 19], stride: 5 };
    Kernel::detect().multiply(lhs, Rhs::Rows(&[0.0; 50]), [4, 5, 10], &mut [0.0; 40], Epilogue::Store);
}

#[test]
fn one_output_layers_agree_with_f64() {
    for kernel in kernels() {
        for rows in [0, 1, 2, 5, 16, 17, 32, 100, 1023] {
            for k in [0, 1, 2, 3, 7, 16, 31, 64, 100, 257] {
                let (x, w, d) = (numbers(rows * k, 1), numbers(k, 2), numbers(rows, 3));
                let mut out = vec![f32::NAN; rows];
                kernel.dot_rows(Lines::new(&x, k), &w, 0.25, true, &mut out);
                for (y, (sum, error)) in out.iter().zip(reference(&x, &w, [rows, k, 1])) {
                    let wanted = (sum + 0.25).max(0.0);
                    assert!(
                        (f64::from(*y) - wanted).abs() <= error,
                        "{} {rows} {k}: {y} for {wanted}",
                        kernel.name()
                    );
                }
                let exact = reference(&d, &x, [1, rows, k]);
                let (mut stored, mut updated) = (vec![f32::NAN; k], w.clone());
                kernel.weigh_rows(Lines::new(&x, k), &d, None, &mut stored);
                kernel.weigh_rows(Lines::new(&x, k), &d, Some(0.5), &mut updated);
                for i in 0..k {
                    let ((sum, error), step) = (exact[i], f64::from(w[i]) - 0.5 * exact[i].0);
                    assert!((f64::from(stored[i]) - sum).abs() <= error, "{} {rows} {k}", kernel.name());
                    assert!((f64::from(updated[i]) - step).abs() <= error, "{} {rows} {k}", kernel.name());
                }
            }
        }
    }
}

#[test]
fn denormals_are_flushed_in_the_thread_that_asks() {
    let thread = std::thread::spawn(|| {
        let before = crate::denormals_flushed();
        crate::flush_denormals();
        let tiny = std::hint::black_box(f32::MIN_POSITIVE);
        (before, crate::denormals_flushed(), tiny * std::hint::black_box(0.5))
    });
    let (before, after, half) = thread.join().expect("the thread does not panic");
    assert!(!before);
    if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        assert!(after);
        assert_eq!(half, 0.0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_split_of_rows_does_not_matter(
        m in 1usize..90, k in 1usize..700, n in prop_oneof![1usize..70, 500usize..600],
        cuts in proptest::collection::vec(0usize..90, 0..5), columns: bool, pack: bool, which in 0usize..4,
    ) {
        for kernel in kernels() {
            let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
            let (bias, saved) = (numbers(n, 3), numbers(m * n, 4));
            let right = packed(kernel, Source::Rows(&b), k, n);
            let rhs = if pack { Rhs::Packed(&right) } else { Rhs::Rows(&b) };
            let share = |first: usize, rows: usize, out: &mut [f32]| {
                let lhs = if columns {
                    Lhs::Columns { data: &a[first..], stride: m }
                } else {
                    Lhs::Rows { data: &a[first * k..], stride: k }
                };
                let epilogue = [
                    Epilogue::Store,
                    Epilogue::Bias { bias: Some(&bias), relu: true },
                    Epilogue::Update { rate: 0.1 },
                    Epilogue::WherePositive { saved: &saved[first * n..] },
                ][which];
                kernel.multiply(lhs, rhs, [rows, k, n], out, epilogue);
            };
            let mut whole = saved.clone();
            share(0, m, &mut whole);
            let mut cuts: Vec<usize> = cuts.iter().map(|&c| c.min(m)).chain([0, m]).collect();
            cuts.sort_unstable();
            let mut parts = saved.clone();
            for pair in cuts.windows(2) {
                share(pair[0], pair[1] - pair[0], &mut parts[pair[0] * n..pair[1] * n]);
            }
            prop_assert_eq!(bits(&whole), bits(&parts));
        }
    }

    #[test]
    fn the_split_of_a_one_output_layer_does_not_matter(rows in 1usize..200, k in 3usize..200, cut in 0usize..200) {
        for kernel in kernels() {
            let (x, w, d) = (numbers(rows * k, 1), numbers(k, 2), numbers(rows, 3));
            let (mut whole, mut parts) = (vec![0.0; rows], vec![0.0; rows]);
            let row = cut.min(rows);
            kernel.dot_rows(Lines::new(&x, k), &w, 0.5, false, &mut whole);
            kernel.dot_rows(Lines::new(&x, k), &w, 0.5, false, &mut parts[..row]);
            kernel.dot_rows(Lines::new(&x[row * k..], k), &w, 0.5, false, &mut parts[row..]);
            prop_assert_eq!(bits(&whole), bits(&parts));
            let (mut whole, mut parts) = (vec![0.0; k], vec![0.0; k]);
            let column = cut.min(k);
            kernel.weigh_rows(Lines::new(&x, k), &d, None, &mut whole);
            kernel.weigh_rows(Lines::new(&x, k), &d, None, &mut parts[..column]);
            kernel.weigh_rows(Lines::new(&x[column..], k), &d, None, &mut parts[column..]);
            prop_assert_eq!(bits(&whole), bits(&parts));
        }
    }
}

#[test]
fn rows_that_an_order_names_have_the_bits_of_their_copies() {
    for kernel in kernels() {
        for (rows, k) in [(1, 16), (5, 2), (70, 100), (130, 17), (64, 300)] {
            let there = 3 * rows;
            let (data, w, d) = (numbers(there * k, 1), numbers(k, 2), numbers(rows, 3));
            let order: Vec<u32> = (0..rows).map(|i| ((i * 7 + 2) % there) as u32).collect();
            let copied: Vec<f32> =
                order.iter().flat_map(|r| &data[*r as usize * k..][..k]).copied().collect();
            let named = Lines { data: &data, stride: k, order: Some(&order) };
            let both = |x: Lines<'_>| {
                let (mut dots, mut sums) = (vec![f32::NAN; rows], vec![f32::NAN; k]);
                kernel.dot_rows(x, &w, 0.5, false, &mut dots);
                kernel.weigh_rows(x, &d, None, &mut sums);
                [bits(&dots), bits(&sums)]
            };
            // Copied rows of two columns are computed along the rows: with other chains, so the sums differ
            // by rounding.
            if k > 2 {
                assert_eq!(both(named), both(Lines::new(&copied, k)), "{} {rows} {k}", kernel.name());
            }
            let half = rows / 2;
            let (mut whole, mut part) = (vec![0.0; rows], vec![0.0; rows - half]);
            kernel.dot_rows(named, &w, 0.5, false, &mut whole);
            kernel.dot_rows(named.part(half, rows - half), &w, 0.5, false, &mut part);
            assert_eq!(bits(&whole[half..]), bits(&part), "{} {rows} {k}", kernel.name());
        }
    }
}

#[test]
#[should_panic(expected = "operand shorter than its shape")]
fn an_order_of_rows_that_are_not_there_is_refused() {
    let x = Lines { data: &[0.0; 50], stride: 10, order: Some(&[0, 5]) };
    Kernel::detect().dot_rows(x, &[0.0; 10], 0.0, false, &mut [0.0; 2]);
}

#[test]
fn large_operands_are_packed_as_small_ones_are() {
    for kernel in kernels() {
        all_ways(kernel, [3, 1031, 1025]);
    }
}

#[test]
fn tiles_in_any_order_have_the_same_bits() {
    // Blocks of terms, groups of columns, and tiles of two heights.
    for (kernel, shape) in kernels().into_iter().flat_map(|k| [(k, [45, 700, 1100]), (k, [61, 100, 70])]) {
        let [m, k, n] = shape;
        let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
        let (at, right) = (transposed(&a, m, k), packed(kernel, Source::Rows(&b), k, n));
        let start = numbers(m * n, 3);
        let lefts = [Lhs::Rows { data: &a, stride: k }, Lhs::Columns { data: &at, stride: m }];
        let ends = [
            Epilogue::Store,
            Epilogue::Bias { bias: Some(&b[..n]), relu: true },
            Epilogue::Update { rate: 0.5 },
            Epilogue::WherePositive { saved: &start },
        ];
        for (lhs, epilogue) in lefts.into_iter().flat_map(|l| ends.map(|e| (l, e))) {
            let mut whole = start.clone();
            kernel.multiply(lhs, Rhs::Packed(&right), shape, &mut whole, epilogue);
            // Prefetches change no result.
            let upcoming = UpcomingRows { data: &b, width: n, order: &[0, 99, 2, 50, 1, 3, 98, 4] };
            let grid = kernel.grid(shape, true, 3);
            assert_eq!(grid.passes(), if k > 320 { 6 } else { 1 }, "three blocks, two groups");
            assert_eq!((grid.tiles() % 3, grid.rows(0).start, grid.rows(grid.tiles() - 1).end), (0, 0, m));
            let tiled = kernel.tiled(lhs, Rhs::Packed(&right), shape, epilogue, &grid);
            let (mut out, mut scratch) = (start.clone(), Scratch::default());
            for pass in 0..grid.passes() {
                for tile in (0..grid.tiles()).rev() {
                    let rows = grid.rows(tile);
                    // Both as the tile's owner and as a thread that takes it over.
                    let among = if tile % 2 == 0 { 0..grid.tiles() } else { 0..0 };
                    let turn = Turn { pass, tile, among };
                    tiled.take(&turn, upcoming, &mut out[rows.start * n..rows.end * n], &mut scratch);
                }
            }
            assert_eq!(bits(&whole), bits(&out), "{} {shape:?} {epilogue:?}", kernel.name());
        }
    }
}
