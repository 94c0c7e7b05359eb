// What conv2d.cu, its like and weight_grad.cu have in common: Hopper's instructions, the stages
// between the thread that copies and the warps that multiply, and where windows begin.
//
// Macro PHASES: 1: y is an upsampled image of four phases (loop.cuh); 0, the default: it is not.
//
// Hopper's asynchronous copies and products (sm_90a only): barriers in shared memory (mbarrier),
// bulk copies by the copy engine that complete on them (cp.async.bulk), and products of matrices by
// a warpgroup, 128 threads whose first is a multiple of 128, with one operand in shared memory
// (wgmma).
//
//   barrier_init(b, count)        one thread, once: a phase of `b` ends after `count` arrivals and
//                                 all bytes that are expected
//   barriers_visible()            by that thread after its last barrier_init: the copy engine sees
//                                 them; then __syncthreads()
//   barrier_arrive(b)             one arrival; it hands over what this thread has read and written
//                                 before
//   barrier_expect(b, bytes)      the same, and the phase ends no sooner than after so many bytes
//                                 of copies
//   barrier_wait(b, parity)       until the phase with this parity has ended: 0 for the first,
//                                 third ... A barrier whose first phase has not ended counts as
//                                 past a phase with parity 1
//   copy_bulk(to, from, bytes, b) by one thread: copy to shared from global memory, all multiples
//   of 16; the bytes count for b async_proxy_fence()           what this thread has stored to
//   shared memory is seen by later copies and products, and what it
//                                 has read there is read before later copies overwrite it
//   wgmma_fence()                 by every thread of the warpgroup before products whose registers
//                                 it has written
//   wgmma<transposed>(c, a, b)    c (64 x N, float32) += a (64 x 16, bfloat16) b (16 x N), N = 64,
//                                 128 or 256, begun only; c, and b's shared memory, may not be
//                                 touched, a's registers not changed, until it is waited for. Each
//                                 warp of the warpgroup has 16 rows of a and c, in registers as
//                                 mma_bf16 has them, c for all columns: c[4 j ...] are columns from
//                                 8 j on. b: a descriptor
//   wgmma_commit()                close the group of the products begun since the last commit
//   wgmma_wait<n>()               until at most n of this warp's groups are under way
//   waited(c)                     after such a wait: no use of c is moved before it
//   sync_first<n>()               by the block's first n threads, whole warpgroups: as
//                                 __syncthreads(), among them alone
//   give_registers<n>(), take_registers<n>()   by a whole warpgroup: it goes on with n registers a
//                                              thread, fewer or more
//
// matrix_descriptor(first, leading, stride): of an operand in shared memory whose rows are 128
// bytes, swizzled: the 16-byte chunks of a row are swapped by the row's number, address bits 4-6 ^
// 7-9; `first` is its first byte. (PTX ISA, "Matrix Descriptor Format" of wgmma, and "Strides".)
//   b as given       rows are columns of b, with k from there on: 16 k are 32 bytes, the next 16
//                    begin 32 bytes further; stride: bytes from 8 columns to the next 8; leading:
//                    not used
//   b transposed     rows are k, with 64 columns; stride: bytes from 8 k to the next 8, leading:
//                    from 64 columns to the next 64
// Rows of a multiple of 8 begin at multiples of 1024 bytes.
// The only file with these instructions; the test emulator supplies its own bodies.
#pragma once
#include "common/packed.cuh"

#ifndef PHASES
#define PHASES 0
#endif

// pixels of y from one of a block's to the next; phases
constexpr int SPREAD = PHASES ? 2 : 1, FORMS = SPREAD * SPREAD;

using Barrier = unsigned long long;
using Descriptor = unsigned long long;

__device__ __forceinline__ Descriptor descriptor_of(unsigned first, unsigned leading,
                                                    unsigned stride) {
    // of bits 62 and 63; bits 49-51 are 0: rows begin where the swizzle does
    constexpr Descriptor SWIZZLED_128 = 1;
    auto field = [](unsigned bytes) { return Descriptor(bytes >> 4 & 0x3fff); };
    return field(first) | field(leading) << 16 | field(stride) << 32 | SWIZZLED_128 << 62;
}

// `bytes` further, in the same operand.
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
__device__ __forceinline__ void waited(float (&c)[count]) {
#pragma unroll
    for (int i = 0; i < count; i++) asm volatile("" : "+f"(c[i])::"memory");
}

// Barrier 1; __syncthreads() is barrier 0.
template <int threads>
__device__ __forceinline__ void sync_first() {
    asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory");
}

template <int count>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

template <int count>
__device__ __forceinline__ void take_registers() {
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
// p: whether c is added to (it is not overwritten); then the signs of a and b, and whether b is
// transposed
#define WGMMA(columns, sums, a0, a1, a2, a3, b, transposed)                              \
    "{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" #columns \
    "k16.f32.bf16.bf16 {" sums "}, {%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "}, %" #b          \
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

// ---- the two sides of a block

// Stages in shared memory that one thread fills by copies, one after the other and then the first
// again, and warps read. Two barriers for each stage: what was copied has come; all warps have read
// it. arrivals: of a warp at the second one. 1: of one lane, after a barrier of the warp that
// orders the others' reads before. 32: each lane hands over its own reads, and nothing rests on a
// barrier of the warp; for stages that are read long, as an arrival of a warp then takes as long as
// 32.
template <int length, int arrivals>
struct Ring {
    unsigned char* first;
    int bytes;  // of a stage
    Barrier *came, *read;
    int stage = 0;
    unsigned parity = 0;  // of the phases that the stage's barriers are in, this time round

    // barriers: 2 length of them.
    __device__ __forceinline__ Ring(unsigned char* first, int bytes, Barrier* barriers)
        : first(first), bytes(bytes), came(barriers), read(barriers + length) {}

    // By one thread, then barriers_visible().
    __device__ __forceinline__ void init(int warps) const {
        for (int i = 0; i < length; i++)
            barrier_init(came + i, 1), barrier_init(read + i, warps * arrivals);
    }

    __device__ __forceinline__ unsigned char* now() const { return first + stage * bytes; }

    // For the thread that copies: wait until the stage may be overwritten; so many bytes will come.
    __device__ __forceinline__ void begin(int count) const {
        barrier_wait(read + stage, parity ^ 1);
        barrier_expect(came + stage, count);
    }
    __device__ __forceinline__ void copy(int to, const void* from, int count) const {
        copy_bulk(now() + to, from, count, came + stage);
    }

    // For the others.
    __device__ __forceinline__ void wait() const { barrier_wait(came + stage, parity); }
    __device__ __forceinline__ void release(int of) const {
        if (arrivals == 1) __syncwarp();
        if (threadIdx.x % 32 < arrivals) barrier_arrive(read + of);
    }

    __device__ __forceinline__ void next() {
        bool last = stage == length - 1;
        stage = last ? 0 : stage + 1;
        parity ^= last;
    }
};

// All steps of a warp that multiplies: while the products of a step are under way, it loads the
// fragments of the next.
//
// A multiplier is an object with
//     load(fragments)       of the next step, four times four registers
//     add(sum, fragments)   begins their products, and ends those of the step before
template <class Multiplier, int count>
__device__ __forceinline__ void multiply(Multiplier warp, int steps, float (&sum)[count]) {
    // the one may be overwritten when the products of the other have begun
    unsigned even[4][4], odd[4][4];
    for (int left = steps;; left -= 2) {
        warp.load(even);
        warp.add(sum, even);
        if (left == 1) break;
        warp.load(odd);
        warp.add(sum, odd);
        if (left == 2) break;
    }
    wgmma_wait<0>();
    waited(sum);
}

// Where in a padded image the windows of a convolution begin, as pixels of all images one after the
// other; of phases, those of the first. out_height, out_width: of y, or of a phase.
struct Windows {
    int height, width, out_height, out_width, stride;

    __device__ __forceinline__ Windows(int height, int width, int kernel, int stride)
        : height(height), width(width), out_height((height - kernel) / stride + 2 - SPREAD),
          out_width((width - kernel) / stride + 2 - SPREAD), stride(stride) {}

    // Of pixel number `pixel` of all outputs.
    __device__ __forceinline__ int start(int pixel) const {
        int row = pixel / out_width;
        return (row / out_height * height + row % out_height * stride) * width +
               pixel % out_width * stride;
    }
    // From there to those of a phase.
    __device__ __forceinline__ int to_phase(int phase) const {
        return phase / 2 * width + phase % 2;
    }
};
