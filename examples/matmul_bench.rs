use runner::device::cpu::matmul::*;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Instant;

fn data(n: usize, seed: u64) -> Vec<f32> {
    let mut s = seed.wrapping_mul(0x9E3779B97F4A7C15) | 1;
    (0..n)
        .map(|_| {
            s ^= s << 13;
            s ^= s >> 7;
            s ^= s << 17;
            ((s >> 40) as f32 / (1u64 << 24) as f32) - 0.5
        })
        .collect()
}
#[derive(Clone, Copy, PartialEq, Debug)]
enum Op {
    Nn,
    Tn,
    Nt,
}

fn gemm_call(
    op: Op,
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
    m: usize,
    k: usize,
    n: usize,
    par: gemm::Parallelism,
) {
    let (acs, ars) = match op {
        Op::Tn => (m as isize, 1),
        _ => (1, k as isize),
    };
    let (bcs, brs) = match op {
        Op::Nt => (k as isize, 1),
        _ => (1, n as isize),
    };
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            n as isize,
            false,
            a.as_ptr(),
            acs,
            ars,
            b.as_ptr(),
            bcs,
            brs,
            0.0f32,
            1.0f32,
            false,
            false,
            false,
            par,
        )
    }
}
fn time(mut f: impl FnMut(), reps: usize) -> f64 {
    let t = Instant::now();
    for _ in 0..reps {
        f()
    }
    t.elapsed().as_secs_f64() / reps as f64
}
fn main() {
    let filter: Vec<String> = std::env::args().skip(1).collect();
    let kernel = std::env::var("KERNEL").ok().and_then(|n| Kernel::named(&n)).unwrap_or(Kernel::detect());
    println!(
        "{} ; GFLOP/s: direct / packed / packed incl. packing / gemm ; ns direct, packed, gemm; pack us",
        kernel.name()
    );
    let mut cases: Vec<(&str, Op, usize, usize, usize)> = vec![
        ("w2fwd", Op::Nn, 256, 784, 256),
        ("w2fwd-half", Op::Nn, 128, 784, 256),
        ("w2dw", Op::Tn, 784, 256, 256),
        ("w2out", Op::Nn, 256, 256, 10),
        ("w2dwout", Op::Tn, 256, 256, 10),
        ("w2dx", Op::Nt, 256, 10, 256),
        ("x1", Op::Nn, 1024, 320, 800),
        ("x2", Op::Nn, 1024, 320, 2048),
        ("x3", Op::Nn, 1024, 1024, 800),
        ("x4", Op::Nn, 1024, 1024, 2048),
        ("d512", Op::Nn, 256, 512, 512),
        ("d512", Op::Nn, 256, 512, 384),
        ("d512", Op::Nn, 256, 512, 1024),
        ("d512", Op::Nn, 64, 512, 512),
        ("d512", Op::Nn, 64, 512, 1024),
        ("sq256", Op::Nn, 256, 256, 256),
        ("w3a", Op::Nn, 1024, 784, 2048),
        ("w3b", Op::Nn, 1024, 2048, 2048),
        ("w3b-half", Op::Nn, 512, 2048, 2048),
        ("w3dw", Op::Tn, 2048, 1024, 2048),
        ("w3dx", Op::Nt, 1024, 2048, 2048),
        ("w3out", Op::Nn, 1024, 2048, 10),
        ("w3dwout", Op::Tn, 2048, 1024, 10),
        ("w3dxout", Op::Nt, 1024, 10, 2048),
        ("w5a", Op::Nn, 32, 64, 32),
        ("w5out", Op::Nn, 32, 32, 10),
        ("w5dw", Op::Tn, 64, 32, 32),
        ("w5dwout", Op::Tn, 32, 32, 10),
        ("w5dx", Op::Nt, 32, 10, 32),
        ("one", Op::Nn, 1, 2, 1),
    ];
    cases.retain(|c| filter.is_empty() || filter.iter().any(|f| c.0.contains(f.as_str())));
    for (name, op, m, k, n) in cases {
        let (a, b) = (data(m * k, 1), data(k * n, 2));
        let (mut c, mut d, mut e) = (vec![0f32; m * n], vec![0f32; m * n], vec![0f32; m * n]);
        let mut packed = vec![0f32; kernel.packed_len(k, n)];
        let lhs = match op {
            Op::Tn => Lhs::Columns { data: &a, stride: m },
            _ => Lhs::Rows { data: &a, stride: k },
        };
        let src = match op {
            Op::Nt => Source::Transposed(&b),
            _ => Source::Rows(&b),
        };
        let units = kernel.units(k, n);
        let direct = op != Op::Nt;
        let flop = 2.0 * (m * k * n) as f64;
        let reps = ((0.01 / (flop / 100e9 + 20e-9)) as usize).max(1);
        let (mut td, mut tp, mut tk, mut tg) = (f64::MAX, f64::MAX, f64::MAX, f64::MAX);
        kernel.pack(src, [k, n], 0..units, &mut packed);
        let rounds = if flop > 1e9 { 6 } else { 15 };
        for _ in 0..rounds {
            if direct {
                td = td.min(time(
                    || {
                        kernel.multiply(
                            lhs,
                            Rhs::Rows(std::hint::black_box(&b)),
                            [m, k, n],
                            &mut c,
                            Epilogue::Store,
                        )
                    },
                    reps,
                ));
            }
            tp = tp.min(time(
                || {
                    kernel.multiply(
                        lhs,
                        Rhs::Packed(std::hint::black_box(&packed)),
                        [m, k, n],
                        &mut d,
                        Epilogue::Store,
                    )
                },
                reps,
            ));
            tk = tk.min(time(
                || kernel.pack(std::hint::black_box(src), [k, n], 0..units, &mut packed),
                reps.min(50),
            ));
            tg = tg.min(time(
                || gemm_call(op, std::hint::black_box(&a), &b, &mut e, m, k, n, gemm::Parallelism::None),
                reps,
            ));
        }
        if direct {
            assert!(c.iter().zip(&d).all(|(x, y)| x.to_bits() == y.to_bits()));
        }
        let err = d.iter().zip(&e).map(|(x, y)| (x - y).abs()).fold(0f32, f32::max);
        assert!(err < 1e-2, "{err}");
        let g = |t: f64| flop / t * 1e-9;
        println!(
            "{name:11} {m:5}x{k:4}x{n:4} {op:?}  {:6.1} {:6.1} {:6.1} {:6.1}   ns {:9.0} {:9.0} {:9.0}  pack {:8.2} us",
            if direct { g(td) } else { 0.0 },
            g(tp),
            g(tp + tk),
            g(tg),
            if direct { td * 1e9 } else { 0.0 },
            tp * 1e9,
            tg * 1e9,
            tk * 1e6
        );
    }
    for (m, k) in [(32, 2), (32, 16), (1024, 100), (1024, 2), (256, 1000)] {
        let (x, w, d) = (data(m * k, 1), data(k, 2), data(m, 3));
        let (mut y, mut g, mut z) = (vec![0f32; m], vec![0f32; k], vec![0f32; m.max(k)]);
        let (mut a, mut b, mut ga, mut gb) = (f64::MAX, f64::MAX, f64::MAX, f64::MAX);
        for _ in 0..20 {
            let reps = 2_000_000 / (m * k) + 1;
            a = a.min(time(|| kernel.dot_rows(std::hint::black_box(&x), &w, 0.1, false, &mut y), reps));
            b = b.min(time(|| kernel.weigh_rows(std::hint::black_box(&x), k, &d, None, &mut g), reps));
            ga = ga.min(time(
                || gemm_call(Op::Nn, std::hint::black_box(&x), &w, &mut z, m, k, 1, gemm::Parallelism::None),
                reps,
            ));
            gb = gb.min(time(
                || gemm_call(Op::Tn, std::hint::black_box(&x), &d, &mut z, k, m, 1, gemm::Parallelism::None),
                reps,
            ));
        }
        let f = 2e-9 * (m * k) as f64;
        println!(
            "one output {m}x{k}: forward {:.0} ns ({:.1} GFLOP/s; gemm {:.0} ns), gradient {:.0} ns ({:.1}; gemm {:.0} ns)",
            a * 1e9,
            f / a,
            ga * 1e9,
            b * 1e9,
            f / b,
            gb * 1e9
        );
    }
    for (name, op, m, k, n) in [
        ("w2fwd", Op::Nn, 256usize, 784usize, 256usize),
        ("w2dw", Op::Tn, 784, 256, 256),
        ("w3a", Op::Nn, 1024, 784, 2048),
        ("w3b", Op::Nn, 1024, 2048, 2048),
        ("w3dw", Op::Tn, 2048, 1024, 2048),
        ("w3dx", Op::Nt, 1024, 2048, 2048),
    ] {
        if !filter.iter().any(|f| f == "two") {
            break;
        }
        let (a, b) = (data(m * k, 1), data(k * n, 2));
        let (mut c, mut e) = (vec![0f32; m * n], vec![0f32; m * n]);
        let mut packed = vec![0f32; kernel.packed_len(k, n)];
        let pack = op == Op::Nt || kernel.worth_packing(m, n);
        let flop = 2.0 * (m * k * n) as f64;
        let reps = ((0.05 / (flop / 300e9)) as usize).max(1);
        let (mut t, mut tg) = (f64::MAX, f64::MAX);
        for _ in 0..8 {
            let arrived = AtomicUsize::new(0);
            let barrier = |round: usize| {
                arrived.fetch_add(1, AcqRel);
                while arrived.load(Acquire) < 2 * round {
                    std::hint::spin_loop()
                }
            };
            let units = kernel.units(k, n);
            let half = kernel.unit_range(k, n, 0..units / 2).end;
            let (c0, c1) = c.split_at_mut(m / 2 * n);
            let (p0, p1) = packed.split_at_mut(half);
            struct Ptr(*const f32, usize);
            unsafe impl Sync for Ptr {}
            let whole = Ptr(p0.as_ptr(), p0.len() + p1.len());
            let whole = &whole;
            let worker = |rank: usize, out: &mut [f32], mine: &mut [f32]| {
                let mut round = 0;
                let src = match op {
                    Op::Nt => Source::Transposed(&b),
                    _ => Source::Rows(&b),
                };
                let row = rank * (m / 2);
                let lhs = match op {
                    Op::Tn => Lhs::Columns { data: &a[row..], stride: m },
                    _ => Lhs::Rows { data: &a[row * k..], stride: k },
                };
                barrier(1);
                round += 1;
                let start = Instant::now();
                for _ in 0..reps {
                    if pack {
                        kernel.pack(
                            src,
                            [k, n],
                            if rank == 0 { 0..units / 2 } else { units / 2..units },
                            mine,
                        );
                        round += 1;
                        barrier(round);
                    }
                    let rhs = if pack {
                        Rhs::Packed(unsafe { std::slice::from_raw_parts(whole.0, whole.1) })
                    } else {
                        Rhs::Rows(&b)
                    };
                    kernel.multiply(lhs, rhs, [m / 2, k, n], out, Epilogue::Store);
                    round += 1;
                    barrier(round);
                }
                start.elapsed().as_secs_f64() / reps as f64
            };
            let mine = std::thread::scope(|s| {
                let other = s.spawn(|| worker(1, c1, p1));
                let x = worker(0, c0, p0);
                other.join().unwrap().max(x)
            });
            t = t.min(mine);
            tg = tg.min(time(
                || gemm_call(op, std::hint::black_box(&a), &b, &mut e, m, k, n, gemm::Parallelism::Rayon(2)),
                reps,
            ));
        }
        println!(
            "two threads {name} packed={pack}: {:.0} with packing, gemm {:.0}, ratio {:.2}",
            flop / t * 1e-9,
            flop / tg * 1e-9,
            tg / t
        );
    }
}
