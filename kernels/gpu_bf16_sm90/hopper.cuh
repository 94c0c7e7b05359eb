// What all convolutions and the weight gradient here have in common: Hopper's instructions, the
// ring of stages between the producer, a thread that copies, and the consumers, warps that
// multiply, and where windows begin.
//
// Macro PHASES: 1: y is an upsampled image of four phases (loop.cuh); 0, the default: it is not.
//
// The instructions are of sm_90a alone: barriers in shared memory (mbarrier), bulk copies by the
// copy engine, which complete on a barrier (cp.async.bulk), and products of matrices with one
// operand in shared memory (wgmma). A warpgroup computes these: 128 threads, the first a multiple
// of 128.
//
//   barrier_init(b, count)         One thread, once: a phase of b ends after `count` arrivals and
//                                  all expected bytes.
//   barriers_visible()             That thread, after its last barrier_init and before
//                                  __syncthreads(): the copy engine sees the barriers.
//   barrier_arrive(b)              One arrival. It hands over what this thread read and wrote.
//   barrier_expect(b, bytes)       An arrival, and the phase also waits for so many copied bytes.
//   barrier_wait(b, parity)        Waits for the end of the phase with this parity: 0 for the
//                                  first, third and so on. In its first phase a barrier counts as
//                                  past a phase with parity 1.
//   copy_bulk(to, from, bytes, b)  One thread: a copy from global to shared memory, addresses and
//                                  bytes multiples of 16. Its bytes count for b.
//   async_proxy_fence()            Later copies and products see what this thread stored to shared
//                                  memory, and later copies overwrite nothing before it has read
//                                  it.
//   wgmma_fence()                  Every thread of the warpgroup, before products whose registers
//                                  it has written.
//   wgmma<transposed>(c, a, b)     Begins c += a b, where c is (64, N) in float32, a (64, 16) and b
//                                  (16, N) in bfloat16 or, by MULTIPLIER (packed.cuh), in float16,
//                                  and N is 64, 128 or 256. Until a wait, c and b may not be
//                                  touched, and a not changed. Each warp has 16 rows of a and c, in
//                                  registers as of mma_bf16; c[4 j ...] are columns from 8 j on.
//                                  b: a descriptor.
//   wgmma_commit()                 Closes the group of the products begun since the last commit.
//   wgmma_wait<n>()                Waits until at most n of this warp's groups are under way.
//   fence_accumulators(c)          After such a wait: the compiler moves no use of c before it.
//   sync_first<n>()                As __syncthreads(), of the block's first n threads alone, which
//                                  are whole warpgroups.
//   setmaxnreg_dec<n>(), setmaxnreg_inc<n>()   A whole warpgroup goes on with n registers a thread,
//                                              fewer or more.
//
// matrix_descriptor(first, leading, stride) describes an operand in shared memory. Its rows have
// 128 bytes, swizzled: the 16-byte chunks of a row are swapped by the row's number (address bits
// 4-6 ^ 7-9). Every eighth row begins at a multiple of 1024 bytes. `first` is the first byte. (PTX
// ISA, "Matrix Descriptor Format" of wgmma, and "Strides".)
//   b as given       A row is a column of b, along k: 16 k are 32 bytes, and the next 16 begin 32
//                    bytes further. stride: bytes from 8 columns to the next 8. leading: not used.
//   b transposed     A row is one k of 64 columns. stride: bytes from 8 k to the next 8. leading:
//                    bytes from 64 columns to the next 64.
//
// No other file has these instructions; the test emulator supplies its own bodies.
#pragma once
#include "common/packed.cuh"

#ifndef PHASES
#define PHASES 0
#endif

// Pixels of y from one pixel of a phase to the next, in a row; number of phases.
constexpr int PHASE_STRIDE = PHASES ? 2 : 1, PHASE_COUNT = PHASE_STRIDE * PHASE_STRIDE;

using Barrier = unsigned long long;
using Descriptor = unsigned long long;

__device__ __forceinline__ Descriptor descriptor_of(unsigned first, unsigned leading,
                                                    unsigned stride) {
    // Of bits 62 and 63. Bits 49-51 are 0: rows begin where the swizzle does.
    constexpr Descriptor SWIZZLED_128 = 1;
    auto field = [](unsigned bytes) { return Descriptor(bytes >> 4 & 0x3fff); };
    return field(first) | field(leading) << 16 | field(stride) << 32 | SWIZZLED_128 << 62;
}

// A descriptor of what lies so many bytes further in the same operand.
__device__ __forceinline__ Descriptor moved(Descriptor b, unsigned bytes) {
    return b + (bytes >> 4);
}

#ifndef CUDA_EMULATOR
#ifndef __CUDA_ARCH_FEAT_SM90_ALL
#error "wgmma is of sm_90a alone"
#endif

#define SWIZZLED_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]

__device__ __forceinline__ unsigned shared_address(const void* shared) {
    return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

__device__ __forceinline__ void barrier_init(Barrier* barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(count)
                 : "memory");
}

__device__ __forceinline__ void barriers_visible() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(Barrier* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}

__device__ __forceinline__ void barrier_expect(Barrier* barrier, int bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}

__device__ __forceinline__ void barrier_wait(Barrier* barrier, unsigned parity) {
    unsigned over;
    do
        asm volatile(
            "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
            : "=r"(over)
            : "r"(shared_address(barrier)), "r"(parity)
            : "memory");
    while (!over);
}

__device__ __forceinline__ void copy_bulk(void* to, const void* from, int bytes, Barrier* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}

__device__ __forceinline__ void async_proxy_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int groups_left>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups_left) : "memory");
}

template <int count>
__device__ __forceinline__ void fence_accumulators(float (&c)[count]) {
#pragma unroll
    for (int i = 0; i < count; i++) asm volatile("" : "+f"(c[i])::"memory");
}

// Barrier 1; __syncthreads() is barrier 0.
template <int threads>
__device__ __forceinline__ void sync_first() {
    asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory");
}

template <int count>
__device__ __forceinline__ void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

template <int count>
__device__ __forceinline__ void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

// The text of an instruction names its registers one by one: ten numbers that begin with d, or with
// none.
#define NAMES_0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9"
#define NAMES(d) \
    ",%" #d "0,%" #d "1,%" #d "2,%" #d "3,%" #d "4,%" #d "5,%" #d "6,%" #d "7,%" #d "8,%" #d "9"
#define SUMS_8(i)                                                                               \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
        "+f"(c[i + 6]), "+f"(c[i + 7])
#define SUMS_32(i) SUMS_8(i), SUMS_8(i + 8), SUMS_8(i + 16), SUMS_8(i + 24)
// The operands' type, by MULTIPLIER.
#define TYPE_exact "bf16"
#define TYPE_bfloat16 "bf16"
#define TYPE_float16 "f16"
#define TYPE_halves "f16"
#define TYPE_NAMED(multiplier) TYPE_##multiplier
#define TYPE_OF(multiplier) TYPE_NAMED(multiplier)
#define TYPE TYPE_OF(MULTIPLIER)
// p: the products are added to c, which is not overwritten. Then the signs of a and b, and whether
// b is transposed.
#define WGMMA(columns, sums, a0, a1, a2, a3, b, transposed)                              \
    "{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" #columns \
    "k16.f32." TYPE "." TYPE " {" sums "}, {%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "}, %" #b  \
    ", p, 1, 1, %" #transposed ";\n}"
#define WGMMA_OPERANDS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(transposed)

template <int transposed>
__device__ __forceinline__ void wgmma(float (&c)[32], const unsigned (&a)[4], Descriptor b) {
    asm volatile(WGMMA(64, NAMES_0 NAMES(1) NAMES(2) ",%30,%31", 32, 33, 34, 35, 36, 37)
                 : SUMS_32(0)
                 : WGMMA_OPERANDS
                 : "memory");
}

template <int transposed>
__device__ __forceinline__ void wgmma(float (&c)[64], const unsigned (&a)[4], Descriptor b) {
    asm volatile(WGMMA(128, NAMES_0 NAMES(1) NAMES(2) NAMES(3) NAMES(4) NAMES(5) ",%60,%61,%62,%63",
                       64, 65, 66, 67, 68, 69)
                 : SUMS_32(0), SUMS_32(32)
                 : WGMMA_OPERANDS
                 : "memory");
}

template <int transposed>
__device__ __forceinline__ void wgmma(float (&c)[128], const unsigned (&a)[4], Descriptor b) {
    asm volatile(WGMMA(256,
                       NAMES_0 NAMES(1) NAMES(2) NAMES(3) NAMES(4) NAMES(5) NAMES(6) NAMES(7)
                           NAMES(8) NAMES(9) NAMES(10)
                               NAMES(11) ",%120,%121,%122,%123,%124,%125,%126,%127",
                       128, 129, 130, 131, 132, 133)
                 : SUMS_32(0), SUMS_32(32), SUMS_32(64), SUMS_32(96)
                 : WGMMA_OPERANDS
                 : "memory");
}
#endif

__device__ __forceinline__ Descriptor matrix_descriptor(const void* first, unsigned leading,
                                                        unsigned stride) {
    return descriptor_of(shared_address(first), leading, stride);
}

// ---- producer and consumers of a block

// A ring of stages in shared memory. One thread, the producer, fills them in turn by copies; warps,
// the consumers, read them. Each stage has two barriers: full, when the copies have arrived, and
// empty, when all warps have read it.
// arrivals: of a warp at the empty barrier. 1: one lane arrives, after a barrier of the warp that
// orders the other lanes' reads. 32: each lane arrives for its own reads, without that barrier; for
// stages that are read for long, as the arrivals of a warp then take 32 times as long.
template <int length, int arrivals>
struct Ring {
    unsigned char* first;
    int bytes;  // of a stage
    Barrier *full, *empty;
    int stage = 0;
    unsigned parity = 0;  // of the phase in which the stage's barriers are, in this round

    // barriers: 2 `length` of them.
    __device__ __forceinline__ Ring(unsigned char* first, int bytes, Barrier* barriers)
        : first(first), bytes(bytes), full(barriers), empty(barriers + length) {}

    // One thread, before barriers_visible(). warps: the consumers.
    __device__ __forceinline__ void init(int warps) const {
        for (int i = 0; i < length; i++)
            barrier_init(full + i, 1), barrier_init(empty + i, warps * arrivals);
    }

    __device__ __forceinline__ unsigned char* current() const { return first + stage * bytes; }

    // The producer: wait until the stage is empty, and announce so many bytes.
    __device__ __forceinline__ void acquire(int count) const {
        barrier_wait(empty + stage, parity ^ 1);
        barrier_expect(full + stage, count);
    }
    __device__ __forceinline__ void copy(int to, const void* from, int count) const {
        copy_bulk(current() + to, from, count, full + stage);
    }

    // The consumers: wait until the stage is full; say that a stage was read.
    __device__ __forceinline__ void wait() const { barrier_wait(full + stage, parity); }
    __device__ __forceinline__ void release(int read_stage) const {
        if (arrivals == 1) __syncwarp();
        if (threadIdx.x % 32 < arrivals) barrier_arrive(empty + read_stage);
    }

    __device__ __forceinline__ void next() {
        bool last = stage == length - 1;
        stage = last ? 0 : stage + 1;
        parity ^= last;
    }
};

// All steps of a consumer: while the products of a step are under way, the warp loads the fragments
// of the next. sum: its accumulators. A consumer is an object with
//     load(fragments)       loads those of the next step, four times four registers
//     add(sum, fragments)   begins their products, and waits for those of the step before
template <class Consumer, int count>
__device__ __forceinline__ void multiply(Consumer warp, int steps, float (&sum)[count]) {
    // One set is overwritten when the products of the other have begun.
    unsigned even[4][4], odd[4][4];  // (MMA of a step, registers of a fragment)
    for (int left = steps;; left -= 2) {
        warp.load(even);
        warp.add(sum, even);
        if (left == 1) break;
        warp.load(odd);
        warp.add(sum, odd);
        if (left == 2) break;
    }
    wgmma_wait<0>();
    fence_accumulators(sum);
}

// Where in a padded image the windows of a convolution begin: numbers of pixels, counted through
// all images. With phases: the windows of the first one. out_height, out_width: of y, or of a
// phase.
struct Windows {
    int height, width, out_height, out_width, stride;

    __device__ __forceinline__ Windows(int height, int width, int kernel, int stride)
        : height(height), width(width), out_height((height - kernel) / stride + 2 - PHASE_STRIDE),
          out_width((width - kernel) / stride + 2 - PHASE_STRIDE), stride(stride) {}

    // The window of a pixel of y, counted through all images.
    __device__ __forceinline__ int start(int pixel) const {
        int row = pixel / out_width;
        return (row / out_height * height + row % out_height * stride) * width +
               pixel % out_width * stride;
    }
    // Pixels from a window of the first phase to that of another.
    __device__ __forceinline__ int to_phase(int phase) const {
        return phase / 2 * width + phase % 2;
    }
};
