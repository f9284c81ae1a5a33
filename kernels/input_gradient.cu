// The gradient of a layer's input as a launch of its own: a product like others, but with few outputs a pass over
// the input that computes all gradients which need it.

// The rows of dy that each warp has fetched.
const int STAGED_ROWS = 8;
__device__ __forceinline__ float (&slim_rows_of_dy())[STAGED_ROWS][SLIM] {
    alignas(16) __shared__ float staged[8][STAGED_ROWS][SLIM];
    return staged[threadIdx.x / 32];
}

// dx = (dy W^T) f'(x) of a layer with at most K outputs, and sums over all rows: dW = x^T dy and the column
// sums of dx, which are the gradient of the preceding layer's bias. One read of x and one write of dx take almost all
// of the time. A lane owns WIDE columns and holds their weights; the rows of dy go through shared memory.
// F: the activation, or ANY.
template <int K, int WIDE_, int F>
struct SlimGradient {
    static const int WIDE = WIDE_, MOST = K + 1, BATCH = STAGED_ROWS;
    const Op& op;
    float* arena;
    float w[K][WIDE];

    __device__ __forceinline__ void begin(int column) {
        const float* weight = arena + op.at[1];
#pragma unroll
        for (int c = 0; c < K; c++)
#pragma unroll
            for (int q = 0; q < WIDE; q++) {
                bool inside = column < op.inputs && c < op.outputs;
                w[c][q] = inside ? weight[(u64)(column + q) * op.outputs + c] : 0.0f;
            }
        // All loads are under way before the first is waited for.
#pragma unroll
        for (int c = 0; c < K; c++)
#pragma unroll
            for (int q = 0; q < WIDE; q++) w[c][q] = operand(w[c][q], op.flags);
    }

    __device__ __forceinline__ void add(int column, int row, int n, float (&own)[MOST][WIDE]) {
        float(&d)[STAGED_ROWS][SLIM] = slim_rows_of_dy();
        int lane = threadIdx.x % 32;
        bool inside = column < op.inputs;
        unsigned first = row * (unsigned)op.inputs + column, step = 8 * (unsigned)op.inputs;
        Lanes<WIDE> x[BATCH] = {};
        if (inside && op.at[3] != NONE) load_rows(arena, op.at[3], op.at[7], first, step, n, x);
        // With RELU, x may be what RELU is applied to: it has the same positive values.
        if (F == RELU || (F == ANY && op.activation == RELU)) {
#pragma unroll
            for (int b = 0; b < BATCH; b++)
#pragma unroll
                for (int q = 0; q < WIDE; q++) x[b].v[q] = activated(RELU, x[b].v[q]);
        }
        // Rows and lanes beyond the end have zeros, so that only the stores depend on where the end is.
        float fetched[BATCH / 2];
#pragma unroll
        for (int t = 0; t < BATCH / 2; t++) {
            int b = 2 * t + lane / SLIM, c = lane % SLIM;
            bool is_there = b < n && c < op.outputs;
            fetched[t] = is_there ? (arena + op.at[0])[(row + 8 * b) * (unsigned)op.outputs + c] : 0.0f;
        }
        __syncwarp();   // the previous rows have been read
#pragma unroll
        for (int t = 0; t < BATCH / 2; t++) d[2 * t + lane / SLIM][lane % SLIM] = operand(fetched[t], op.flags);
        __syncwarp();
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            Lanes<WIDE> dx = one(x[b], d[b], own);
            if (b < n && inside) store(arena, op.at[2], op.at[6], op.flags, first + b * step, dx);
        }
    }

    // dx of a row, and the row's terms of the sums.
    __device__ __forceinline__ Lanes<WIDE> one(const Lanes<WIDE>& x, const float (&d)[SLIM], float (&own)[MOST][WIDE]) const {
        Lanes<WIDE> dx;
#pragma unroll
        for (int q = 0; q < WIDE; q++) {
            float z = 0.0f, rounded = operand(x.v[q], op.flags);
#pragma unroll
            for (int c = 0; c < K; c++) {
                z = fmaf(d[c], w[c][q], z);
                own[c][q] = fmaf(rounded, d[c], own[c][q]);
            }
            dx.v[q] = times_derivative(F == ANY ? op.activation : F, x.v[q], z);
            own[K][q] += dx.v[q];
        }
        return dx;
    }

    __device__ void finish(int j, int item, float total) const {
        if (item == K && op.at[5] != NONE) arena[op.at[5] + j] = total;
        if (item < op.outputs && op.at[4] != NONE) arena[op.at[4] + (u64)j * op.outputs + item] = total;
    }
};

template <int K, int WIDE, int F>
__device__ __forceinline__ void slim_gradient(const Op& op, float* arena, const Run& run) {
    SlimGradient<K, WIDE, F> task{op, arena, {}};
    Strips::sum(run, op.inputs, op.rows, K + 1, task);
}

// Places: dy, weight, dx, saved. If there are few outputs, also: dW (then `saved` is x), the column sums of dx, a copy of
// dx, the copy of x: for RELU that has the same sign.
extern "C" __global__ void __launch_bounds__(256, 2) op_input_gradient(Op op, float* arena, Run* run) {
    if (op.outputs > SLIM) return tiled<false, true>(input_gradient_product(op, arena));
    if (op.outputs <= 10 && op.inputs % 2 == 0 && op.activation == RELU) slim_gradient<10, 2, RELU>(op, arena, *run);
    else slim_gradient<SLIM, 1, ANY>(op, arena, *run);
}
