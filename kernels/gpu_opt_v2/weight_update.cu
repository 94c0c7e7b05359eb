// Adds the parts of all weight and bias gradients in order and applies the optimizer's update, in
// one launch: the gradients themselves never reach memory.
//
// Rung: gpu_opt_v2. Changed from gpu_opt_v1: the sum over the parts was a launch for each layer,
// before the update.
//
// Layouts, float32: parts as weight_grad.cu writes them; parameters and running averages in memory
// order; dweight (filters, kernel, kernel, channels), dbias (filters). `phases`: the parts' rows
// are 16 phase weights and filters; the 3x3 tap (i, j) takes four, rows 2 - i and 3 - i by columns
// 2 - j and 3 - j; the bias gradient is the sum over phase weights 1 and 2 both ways, which meet
// every output pixel once.
// table int64, as common/update.cuh has it, and in each row: the number of parts, the elements from
// one to the next, the place of the gradient in each, the filters where the parts are those of
// phase weights (0 where not), and the channels (0 for a bias). A whole gradient is one part.
// learning_rates float64, one per step of the run; counters int64: [step, offset into the
// permutation, step of this epoch]. clip: largest absolute value of an element of the gradient, 0
// for no limit; weight_decay is added after clipping.
//
// Launches: block (256), one thread per element of the parameters, or of dweight and then dbias
//   sgd_update, momentum_update, rmsprop_update, adam_update   grid: the sum of ceil(elements /
//                                                              256) over the parameters
//   add_parts                                                  dweight and dbias of one layer: grid
//                                                              (ceil(elements / 256))
//
// Bound: memory, mostly for the parts, which lie in the level-2 cache where it holds them. 8 parts
// of a sum are under way at once, 4 of each of four phase weights.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/ordered_sum.cuh"
#include "common/update.cuh"

enum MoreWords { SPLITS = MORE, APART, START, FILTERS, CHANNELS };

// Element i of a gradient whose parts are those of phase weights; channels: 0 for a bias.
__device__ __forceinline__ float add_phases(int i, const float* parts, int splits, int apart,
                                            int filters, int channels) {
    bool is_bias = channels == 0;
    int filter = is_bias ? i : i / channels / 9;
    int row = is_bias ? 1 : 2 - i / channels / 3 % 3, column = is_bias ? 1 : 2 - i / channels % 3;
    int place = (row * 4 + column) * filters + filter, down = 4 * filters, right = filters;
    if (!is_bias) place = place * channels + i % channels, down *= channels, right *= channels;
    float sum[4] = {};
    add_in_order<4>(sum, splits, [=](float (&to)[4], int split) {
#pragma unroll
        for (int k = 0; k < 4; k++)
            to[k] = parts[place + k / 2 * down + k % 2 * right + split * apart];
    });
    return sum[0] + sum[1] + sum[2] + sum[3];
}

template <Rule rule>
__device__ __forceinline__ void update_all(const long long* table, const Settings& settings) {
    const long long* row = row_of(table);
    int i = element_of(row), splits = row[SPLITS], apart = row[APART], filters = row[FILTERS];
    if (i >= row[COUNT]) return;
    const float* parts = address(row[GRADIENT]) + row[START];
    State state = load_state<rule>(row, i);
    float gradient = filters == 0 ? sum_of_parts(parts + i, splits, apart)
                                  : add_phases(i, parts, splits, apart, filters, row[CHANNELS]);
    update<rule>(row, i, state, gradient, settings);
}

extern "C" __global__ void __launch_bounds__(256)
    add_parts(const float* __restrict__ parts, float* __restrict__ dweight,
              float* __restrict__ dbias, int splits, int apart, int weights, int filters,
              int channels, int phases) {
    int i = blockIdx.x * blockDim.x + threadIdx.x,
        of_bias = phases ? 16 * filters * channels : weights;
    if (i < weights)
        dweight[i] = phases ? add_phases(i, parts, splits, apart, filters, channels)
                            : sum_of_parts(parts + i, splits, apart);
    else if (i < weights + filters)
        dbias[i - weights] =
            phases ? add_phases(i - weights, parts + of_bias, splits, apart, filters, 0)
                   : sum_of_parts(parts + of_bias + i - weights, splits, apart);
}
