//! Products in f64, for comparison. They are here because every build optimizes this crate, so tests are quick.

/// `[m, k] x [k, n]`.
pub fn product_of(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for p in 0..k {
            for j in 0..n {
                c[i * n + j] += a[i * k + p] * b[p * n + j];
            }
        }
    }
    c
}

/// The transpose of `[rows, columns]`.
pub fn transposed(a: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    (0..rows * columns).map(|i| a[(i % rows) * columns + i / rows]).collect()
}
