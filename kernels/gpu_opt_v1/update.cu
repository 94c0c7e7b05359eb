// The optimizers' updates of all parameters in one launch.
//
// Rung: over gpu_basic: one launch instead of one per parameter; a small bias costs a block, not a
// launch.
// Layouts: table int64, as common/update.cuh has it; parameters, gradients and running averages
// float32, in memory order; learning_rates float64, one per step of the run; counters int64: [step,
// offset into the permutation, step of this epoch]. clip: largest absolute value of an element of
// the gradient, 0 for no limit; weight_decay is added after clipping.
// Launches: block (256), one thread per element; grid: the sum of ceil(elements / 256) over the
// parameters
// Bound: memory. sgd moves 12 bytes per element, momentum and rmsprop 20, adam 28; the float64
// arithmetic is hidden by it.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/update.cuh"

template <Rule rule>
__device__ __forceinline__ void update_all(const long long* table, const Settings& settings) {
    const long long* row = row_of(table);
    int i = element_of(row);
    if (i < row[COUNT])
        update<rule>(row, i, load_state<rule>(row, i), address(row[GRADIENT])[i], settings);
}
