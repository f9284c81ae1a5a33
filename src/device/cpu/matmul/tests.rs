//! Against sums in f64, at odd sizes, for every instruction set of the machine.
