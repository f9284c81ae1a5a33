//! The kernels' source text, in the order in which it is joined into one program.

/// Names and texts.
pub const SOURCES: &[(&str, &str)] = &[
    ("abi.cuh", include_str!("abi.cuh")),
    ("common.cuh", include_str!("common.cuh")),
    ("lanes.cuh", include_str!("lanes.cuh")),
    ("gather.cu", include_str!("gather.cu")),
    ("activation.cu", include_str!("activation.cu")),
    ("dropout.cu", include_str!("dropout.cu")),
    ("product.cu", include_str!("product.cu")),
    ("input_gradient.cu", include_str!("input_gradient.cu")),
    ("bias_gradient.cu", include_str!("bias_gradient.cu")),
    ("layer_norm.cu", include_str!("layer_norm.cu")),
    ("loss.cu", include_str!("loss.cu")),
    ("reduce.cu", include_str!("reduce.cu")),
    ("clip.cu", include_str!("clip.cu")),
    ("update.cu", include_str!("update.cu")),
    ("sgd.cu", include_str!("sgd.cu")),
    ("adam.cu", include_str!("adam.cu")),
    ("rmsprop.cu", include_str!("rmsprop.cu")),
    ("zero.cu", include_str!("zero.cu")),
    ("add.cu", include_str!("add.cu")),
    ("log.cu", include_str!("log.cu")),
    ("tiles.cuh", include_str!("tiles.cuh")),
    ("step.cuh", include_str!("step.cuh")),
    ("linear.cu", include_str!("linear.cu")),
    ("linear.cuh", include_str!("linear.cuh")),
    ("grid.cuh", include_str!("grid.cuh")),
    ("stationary.cuh", include_str!("stationary.cuh")),
    ("tensor.cu", include_str!("tensor.cu")),
    ("peer.cu", include_str!("peer.cu")),
    ("interpret.cu", include_str!("interpret.cu")),
];

/// One source text whose compiler messages name the files.
pub fn joined() -> String {
    SOURCES.iter().map(|(name, text)| format!("#line 1 \"{name}\"\n{text}\n")).collect()
}

/// The same without the kernels whose names are not kept: functions, for kernels that follow. A kernel ends
/// with its first line, or where a line begins with a brace. Other lines keep their numbers.
pub fn with_kernels(keep: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    let mut is_left_out = false;
    for line in joined().lines() {
        let begins = kernel_name(line).is_some_and(|name| !keep(name));
        if !is_left_out && !begins {
            text.push_str(line);
        }
        text.push('\n');
        is_left_out = if begins { !line.ends_with(" }") } else { is_left_out && !line.starts_with('}') };
    }
    text
}

/// The kernel that begins with this line.
fn kernel_name(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("extern \"C\" __global__ void ")?;
    let rest =
        rest.strip_prefix("__launch_bounds__").map_or(Some(rest), |rest| Some(rest.split_once(") ")?.1));
    rest?.split_once('(').map(|(name, _)| name)
}
