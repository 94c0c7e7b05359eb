// Convolution (cross-correlation) and its gradients as implicit GEMM: matrix products whose factors are never stored; when a
// tile is loaded, each element is read from its source tensor.
//
//   direction          C(m, n)                     k                          A(m, k)                   B(n, k)
//   forward            y: pixel of y, filter       tap i, j and channel       x under the tap           weight
//   input gradient     dx: pixel of dx, channel    tap i, j and filter        dy that saw x through it  weight
//   weight gradient    dweight: filter, (i, j, c)  pixel of y, a range of it  dy                        x under the tap
//
// Layouts, float32: x, dx (batch, height, width, channels); y, dy (batch, out_height, out_width, filters); weight, dweight
// (filters, kernel, kernel, channels); bias, dbias (filters). Every array has fewer than 2^31 elements. Stride, padding and
// kernel are the same both ways.
//
// An operand is `wide` if it is read 16 bytes at a time, for which the innermost size of its tensor must be a multiple of 4
// (channels of x, filters of dy, channels of weight); otherwise 4 bytes at a time. The results are the same.
#pragma once
#include "common/copied_tile.cuh"
#include "common/gemm_tile.cuh"

struct Convolution {
    int batch, height, width, channels, filters, kernel, padding, stride;
    __device__ __forceinline__ int out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
    __device__ __forceinline__ int out_width() const { return (width + 2 * padding - kernel) / stride + 1; }
    __device__ __forceinline__ int out_pixels() const { return batch * out_height() * out_width(); }
};

constexpr int NOWHERE = -(1 << 30);   // a row outside every image, for any tap

__device__ __forceinline__ bool within(int i, int size) { return static_cast<unsigned>(i) < static_cast<unsigned>(size); }

// A share of an operand's steps. The operand has next(fetch), which calls fetch(pass, e, at, there) for each quad that this
// thread takes of the next step, or for each of its elements e where it is not wide; there: whether it is element `at` of the
// source and not beyond an end, where zeros are.
template <class Share, bool wide>
struct Operand {
    const float* source;
    float held[Share::PASSES][4];

    __device__ __forceinline__ explicit Operand(const float* source) : source(source) {}
    __device__ __forceinline__ void hold(int pass, int e, int at, bool there) {
        if constexpr (wide) {
#pragma unroll
            for (int i = 0; i < 4; i++) held[pass][i] = 0.0f;
            if (there) ::load(held[pass], source + at);
        } else
            held[pass][e] = there ? source[at] : 0.0f;
    }
    template <class Step>
    __device__ __forceinline__ void copy(Step& step, int pass, int e, int at, bool there) const {
        if (Share::active(pass)) cp_async((wide ? 16 : 4), Share::place(step, pass, e), source + (there ? at : 0), there);
    }
    template <class Step>
    __device__ __forceinline__ void store(Step& step) const {
        Share::store(held, step);
    }
    template <class Step>
    __device__ __forceinline__ void arrived(const Step&) const {}
};

// An operand as gemm_tile.cuh takes it: the next step in registers.
template <class Source>
struct Loaded : Source {
    using Source::Source;
    __device__ __forceinline__ void load() {
        this->next([this](int pass, int e, int at, bool there) { this->hold(pass, e, at, there); });
    }
};

// ---- operands along k

// A of forward, and of the input gradient (`transposed`). image: x, or dy; rows of A: pixels of y, or of dx. strided: whether
// the stride of a gradient may be another than 1.
template <class Tile, bool transposed, bool wide, bool strided>
struct Windows : Operand<AlongK<Tile, Tile::M>, wide> {
    using Share = AlongK<Tile, Tile::M>;
    int height, width, channels, kernel, stride;   // of the image
    int row[Share::PASSES], column[Share::PASSES], start[Share::PASSES];   // at tap 0; offset of their image
    int i, j, c;                                                           // of this thread's first k

    __device__ __forceinline__ Windows(const float* image, const Convolution& conv, int first_pixel)
        : Operand<AlongK<Tile, Tile::M>, wide>(image), kernel(conv.kernel), stride(conv.stride) {
        height = transposed ? conv.out_height() : conv.height, width = transposed ? conv.out_width() : conv.width;
        channels = transposed ? conv.filters : conv.channels;
        int pixel_height = transposed ? conv.height : conv.out_height();
        int pixel_width = transposed ? conv.width : conv.out_width();
#pragma unroll
        for (int pass = 0; pass < Share::PASSES; pass++) {
            int pixel = first_pixel + Share::line(pass);
            int image_row = pixel / pixel_width, at = image_row / pixel_height;
            bool there = Share::active(pass) && at < conv.batch;
            row[pass] = there ? shifted(image_row % pixel_height, conv.padding) : NOWHERE;
            column[pass] = shifted(pixel % pixel_width, conv.padding);
            start[pass] = at * height * width * channels;
        }
        c = Share::k() % channels;
        j = Share::k() / channels % kernel, i = Share::k() / channels / kernel;
    }
    __device__ __forceinline__ int shifted(int place, int padding) const {
        return transposed ? place + padding : place * stride - padding;
    }
    // The row or column of the image at tap t, outside of it if there is none.
    __device__ __forceinline__ int under(int place, int t) const {
        if (!transposed) return place + t;
        if (!strided) return place - t;
        return (place - t) % stride == 0 ? (place - t) / stride : NOWHERE;
    }
    __device__ __forceinline__ void advance(int& i, int& j, int& c, int by) const {
        for (c += by; c >= channels; c -= channels)
            if (++j == kernel) j = 0, i++;
    }
    template <class Fetch>
    __device__ __forceinline__ void next(Fetch fetch) {
#pragma unroll
        for (int pass = 0; pass < Share::PASSES; pass++) {
            int tap_i = i, tap_j = j, tap_c = c;
#pragma unroll
            for (int e = 0; e < (wide ? 1 : 4); e++) {
                int at_row = under(row[pass], tap_i), at_column = under(column[pass], tap_j);
                bool there = tap_i < kernel && within(at_row, height) && within(at_column, width);
                fetch(pass, e, start[pass] + (at_row * width + at_column) * channels + tap_c, there);
                if (!wide) advance(tap_i, tap_j, tap_c, 1);
            }
        }
        advance(i, j, c, Tile::K);
    }
};

// B of forward: a filter's weights are contiguous along k.
template <class Tile, bool wide>
struct Filters : Operand<AlongK<Tile, Tile::N>, wide> {
    using Share = AlongK<Tile, Tile::N>;
    int filters, length, first, k;

    __device__ __forceinline__ Filters(const float* weight, const Convolution& conv, int first)
        : Operand<Share, wide>(weight), filters(conv.filters), length(conv.kernel * conv.kernel * conv.channels), first(first),
          k(Share::k()) {}
    template <class Fetch>
    __device__ __forceinline__ void next(Fetch fetch) {
#pragma unroll
        for (int pass = 0; pass < Share::PASSES; pass++) {
            int filter = first + Share::line(pass);
            bool there = Share::active(pass) && filter < filters;
#pragma unroll
            for (int e = 0; e < (wide ? 1 : 4); e++) fetch(pass, e, filter * length + k + e, there && k + e < length);
        }
        k += Tile::K;
    }
};

// ---- operands along their lines

// B of the input gradient: the channels of one tap of one filter are contiguous.
template <class Tile, bool wide>
struct Taps : Operand<AlongLines<Tile, Tile::N>, wide> {
    using Share = AlongLines<Tile, Tile::N>;
    int channels, filters, taps, channel, tap, filter, start;   // tap, filter, start: of this thread's first k

    __device__ __forceinline__ Taps(const float* weight, const Convolution& conv, int first_channel)
        : Operand<Share, wide>(weight), channels(conv.channels), filters(conv.filters), taps(conv.kernel * conv.kernel),
          channel(first_channel + Share::line()), tap(Share::k() / conv.filters), filter(Share::k() % conv.filters) {
        start = (filter * taps + tap) * channels + channel;
    }
    template <class Fetch>
    __device__ __forceinline__ void next(Fetch fetch) {
#pragma unroll
        for (int pass = 0; pass < Share::PASSES; pass++) {
            bool there = Share::active() && tap < taps;
#pragma unroll
            for (int e = 0; e < (wide ? 1 : 4); e++) fetch(pass, e, start + e, there && channel + e < channels);
            start += Share::K_PER_PASS * taps * channels;
            for (filter += Share::K_PER_PASS; filter >= filters; filter -= filters)
                tap++, start += channels - filters * taps * channels;
        }
    }
};

// A of the weight gradient: the filters of one pixel of dy are contiguous. It also sums its elements, for the bias gradient.
template <class Tile, bool wide>
struct Gradients : Operand<AlongLines<Tile, Tile::M>, wide> {
    using Share = AlongLines<Tile, Tile::M>;
    int filters, filter, pixel, last_pixel;
    float total[4] = {};

    __device__ __forceinline__ Gradients(const float* dy, const Convolution& conv, int first_filter, int first_pixel,
                                         int last_pixel)
        : Operand<Share, wide>(dy), filters(conv.filters), filter(first_filter + Share::line()),
          pixel(first_pixel + Share::k()), last_pixel(last_pixel) {}
    template <class Fetch>
    __device__ __forceinline__ void next(Fetch fetch) {
#pragma unroll
        for (int pass = 0; pass < Share::PASSES; pass++) {
            bool there = Share::active() && pixel < last_pixel;
#pragma unroll
            for (int e = 0; e < (wide ? 1 : 4); e++)
                fetch(pass, e, pixel * filters + filter + e, there && filter + e < filters);
            pixel += Share::K_PER_PASS;
        }
    }
    __device__ __forceinline__ void use(const float (&quad)[4]) {
#pragma unroll
        for (int e = 0; e < 4; e++) total[e] += quad[e];
    }
    template <class Step>
    __device__ __forceinline__ void store(Step& step) {
#pragma unroll
        for (int pass = 0; pass < Share::PASSES; pass++) use(this->held[pass]);
        Share::store(this->held, step);
    }
    // Of a step in shared memory, the elements that this thread copied.
    template <class Step>
    __device__ __forceinline__ void arrived(const Step& step) {
        if (!Share::active()) return;
#pragma unroll
        for (int pass = 0; pass < Share::PASSES; pass++) {
            float quad[4];
            ::load(quad, Share::place(step, pass, 0));
            use(quad);
        }
    }
    // The threads' sums of each filter of the tile, added in order. Every thread of the block must call it.
    __device__ __forceinline__ void store_totals(float* dbias, int first_filter) const {
        __shared__ __align__(16) float totals[Share::K_PER_PASS][Tile::M];
        if (Share::active()) ::store(&totals[Share::k()][Share::line()], total);
        __syncthreads();
        for (int line = threadIdx.x; line < Tile::M && first_filter + line < filters; line += Tile::THREADS) {
            float sum = 0.0f;
            for (int k = 0; k < Share::K_PER_PASS; k++) sum += totals[k][line];
            dbias[first_filter + line] = sum;
        }
    }
};

// B of the weight gradient: the channels of x at tap i, j for one pixel of y are contiguous.
template <class Tile, bool wide>
struct Patches : Operand<AlongLines<Tile, Tile::N>, wide> {
    using Share = AlongLines<Tile, Tile::N>;
    static constexpr int PLACES = wide ? 1 : 4;   // four neighbours share one tap, or have one each
    int height, width, channels, out_height, out_width, stride;
    int row[PLACES], column[PLACES], channel[PLACES];   // under output row and column 0
    int image, out_row, out_column, pixel, last_pixel;  // of this thread's first k

    __device__ __forceinline__ Patches(const float* x, const Convolution& conv, int first, int first_pixel, int last_pixel)
        : Operand<Share, wide>(x), height(conv.height), width(conv.width), channels(conv.channels),
          out_height(conv.out_height()), out_width(conv.out_width()), stride(conv.stride), pixel(first_pixel + Share::k()),
          last_pixel(last_pixel) {
#pragma unroll
        for (int e = 0; e < PLACES; e++) {
            int n = first + Share::line() + e, tap = n / channels;
            bool there = Share::active() && tap < conv.kernel * conv.kernel;
            row[e] = there ? tap / conv.kernel - conv.padding : NOWHERE;
            column[e] = tap % conv.kernel - conv.padding;
            channel[e] = n % channels;
        }
        out_column = pixel % out_width, out_row = pixel / out_width % out_height, image = pixel / out_width / out_height;
    }
    template <class Fetch>
    __device__ __forceinline__ void next(Fetch fetch) {
#pragma unroll
        for (int pass = 0; pass < Share::PASSES; pass++) {
#pragma unroll
            for (int e = 0; e < PLACES; e++) {
                int at_row = out_row * stride + row[e], at_column = out_column * stride + column[e];
                bool there = pixel < last_pixel && within(at_row, height) && within(at_column, width);
                fetch(pass, e, ((image * height + at_row) * width + at_column) * channels + channel[e], there);
            }
            pixel += Share::K_PER_PASS;
            for (out_column += Share::K_PER_PASS; out_column >= out_width; out_column -= out_width)
                if (++out_row == out_height) out_row = 0, image++;
        }
    }
};

// ---- the three directions

// sum += the first Tile::K * steps products of a and b.
template <class Tile, class A, class B>
__device__ __forceinline__ void add_products_of(A& a, B& b, int steps, float (&sum)[Tile::M_THREAD][Tile::N_THREAD]) {
    if constexpr (COPIES<Tile>)
        multiply_copied<Tile>(a, b, steps, sum);
    else
        multiply<Tile>(a, b, steps, sum);
}

// Addresses of single elements need more registers than 8 x 8 sums a thread leave: such a tile would spill.
template <class Tile, bool wide>
constexpr bool FITS_REGISTERS = wide || Tile::M_THREAD * Tile::N_THREAD < 64;

// Write this thread's part of C to the row-major rows x columns matrix c.
template <class Tile>
__device__ __forceinline__ void write(const float (&sum)[Tile::M_THREAD][Tile::N_THREAD], float* c, int rows, int columns,
                                      int first_m, int first_n) {
    bool wide = columns % Tile::NEIGHBOURS == 0;
#pragma unroll
    for (int i = 0; i < Tile::M_THREAD; i++) {
        int m = first_m + Tile::m_of(i);
        if (m >= rows) continue;
#pragma unroll
        for (int j = 0; j < Tile::N_THREAD; j += Tile::NEIGHBOURS) {
            int n = first_n + Tile::n_of(j);
            float* to = c + m * columns + n;
            float neighbours[Tile::NEIGHBOURS];
#pragma unroll
            for (int e = 0; e < Tile::NEIGHBOURS; e++) neighbours[e] = sum[i][j + e];
            if (wide && n < columns) store(to, neighbours);
            if (!wide)
#pragma unroll
                for (int e = 0; e < Tile::NEIGHBOURS; e++)
                    if (n + e < columns) to[e] = neighbours[e];
        }
    }
}

// y = convolution + bias, then ReLU if `relu`. Grid: ceil(pixels of y / M) * ceil(filters / N) blocks.
template <class Tile, bool wide>
__device__ __forceinline__ void conv2d_forward_tile(const float* __restrict__ x, const float* __restrict__ weight,
                                                    const float* __restrict__ bias, float* __restrict__ y,
                                                    const Convolution& conv, bool relu) {
    static_assert(FITS_REGISTERS<Tile, wide>, "the large tile would spill registers");
    int tiles_across = (conv.filters + Tile::N - 1) / Tile::N;   // neighbouring blocks read the same pixels
    int first_pixel = blockIdx.x / tiles_across * Tile::M, first_filter = blockIdx.x % tiles_across * Tile::N;
    Loaded<Windows<Tile, false, wide, true>> a(x, conv, first_pixel);
    Loaded<Filters<Tile, wide>> b(weight, conv, first_filter);
    float sum[Tile::M_THREAD][Tile::N_THREAD] = {};
    add_products_of<Tile>(a, b, (conv.kernel * conv.kernel * conv.channels + Tile::K - 1) / Tile::K, sum);

#pragma unroll
    for (int j = 0; j < Tile::N_THREAD; j++) {
        int filter = first_filter + Tile::n_of(j);
        float shift = filter < conv.filters ? bias[filter] : 0.0f;
#pragma unroll
        for (int i = 0; i < Tile::M_THREAD; i++) {
            float value = sum[i][j] + shift;
            sum[i][j] = relu && value < 0.0f ? 0.0f : value;   // not fmaxf, which would hide a NaN
        }
    }
    write<Tile>(sum, y, conv.out_pixels(), conv.filters, first_pixel, first_filter);
}

// Grid: ceil(pixels of dx / M) * ceil(channels / N) blocks.
template <class Tile, bool wide_dy, bool wide_weight, bool strided>
__device__ __forceinline__ void conv2d_input_grad_tile(const float* __restrict__ dy, const float* __restrict__ weight,
                                                       float* __restrict__ dx, const Convolution& conv) {
    static_assert(FITS_REGISTERS<Tile, wide_dy && wide_weight>, "the large tile would spill registers");
    int tiles_across = (conv.channels + Tile::N - 1) / Tile::N;
    int first_pixel = blockIdx.x / tiles_across * Tile::M, first_channel = blockIdx.x % tiles_across * Tile::N;
    Loaded<Windows<Tile, true, wide_dy, strided>> a(dy, conv, first_pixel);
    Loaded<Taps<Tile, wide_weight>> b(weight, conv, first_channel);
    float sum[Tile::M_THREAD][Tile::N_THREAD] = {};
    add_products_of<Tile>(a, b, (conv.kernel * conv.kernel * conv.filters + Tile::K - 1) / Tile::K, sum);
    write<Tile>(sum, dx, conv.batch * conv.height * conv.width, conv.channels, first_pixel, first_channel);
}

// Floats between two splits' partial sums: a weight gradient and a bias gradient, up to the next 16 bytes.
__device__ __forceinline__ int partials_per_split(int weights, int filters) { return (weights + filters + 3) / 4 * 4; }

// Split s sums the pixels of y from s * pixels_per_split on. partials (splits, weights + filters up to a multiple of 4).
// Grid: (ceil(kernel kernel channels / N), ceil(filters / M), splits).
template <class Tile, bool wide_dy, bool wide_x>
__device__ __forceinline__ void conv2d_weight_grad_tile(const float* __restrict__ x, const float* __restrict__ dy,
                                                        float* __restrict__ partials, const Convolution& conv,
                                                        int pixels_per_split) {
    static_assert(FITS_REGISTERS<Tile, wide_dy && wide_x>, "the large tile would spill registers");
    int columns = conv.kernel * conv.kernel * conv.channels, weights = conv.filters * columns;
    int first_column = blockIdx.x * Tile::N, first_filter = blockIdx.y * Tile::M;
    int first_pixel = blockIdx.z * pixels_per_split, last_pixel = min(first_pixel + pixels_per_split, conv.out_pixels());
    Loaded<Gradients<Tile, wide_dy>> a(dy, conv, first_filter, first_pixel, last_pixel);
    Loaded<Patches<Tile, wide_x>> b(x, conv, first_column, first_pixel, last_pixel);
    float sum[Tile::M_THREAD][Tile::N_THREAD] = {};
    add_products_of<Tile>(a, b, (last_pixel - first_pixel + Tile::K - 1) / Tile::K, sum);

    float* mine = partials + blockIdx.z * partials_per_split(weights, conv.filters);
    write<Tile>(sum, mine, conv.filters, columns, first_filter, first_column);
    if (blockIdx.x == 0) a.store_totals(mine + weights, first_filter);
}

// dweight and dbias: the splits' partial sums, added in order. Four neighbours per thread.
__device__ __forceinline__ void conv2d_add_splits_block(const float* __restrict__ partials, float* __restrict__ dweight,
                                                  float* __restrict__ dbias, int weights, int filters, int splits) {
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * 4, apart = partials_per_split(weights, filters);
    if (first >= apart) return;
    float sum[4] = {};
#pragma unroll 8
    for (int split = 0; split < splits; split++) {
        float part[4];
        load(part, partials + split * apart + first);
#pragma unroll
        for (int e = 0; e < 4; e++) sum[e] += part[e];
    }
    if (first + 4 <= weights) {
        store(dweight + first, sum);
        return;
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        int place = first + e;
        if (place < weights)
            dweight[place] = sum[e];
        else if (place < weights + filters)
            dbias[place - weights] = sum[e];
    }
}
