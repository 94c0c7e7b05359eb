// Gradient of a 2-D convolution with stride 1 with respect to its weight, in parts as
// weight_grad.cu leaves them: a block keeps squares of dy, and of x with what the window reaches
// beyond them, in shared memory once for all taps.
//
// Rung: gpu_tf32, over gpu_3xtf32. A step has two squares of 8 x 8 pixels of y, of any images; the
// 16 pixels of a product are a row of each. A warp computes all taps of WARP_M filters and WARP_N
// channels, and goes down the squares. It loads a row of x once for each column of the window,
// which is a shift of the addresses from which ldmatrix reads. It multiplies that by the rows of dy
// that see it through the window's rows. Those rows stay in registers for as long as they are
// needed.
//
// Layouts: x, dy, partials: as weight_grad.cu; channels are a multiple of TILE_N. A split sums
// squares_per_split, an even number, of the squares that cover the images' parts of y, row by row,
// in order, a row of two squares at a time; beyond y dy is 0. The number of splits depends on the
// shape alone.
//
// Macros (staged_tile.cuh has MULTIPLIER; of 32 bits a step has one square, and a pixel two rows of
// shared memory):
//   TILE_M, TILE_N   filters and channels of a block; WARP_M, WARP_N: those of a warp. The one that
//                    takes the fewest cycles: 64 x 64, 32 x 16 a warp, 256 threads; or 16 x 64,
//                    16 x 16 a warp, 128 threads
//   KERNEL           rows and columns of a filter: 2 or 3
//   WHOLE            1: squares end with the images and come in twos; 0: not all do
// Launches: block (threads of the tile), grid (channels / TILE_N, ceil(filters / TILE_M), splits),
// 512 ((KERNEL + 7)^2 + 64) bytes of dynamic shared memory, two steps.
//
// Bound: tensor cores and shared memory. Of a step of the large tile, KERNEL = 3, products take
// 2,304 cycles; 184 KB are read as fragments and 41 KB copied, which takes 2,128. For 128 pixels
// level 2 gives 200 of x, where weight_grad.cu asks for 1,152. In the loop of two steps on sm_90
// 576 of 1,045 instructions are products, 92 load fragments and 24 copy; in that of the small tile
// 288 of 762 are products.
// Times: kernels/README.md has those of whole steps, predicted and measured.
#include "common/tensor_cores.cuh"

#ifndef TILE_M
#define TILE_M 64
#define TILE_N 64
#define WARP_M 32
#define WARP_N 16
#define KERNEL 3
#define WHOLE 1
#endif

// Side of a square of y, and of x under it; squares of a step.
constexpr int SIDE = 8, REACH = SIDE + KERNEL - 1, SQUARES = MMA_K / SIDE;
constexpr int ACROSS = TILE_N / WARP_N, THREADS = 32 * ACROSS * (TILE_M / WARP_M),
              M_FRAGMENTS = WARP_M / 16;
constexpr int STAGES = FLOAT16 ? 1 : 2;  // in 64 KB of shared memory, all of sm_75, or in 99 KB
static_assert(TILE_N == 64 && WARP_N == 16,
              "a row of shared memory, or two, is a block's channels, an ldmatrix those of a warp");

// The copies of squares of pixels to shared memory: (SLICES, side, side, CHANNEL_BLOCK). A pixel
// has a row of 128 bytes in each slice of its channels. A thread copies one chunk of one column of
// every slice.
template <int side, int channels_read>
struct Square {
    static constexpr int SLICES = (channels_read + CHANNEL_BLOCK - 1) / CHANNEL_BLOCK,
                         SLICE_BYTES = side * side * ROW;
    // ACROSS: chunks of a slice.
    static constexpr int BYTES = SLICES * SLICE_BYTES, ACROSS = channels_read / CHUNK / SLICES;
    // Rows of a pass, and passes.
    static constexpr int AT_ONCE = THREADS / ACROSS / side, PASSES = (side + AT_ONCE - 1) / AT_ONCE;
    const Packed *array, *from;  // from: of the array's first square
    // row: of the first pass; to: the byte where its chunk goes; pitch: numbers from a row of the
    // array to the next
    int row, column, to, pitch;
    int in_slice[SLICES];  // numbers from the first slice to this one

    // The byte where a chunk is. What a load reads of eight neighbours in a row, or of 32 bits two
    // chunks of four neighbours, is in different banks.
    static __device__ __forceinline__ int place(int row, int column, int chunk) {
        return (SLICES > 1 ? chunk / CHUNKS * SLICE_BYTES : 0) + (row * side + column) * ROW +
               16 * (chunk % CHUNKS ^ (IN_WORDS ? column % 4 * 2 : column % CHUNKS));
    }
    static __device__ __forceinline__ int channel() { return threadIdx.x % ACROSS * CHUNK; }
    // width, channels: of the array; first: the first channel that this thread copies. Of a slice
    // beyond the last channel it copies the first slice again, which nothing reads.
    __device__ __forceinline__ Square(const Packed* array, int width, int channels, int first)
        : array(array), row(threadIdx.x / ACROSS / side), column(threadIdx.x / ACROSS % side),
          pitch(width * channels) {
        from = array + (row * width + column) * channels + first;
        to = place(row, column, threadIdx.x % ACROSS);
        if (row >= AT_ONCE) row = side;  // not this thread
#pragma unroll
        for (int slice = 0; slice < SLICES; slice++)
            in_slice[slice] = first + slice * CHANNEL_BLOCK < channels ? slice * CHANNEL_BLOCK : 0;
        keep_in_register(row), keep_in_register(to);
    }
    // first: where the square begins in the array; rows, columns: of the image from there on.
    __device__ __forceinline__ void copy(unsigned char* square, int first, int rows,
                                         int columns) const {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            int further = pass * AT_ONCE;
            if (row + further >= side) break;
            bool valid = WHOLE || (row + further < rows && column < columns);
#pragma unroll
            for (int slice = 0; slice < SLICES; slice++)
                cp_async(16, square + to + slice * SLICE_BYTES + further * side * ROW,
                         valid ? from + (first + further * pitch + in_slice[slice]) : array, valid);
        }
    }
};
using SquareOfX = Square<REACH, TILE_N>;
using SquareOfDy = Square<SIDE, TILE_M>;
constexpr int DY = SQUARES * SquareOfX::BYTES, STAGE_BYTES = DY + SQUARES * SquareOfDy::BYTES;

// Where this lane's rows of a fragment begin in a stage. A fragment is (16, MMA_K): 16 filters or
// channels from `first` on, by the pixels from a column on of a row of each square. Of 16 bits they
// are 8 pixels of each of two squares, which ldmatrix transposes; of 32 bits 8 pixels of one
// square, which are read one by one (as in staged_tile.cuh).
template <class Square, bool a>
struct PixelRowFragment {
    int at[IN_WORDS ? 2 : 1];

    __device__ __forceinline__ void start(int square, int first, int column) {
        int odd = threadIdx.x % 16 / 8, late = threadIdx.x % 32 / 16,
            line = first + threadIdx.x % 32 / 4;
        if (IN_WORDS)
#pragma unroll
            for (int i = 0; i < 2; i++)
                at[i] = square +
                        Square::place(0, column + threadIdx.x % 4, (line + 8 * i) / CHUNK) +
                        line % CHUNK * PACKED_BYTES;
        else
            at[0] = square + (a ? late : odd) * Square::BYTES +
                    Square::place(0, column + threadIdx.x % 8, first / CHUNK + (a ? odd : late));
#pragma unroll
        for (int& address : at) keep_in_register(address);
    }
    __device__ __forceinline__ void load(unsigned (&to)[4], const unsigned char* row) const {
        if constexpr (IN_WORDS)
#pragma unroll
            for (int part = 0; part < 4; part++) {
                int lines = a ? part % 2 : part / 2, pixels = CHUNK * (a ? part / 2 : part % 2);
                to[part] = *reinterpret_cast<const unsigned*>(row + at[lines] + pixels * ROW);
            }
        else
            ldmatrix_trans(to, row + at[0]);
    }
};

// The accumulators of a warp.
struct Accumulators {
    int m, n;  // its first filter and channel in the block
    PixelRowFragment<SquareOfDy, true> dy_fragment[M_FRAGMENTS];
    PixelRowFragment<SquareOfX, false> x_fragment[KERNEL];
    float sum[KERNEL][KERNEL][M_FRAGMENTS][2][4];  // (rows, columns of taps, M, N, registers)

    __device__ __forceinline__ Accumulators() : sum{} {
        int warp = threadIdx.x / 32;
        n = warp % ACROSS * WARP_N, m = warp / ACROSS * WARP_M;
#pragma unroll
        for (int i = 0; i < M_FRAGMENTS; i++) dy_fragment[i].start(DY, m + 16 * i, 0);
#pragma unroll
        for (int tap = 0; tap < KERNEL; tap++) x_fragment[tap].start(0, n, tap);
    }
    __device__ __forceinline__ void add(const unsigned char* stage) {
        unsigned dy[SIDE][M_FRAGMENTS][4];  // (SIDE, M_FRAGMENTS, registers)
#pragma unroll
        for (int row = 0; row < REACH; row++) {  // of x
            if (row < SIDE)
#pragma unroll
                for (int i = 0; i < M_FRAGMENTS; i++)
                    dy_fragment[i].load(dy[row][i], stage + row * SIDE * ROW);
#pragma unroll
            for (int across = 0; across < KERNEL; across++) {
                unsigned both[4];
#if __CUDA_ARCH__ >= 1000  // where more loads at once spill registers
                __syncwarp();
#endif
                x_fragment[across].load(both, stage + row * REACH * ROW);
                PackedFragment<2> x[2] = {PackedFragment<2>(both[0], both[1]),
                                          PackedFragment<2>(both[2], both[3])};
#pragma unroll
                for (int down = 0; down < KERNEL; down++)
                    if (row - down >= 0 && row - down < SIDE)
#pragma unroll
                        for (int i = 0; i < M_FRAGMENTS; i++) {
                            const unsigned (&a)[4] = dy[row - down][i];
                            PackedFragment<4> packed_dy(a[0], a[1], a[2], a[3]);
#pragma unroll
                            for (int j = 0; j < 2; j++)
                                mma_packed(sum[down][across][i][j], packed_dy, x[j]);
                        }
            }
        }
    }
    // part: the split's, from the block's first channel on. Lanes swap sums with their neighbours,
    // so that each stores 16 bytes.
    __device__ __forceinline__ void write(float* part, int channels, int first_filter,
                                          int filters) const {
        int odd = threadIdx.x % 2, channel = n + 8 * odd + threadIdx.x % 4 / 2 * 4;
#pragma unroll
        for (int i = 0; i < 2 * M_FRAGMENTS; i++) {
            int filter = first_filter + m + threadIdx.x % 32 / 4 + 8 * i;
#pragma unroll
            for (int tap = 0; tap < KERNEL * KERNEL; tap++) {
                float quad[4];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float low = sum[tap / KERNEL][tap % KERNEL][i / 2][0][i % 2 * 2 + e];
                    float high = sum[tap / KERNEL][tap % KERNEL][i / 2][1][i % 2 * 2 + e];
                    float other = __shfl_xor_sync(0xffffffff, odd ? low : high, 1);
                    quad[e] = odd ? other : low, quad[2 + e] = odd ? high : other;
                }
                if (filter < filters)
                    store(part + (filter * KERNEL * KERNEL + tap) * channels + channel, quad);
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 256 / THREADS)
    conv2d_weight_grad_halo(const Packed* __restrict__ x, const Packed* __restrict__ dy,
                            float* __restrict__ partials, int height, int width, int channels,
                            int filters, int dy_channels, int dy_padding, int squares,
                            int squares_per_split) {
    int out_height = height - KERNEL + 1, out_width = width - KERNEL + 1;
    int dy_height = out_height + 2 * dy_padding, dy_width = out_width + 2 * dy_padding;
    int down = (out_height + SIDE - 1) / SIDE, across = (out_width + SIDE - 1) / SIDE;
    int first_channel = blockIdx.x * TILE_N, first_filter = blockIdx.y * TILE_M;
    int first = blockIdx.z * squares_per_split, last = min(first + squares_per_split, squares);
    int square = first, image = first / across / down, row = first / across % down * SIDE,
        column = first % across * SIDE;
    int filter = first_filter + SquareOfDy::channel();
    SquareOfX of_x(x, width, channels, first_channel + SquareOfX::channel());
    SquareOfDy of_dy(dy, dy_width, dy_channels, filter < dy_channels ? filter : 0);
    auto copy = [&](unsigned char* stage) {
#pragma unroll
        for (int i = 0; i < SQUARES; i++) {
            int valid = WHOLE || square < last;
            of_x.copy(stage + i * SquareOfX::BYTES,
                      ((image * height + row) * width + column) * channels, valid * (height - row),
                      width - column);
            of_dy.copy(stage + DY + i * SquareOfDy::BYTES,
                       ((image * dy_height + row + dy_padding) * dy_width + column + dy_padding) *
                           dy_channels,
                       valid * (out_height - row), out_width - column);
            square++, column += SIDE;
            if (column >= out_width) column = 0, row += SIDE;
            if (row >= out_height) row = 0, image++;
        }
    };
    Accumulators sums;
    in_stages<STAGES, STAGE_BYTES>((last - first + SQUARES - 1) / SQUARES, copy,
                                   [&](const unsigned char* stage) { sums.add(stage); });
    int weights = filters * KERNEL * KERNEL * channels;
    sums.write(partials + blockIdx.z * weights + first_channel, channels, first_filter, filters);
}
