//! Large products by cuBLASLt: which of its algorithms computes them.

use super::{Sim, parity::classes};

/// Its products are just large enough for the library.
const WIDE: &str = r#"model.layers=[{ linear = { out_features = 1060 } }, "relu", { linear = { out_features = 600 } }, "gelu", { linear = { out_features = 3 } }]"#;

/// Of four algorithms the first is slow, the second has other bits, the third is refused. What does not get
/// its turn within the time for all products gets it in the next run.
#[test]
fn the_fastest_algorithm_of_the_same_bits_is_taken_and_remembered() {
    let Some(sim) = Sim::get() else { return };
    let place = classes();
    let arguments = [WIDE, "trainer.max_steps=2", "devices.engine=launch"];
    let alone = sim.run(&place, &arguments, &[]).ended_by(0);
    assert!(!alone.text("run.log").contains("another algorithm"));
    let four = Sim::get().unwrap();
    let product = "matmul 600 32 1060 epilogue 4 compute 68 algorithm ";
    let mut seen = 0;
    let mut run = || {
        let ran = four.run(&place, &arguments, &[("RUNNER_SIM_ALGORITHMS", "4")]).ended_by(0);
        assert_eq!(ran.numbers(), alone.numbers(), "no bit depends on the algorithm");
        let calls = four.calls();
        let of_run = calls[seen..].iter().filter_map(|call| call.strip_prefix(product)).collect::<String>();
        seen = calls.len();
        (ran.text("run.log"), of_run)
    };
    let mut last = run();
    for _ in 0..20 {
        if last.1.ends_with("444") {
            break;
        }
        last = run();
    }
    assert!(last.1.ends_with("444"), "the steps use it: {}", last.1);
    let said = " shapes of large products use another algorithm than cuBLASLt's first suggestion, which gives the same bits: \
                at most ";
    assert!(last.0.contains(said), "{}", last.0);
    let (log, of_run) = run();
    assert_eq!(of_run, "444", "one at the start, one a step: the choice was remembered");
    assert!(log.contains(said), "{log}");
}
