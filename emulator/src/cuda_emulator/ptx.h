// Instructions of PTX for which CUDA C++ has no function, under PTX's names. A kernel has them as
// inline assembly; where CUDA_EMULATOR is defined it calls these instead, or a header that
// load(include=...) puts before the kernel gives them the kernel's own names. What is immediate in
// PTX is a template's argument. Matrix fragments and descriptors are PTX's.
//
// The last parameter is the place that a fault names, by default the line of the call;
// EMULATOR_SITE also tells two calls in one line apart.
#pragma once

#include "arithmetic.h"

#include <cstdint>

namespace emulator {

// Where a kernel calls into the emulator.
struct Site {
    const char* file;
    int line, id;
};
#define EMULATOR_SITE (emulator::Site{__FILE__, __LINE__, __COUNTER__})
inline Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line, line};
}

// Stands for `extern __shared__` arrays: the dynamic shared memory of the launch, aligned to 1024
// bytes.
unsigned char* dynamic_shared();

// ---- copies that a thread waits for (sm_80): cp.async of 4, 8 or 16 bytes, zeros where !valid

void cp_async(unsigned bytes, void* shared, const void* global, bool valid, Site = here());
void cp_async_commit_group();
void wait_for_copies(unsigned groups_left);
template <int groups_left>
void cp_async_wait_group() {
    wait_for_copies(groups_left);
}

// ---- a warp's matrix operations (sm_80)

// ldmatrix.m8n8.x1, .x2 or .x4, by the number of matrices; .trans
void ldmatrix(unsigned* to, const void* row, unsigned matrices, bool transposed, Site = here());
// mma.m16n8k16, c += a b, float32 and bfloat16 or float16; mma.m16n8k8 of TF32, and of float16
// (sm_75)
void mma_bf16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], Site = here());
void mma_f16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], Site = here());
void mma_f16_k8(float (&c)[4], const unsigned (&a)[2], unsigned b, Site = here());
void mma_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], Site = here());

// cvt.rn.bf16x2.f32. A NaN stays one.
static inline unsigned cvt_bf16(float x) {
    unsigned bits = bits_of<unsigned>(x);
    return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static inline unsigned cvt_bf16x2(float low, float high) {
    return cvt_bf16(low) | cvt_bf16(high) << 16;
}
// cvt.rn.f16x2.f32; 0x7fff for a NaN.
static inline unsigned cvt_f16(float x) {
    unsigned bits = bits_of<unsigned>(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (x != x) return 0x7fff;
    if (magnitude >= 0x477ff000) return sign | 0x7c00;  // 65520
    if (magnitude < 0x38800000)
        return sign | static_cast<unsigned>(__builtin_rintf(bits_of<float>(magnitude) * 0x1p24f));
    return sign | ((magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13) - (112 << 10);
}
static inline unsigned cvt_f16x2(float low, float high) {
    return cvt_f16(low) | cvt_f16(high) << 16;
}
// cvt.rna.tf32.f32. The bits that TF32 does not have are not zeros that a kernel may rely on.
static inline unsigned cvt_tf32(float x) {
    unsigned bits = bits_of<unsigned>(x), undefined = bits * 2654435761u >> 19;
    if (x != x) return 0x7fffe000u | undefined;
    return ((bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000) & 0xffffe000u) | undefined;
}

// ---- barriers in shared memory, and the copy engine, which completes on them (sm_90); of this
// block, but for arrivals and copies, which may be to other blocks of the cluster

void mbarrier_init(void* barrier, int count, Site = here());
void fence_mbarrier_init();  // by the thread that initialised: fence.mbarrier_init.release.cluster
void mbarrier_arrive(void* barrier, Site = here());
void mbarrier_arrive_expect_tx(void* barrier, int bytes, Site = here());
// mbarrier.try_wait.parity until it is true
void mbarrier_wait_parity(void* barrier, unsigned parity, Site = here());
// cp.async.bulk from global to shared memory, with .mbarrier::complete_tx::bytes
void cp_async_bulk(void* to, const void* from, int bytes, void* barrier, Site = here());
// The same with .multicast::cluster, to the same places of the cluster's blocks in `ranks`, a bit
// each.
void cp_async_bulk_multicast(void* to, const void* from, int bytes, void* barrier, unsigned ranks,
                             Site = here());
void fence_proxy_async();

// ---- a dependent launch (sm_90), which may begin before the launch ahead of it has ended

// griddepcontrol.wait, which ends when all launches ahead have
void grid_dependency_wait();

// ---- a warpgroup's products (sm_90a): wgmma.mma_async.m64nNk16, c += a b, float32 and bfloat16 or
// float16, a in registers

void wgmma_fence();
void multiply_warpgroup(Site, float* c, const unsigned* a, int columns, uint64_t b, bool transposed,
                        bool float16);
template <int transposed, bool float16 = false, unsigned count>
void wgmma_mma_async(float (&c)[count], const unsigned (&a)[4], uint64_t b, Site site = here()) {
    static_assert(count % 4 == 0 && count <= 128, "wgmma has a multiple of 8 columns, at most 256");
    multiply_warpgroup(site, c, a, 2 * count, b, transposed, float16);
}
void wgmma_commit_group();
void wait_for_products(Site, unsigned groups_left);
template <int groups_left>
void wgmma_wait_group(Site site = here()) {
    wait_for_products(site, groups_left);
}

// bar.sync of a barrier other than 0, by the first `count` threads of the block, whole warpgroups
void sync_first(Site, unsigned count);
template <int count>
void bar_sync(Site site = here()) {
    sync_first(site, count);
}

// setmaxnreg.dec and .inc, by a whole warpgroup
void change_registers(Site, unsigned count, bool more);
template <int count>
void setmaxnreg_dec(Site site = here()) {
    static_assert(count % 8 == 0 && count >= 24 && count <= 256, "as PTX wants it");
    change_registers(site, count, false);
}
template <int count>
void setmaxnreg_inc(Site site = here()) {
    static_assert(count % 8 == 0 && count >= 24 && count <= 256, "as PTX wants it");
    change_registers(site, count, true);
}

}  // namespace emulator
