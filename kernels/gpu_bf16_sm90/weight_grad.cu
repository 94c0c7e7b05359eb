// Gradient of a 2-D convolution with respect to its filters, in parts: the sums over splits of the
// pixels.
//
// Rung: gpu_bf16_sm90, over gpu_bf16. As in conv2d.cu one thread copies and warpgroups multiply.
// There is a warpgroup for each column of taps; they share the pixels of x and of dy. The sums run
// over pixels, and a pixel is a row of both operands: ldmatrix.trans transposes x, the first
// operand, and wgmma transposes dy, the second.
//
// Layouts: x bfloat16 (channel blocks, image pixels, 64), as conv2d.cu reads it; dy bfloat16
// (ceil(filters / 64), pixels up to a multiple of 64, 64), zero in further pixels and filters:
// `steps` of conv2d_gradient.cu and arrange.cu. partials float32 (splits, filters, kernel, kernel,
// channels), behind an upsampling (splits, channels, 4, 4, filters). A split sums steps_per_split
// steps of 64 pixels of y, in order, 16 products at a time. The number of splits depends on the
// shape alone: it changes the result's bytes.
//
// Macros:
//   TILE_N       filters of a block: 64 or 128
//   KERNEL       rows and columns of a filter: 1 to 4
//   WHOLE_ROWS   1: out_width divides 64, so that all steps begin in the same column of y; 0: it
//                does not
//   PHASES       1: behind an upsampling, with KERNEL 2: dy has the four phases one after the other
//                in a channel block, each with a multiple of 64 pixels, and partials are of the 4x4
//                phase weights (weight_update.cu). 0, the default: there are no phases.
// Launches: block (128 KERNEL + 128): a warpgroup for each column of taps, and one whose first
// thread copies; grid (KERNEL channel blocks, ceil(filters / TILE_N), splits phases), where KERNEL
// is for the rows of taps; STAGES (128 TILE_N / 64 * 64 + 128 rows) + 16 STAGES bytes of dynamic
// shared memory. rows: image pixels, a multiple of 8, that the windows of a step's pixels span at
// most in one row of taps, counted from a multiple of 8 on.
//
// Bound: tensor cores and shared memory. A step with KERNEL 3 and TILE_N 128 takes 768 cycles at
// the tensor cores' peak, and shared memory 776: 200 for what the copies write, 384 for dy, which
// each warpgroup reads, and 192 for the pixels of x.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#ifndef TILE_N
#define TILE_N 128
#define KERNEL 3
#define WHOLE_ROWS 1
#endif
#include "gpu_bf16_sm90/hopper.cuh"

// Halves of an operand's number; stages in shared memory, pixels of each.
constexpr int PARTS_OF_NUMBER = HALVES ? 2 : 1, STAGES = 4, STEP = 64 / PARTS_OF_NUMBER;
constexpr int CONSUMER_WARPS = 4 * KERNEL;  // warps that multiply
constexpr int STEP_BYTES = STEP * ROW;      // of 64 filters of dy
constexpr int DY_BLOCKS = TILE_N / 64 * PARTS_OF_NUMBER, DY_BYTES = DY_BLOCKS * STEP_BYTES;
// 16 pixels of a step, which wgmma multiplies at once.
constexpr int PIECES = STEP / 16;
// Of halves: what the accumulators are multiplied by.
constexpr float UNSCALE = power_of_two(-ACTIVATION_EXPONENT - GRADIENT_EXPONENT);
constexpr int SUMS = TILE_N / 2;  // accumulators of a thread, for its two channels
// Registers of a thread (setmaxnreg): at the launch, as many as all threads can have; then of the
// producer's warpgroup, and of the consumers. A warpgroup that asks for more than there are waits
// for ever.
constexpr int LAUNCH_REGISTERS = 65536 / (128 * (KERNEL + 1)) / 8 * 8, PRODUCER_REGISTERS = 24,
              CONSUMER_REGISTERS = KERNEL == 3 ? 160 : 112;
static_assert(PRODUCER_REGISTERS + KERNEL * CONSUMER_REGISTERS <= (KERNEL + 1) * LAUNCH_REGISTERS);

// How far a step of pixels moves in y (columns, rows), and where its window begins in x: `start`
// further, and more behind the last column or the last row.
struct StepStride {
    int columns, rows, start, at_row_end, at_image_end;

    __device__ __forceinline__ StepStride(const Windows& in)
        : columns(WHOLE_ROWS ? 0 : STEP % in.out_width), rows(STEP / in.out_width % in.out_height),
          start((STEP / in.out_width / in.out_height * in.height + rows * in.stride) * in.width +
                columns * in.stride),
          at_row_end((in.width - in.out_width) * in.stride),
          at_image_end((in.height - in.out_height * in.stride) * in.width) {}
};

// A pixel of y, one in each step, and where its window begins in x.
struct PixelIterator {
    int column, row, start;

    __device__ __forceinline__ PixelIterator(const Windows& windows, int pixel)
        : column(pixel % windows.out_width), row(pixel / windows.out_width % windows.out_height),
          start(windows.start(pixel)) {}

    __device__ __forceinline__ void next(const Windows& in, const StepStride& by) {
        row += by.rows, start += by.start;
        if (!WHOLE_ROWS) {
            column += by.columns;
            bool row_ends = column >= in.out_width;
            column -= row_ends ? in.out_width : 0, row += row_ends,
                start += row_ends ? by.at_row_end : 0;
        }
        bool image_ends = row >= in.out_height;
        row -= image_ends ? in.out_height : 0, start += image_ends ? by.at_image_end : 0;
    }
};

// The producer: all copies of a block. x, dy: the first rows of the channel blocks; below: rows of
// x from a window's start to the row of taps; rows: of x in a stage, image_pixels in memory, of
// each channel block.
__device__ __forceinline__ void produce(Ring<STAGES, 1> ring, const Placed* x, const Placed* dy,
                                        const Windows& windows, int below, int first_pixel,
                                        int steps, int pixels, int step_pixels, int image_pixels,
                                        int rows) {
    for (int step = 0; step < steps; step++, first_pixel += STEP) {
        int first = (windows.start(first_pixel) + below) / CHUNKS * CHUNKS;
        int last = windows.start(min(first_pixel + STEP, pixels) - 1) + below + KERNEL - 1,
            x_bytes = (last - first + 1) * ROW;
        ring.acquire(DY_BYTES + PARTS_OF_NUMBER * x_bytes);
#pragma unroll
        for (int block = 0; block < DY_BLOCKS; block++)
            ring.copy(
                block * STEP_BYTES,
                dy + (block * static_cast<long long>(PHASE_COUNT * step_pixels) + first_pixel) *
                         BLOCK_PLACES,
                STEP_BYTES);
        ring.copy(DY_BYTES, x + static_cast<long long>(first) * BLOCK_PLACES, x_bytes);
        if constexpr (HALVES)  // 32 channels further
            ring.copy(DY_BYTES + rows * ROW,
                      x + (static_cast<long long>(image_pixels) + first) * BLOCK_PLACES, x_bytes);
        ring.next();
    }
}

// A warp's products of 16 channels of x under a tap with all filters of the block.
struct Consumer {
    Ring<STAGES, 1> ring;
    Windows windows;
    StepStride by;
    // Rows of x from a window's start to the row of taps; column of taps; the chunk of x where this
    // lane's address for ldmatrix is.
    int below, column, chunk;
    int left;                            // pixels from this lane's first one in the next step on
    PixelIterator first, lane_pixel[4];  // the step's first pixel; this lane's of each 16
    int previous = -1;  // the stage of the step before, whose products may be under way

    // Where x begins in a stage. Of halves a row has 32 channels: two warps have those of the
    // second channel block.
    __device__ __forceinline__ int x_bytes() const {
        return DY_BYTES + (HALVES ? threadIdx.x / 64 % 2 * ((ring.bytes - DY_BYTES) / 2) : 0);
    }

    // The fragments of the next step. Behind the last pixel dy is 0, and x is that of the first
    // one. a: (16 pixels each, registers), of halves the high ones and then the low ones.
    __device__ __forceinline__ void load(unsigned (&a)[4][4]) {
        ring.wait();
        int under_tap = below + column - (first.start + below) / CHUNKS * CHUNKS;
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            int row = (left > 16 * i ? lane_pixel[i].start : first.start) + under_tap;
            ldmatrix_trans(a[i], ring.current() + x_bytes() + swizzled(row, chunk));
            if constexpr (HALVES)
                ldmatrix_trans(a[i + PIECES],
                               ring.current() + x_bytes() + swizzled(row, chunk + 4));
            lane_pixel[i].next(windows, by);
        }
        // So that ldmatrix has read before the copy engine writes: that its products have ended
        // does not order this.
        async_proxy_fence();
        first.next(windows, by);
        left -= STEP;
    }

    // Begins the products of a step, and waits for those of the step before, whose stage is empty
    // then.
    __device__ __forceinline__ void add(float (&sum)[SUMS], const unsigned (&a)[4][4]) {
        Descriptor b = matrix_descriptor(ring.current(), PARTS_OF_NUMBER * STEP_BYTES, 8 * ROW);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            Descriptor high = moved(b, 16 * ROW * i);
            if constexpr (HALVES) {
                wgmma<1>(sum, a[i + PIECES], high);
                wgmma<1>(sum, a[i], moved(high, STEP_BYTES));
            }
            wgmma<1>(sum, a[i], high);
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (previous >= 0) ring.release(previous);
        previous = ring.stage;
        ring.next();
    }
};

// A thread has two channels, eight apart, of two neighbouring filters of every eight. partials: of
// the tap and the split; filters_apart, channels_apart: numbers from one to the next.
__device__ __forceinline__ void write(const float (&sum)[SUMS], float* __restrict__ partials,
                                      int first_channel, int first_filter, int channels,
                                      int filters, int filters_apart, int channels_apart) {
#pragma unroll
    for (int j = 0; j < SUMS; j++) {
        int filter = first_filter + j / 4 * 8 + threadIdx.x % 4 * 2 + j % 2,
            channel = first_channel + j % 4 / 2 * 8;
        if (filter < filters && channel < channels)
            partials[filter * filters_apart + channel * channels_apart] =
                HALVES ? sum[j] * UNSCALE : sum[j];
    }
}

// image_pixels, rows: as in conv2d.cu; pixels: of y or of a phase; step_pixels: those stored in dy.
extern "C" __global__ void __launch_bounds__(32 * CONSUMER_WARPS + 128, 1)
    conv2d_weight_grad(const Placed* __restrict__ x, const Placed* __restrict__ dy,
                       float* __restrict__ partials, int height, int width, int channels,
                       int filters, int stride, int pixels, int image_pixels, int step_pixels,
                       int steps_per_split, int rows) {
    SWIZZLED_SHARED(shared);
    int stage_bytes = DY_BYTES + PARTS_OF_NUMBER * rows * ROW;
    Ring<STAGES, 1> ring(shared, stage_bytes,
                         reinterpret_cast<Barrier*>(shared + STAGES * stage_bytes));
    if (threadIdx.x == 0) {
        ring.init(CONSUMER_WARPS);
        barriers_visible();
    }
    __syncthreads();
    Windows windows(height, width, KERNEL, stride);
    int split = blockIdx.z / PHASE_COUNT, phase = blockIdx.z % PHASE_COUNT,
        channel_block = blockIdx.x / KERNEL;
    int tap_row = blockIdx.x % KERNEL, below = tap_row * width + windows.to_phase(phase);
    int first_filter = blockIdx.y * TILE_N, first_pixel = split * steps_per_split * STEP;
    int steps = min(steps_per_split, (step_pixels - first_pixel) / STEP), warp = threadIdx.x / 32;
    if (warp >= CONSUMER_WARPS) {
        if (KERNEL > 2) setmaxnreg_dec<PRODUCER_REGISTERS>();
        if (threadIdx.x == 32 * CONSUMER_WARPS)
            produce(ring,
                    x + static_cast<long long>(channel_block) * PARTS_OF_NUMBER * image_pixels *
                            BLOCK_PLACES,
                    dy + (first_filter / 64 * PARTS_OF_NUMBER * PHASE_COUNT + phase) *
                             static_cast<long long>(step_pixels) * BLOCK_PLACES,
                    windows, below, first_pixel, steps, pixels, step_pixels, image_pixels, rows);
        return;
    }
    if (KERNEL > 2) setmaxnreg_inc<CONSUMER_REGISTERS>();
    // Of the pixels where this lane's addresses for ldmatrix are.
    int matrix_row = threadIdx.x % 8 + threadIdx.x % 32 / 16 * 8, column = warp / 4;
    int chunk = warp % (4 / PARTS_OF_NUMBER) * 2 + threadIdx.x % 16 / 8;
    auto lane_pixel = [&](int i) {
        return PixelIterator(windows, first_pixel + 16 * i + matrix_row);
    };
    float sum[SUMS] = {};
    multiply(
        Consumer{
            ring,
            windows,
            StepStride(windows),
            below,
            column,
            chunk,
            pixels - first_pixel - matrix_row,
            PixelIterator(windows, first_pixel),
            {lane_pixel(0), lane_pixel(1), lane_pixel(2), lane_pixel(3)}
    },
        steps, sum);
    int first_channel = channel_block * 64 + warp % 4 * 16 + threadIdx.x % 32 / 4;
    partials += static_cast<long long>(split) * filters * PHASE_COUNT * KERNEL * KERNEL * channels;
    if (PHASES) {
        // The tap of the phase weights.
        int tap = (3 - phase / 2 - 2 * tap_row) * 4 + 3 - phase % 2 - 2 * column;
        write(sum, partials + tap * filters, first_channel, first_filter, channels, filters, 1,
              16 * filters);
    } else {
        write(sum, partials + (tap_row * KERNEL + column) * channels, first_channel, first_filter,
              channels, filters, KERNEL * KERNEL * channels, 1);
    }
}
