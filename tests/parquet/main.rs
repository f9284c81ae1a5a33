//! Parquet files, in a build that reads and writes them: `cargo test --features parquet --test parquet`. Apart from the other
//! tests, which would all be compiled anew.

#[path = "../it/data/mutated.rs"]
mod mutated;
#[path = "../it/notebooks.rs"]
mod notebooks;
#[path = "../it/data/opened.rs"]
#[allow(dead_code)] // The other tests use the rest of it.
mod opened;
#[path = "../it/process.rs"]
#[allow(dead_code)] // As above.
mod process;
mod rows;
