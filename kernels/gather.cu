// Fetches the batch's rows of features and targets from the device's copy of the data.
//
// Row indices come from the run's counters, so arguments do not change between steps and a captured graph can
// be replayed. Features and targets share one op, so that their loads overlap.

// The row of the data that is row i of this device's batch.
__device__ __forceinline__ u64 data_row(const Op& op, const Run& run, unsigned i) {
    if (op.flags & FLAG_CHUNK) return run.offset + i;
    u64 position = run.position + op.first + i;
    return op.flags & FLAG_ORDERED ? run.order[position] : position;
}

// Reads rows, inputs (width of x), outputs (width of y), flags. Places: x, y, a copy of x. `row_of`: the row of the data
// that is row i. A thread owns every threads-th element (or quad, if rows are whole quads) of x, then of y. It loads AHEAD
// quads before it stores the first.
template <int AHEAD = 1, class S, class RowOf>
__device__ __forceinline__ void gather_rows(const Op& op, float* arena, const Run& run, S s, RowOf row_of) {
    bool validation = op.flags & FLAG_VALIDATION;
    const float* features = validation ? run.data[2] : run.data[0];
    const float* targets = validation ? run.data[3] : run.data[1];
    float* y = arena + op.at[1];
    unsigned width = op.inputs, target_width = op.outputs;
    unsigned wide = op.rows * width, narrow = op.rows * target_width;
    if (quads(op.at[0], width, (u64)features >> 2)) {
        unsigned per_row = width / 4;
        for (unsigned i = s.thread; i < wide / 4; i += AHEAD * s.threads) {
            u64 row[AHEAD];
            Lanes<4> quad[AHEAD];
#pragma unroll
            for (int q = 0; q < AHEAD; q++)
                if (i + q * s.threads < wide / 4) row[q] = row_of((i + q * s.threads) / per_row);
#pragma unroll
            for (int q = 0; q < AHEAD; q++)
                if (i + q * s.threads < wide / 4)
                    quad[q] = ((const Lanes<4>*)(features + row[q] * width))[(i + q * s.threads) % per_row];
#pragma unroll
            for (int q = 0; q < AHEAD; q++)
                if (i + q * s.threads < wide / 4)
                    store(arena, op.at[0], op.at[2], op.flags, 4 * (i + q * s.threads), quad[q]);
        }
    } else {
        for (unsigned i = s.thread; i < wide; i += s.threads)
            store(arena, op.at[0], op.at[2], op.flags, i,
                  Lanes<1>{features[row_of(i / width) * width + i % width]});
    }
    for (unsigned i = s.thread; i < narrow; i += s.threads)
        y[i] = targets[row_of(i / target_width) * target_width + i % target_width];
}

template <int AHEAD = 1, class S>
__device__ __forceinline__ void gather_op(const Op& op, float* arena, const Run& run, S s) {
    gather_rows<AHEAD>(op, arena, run, s, [&](unsigned i) { return data_row(op, run, i); });
}

extern "C" __global__ void op_gather(Op op, float* arena, Run* run) { gather_op<4>(op, arena, *run, Launch()); }
