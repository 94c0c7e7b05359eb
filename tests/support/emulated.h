// The names that kernels/common has for what cuda_emulator/ptx.h declares: where CUDA_EMULATOR is
// defined, its headers leave their instructions to these.
#pragma once

#define DYNAMIC_SHARED(type, name) type* name = reinterpret_cast<type*>(emulator::dynamic_shared())
#define SWIZZLED_SHARED(name) unsigned char* name = emulator::dynamic_shared()
static inline unsigned shared_address(const void* shared) {
    return __cvta_generic_to_shared(shared);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800  // tests of what sm_75 has instead define it
using emulator::cp_async;
#define cp_async_commit emulator::cp_async_commit_group
#define cp_async_wait emulator::cp_async_wait_group
#define mma_f16(c, a, b) emulator::mma_f16(c, a, b, EMULATOR_SITE)
#else
#define mma_f16_k8(c, a, b) emulator::mma_f16_k8(c, a, b, EMULATOR_SITE)
#endif

// Parentheses keep the macro `ldmatrix` out of the other.
#define ldmatrix(to, row) \
    emulator::ldmatrix(to, row, sizeof(to) / sizeof(to[0]), false, EMULATOR_SITE)
#define ldmatrix_trans(to, row) \
    (emulator::ldmatrix)(to, row, sizeof(to) / sizeof(to[0]), true, EMULATOR_SITE)
#define mma_bf16(c, a, b) emulator::mma_bf16(c, a, b, EMULATOR_SITE)
#define mma_tf32(c, a, b) emulator::mma_tf32(c, a, b, EMULATOR_SITE)
#define bf16x2(low, high) emulator::cvt_bf16x2(low, high)
#define f16x2(low, high) emulator::cvt_f16x2(low, high)
#define tf32(x) emulator::cvt_tf32(x)

#define barrier_init emulator::mbarrier_init
#define barriers_visible emulator::fence_mbarrier_init
#define barrier_arrive emulator::mbarrier_arrive
#define barrier_expect emulator::mbarrier_arrive_expect_tx
#define barrier_wait emulator::mbarrier_wait_parity
#define copy_bulk emulator::cp_async_bulk
#define async_proxy_fence emulator::fence_proxy_async
using emulator::wgmma_fence;
// FLOAT16: packed.cuh
template <bool float16>
struct WarpgroupProducts {
    template <int transposed, unsigned count>
    static void begin(float (&c)[count], const unsigned (&a)[4], uint64_t b,
                      emulator::Site site = emulator::here()) {
        emulator::wgmma_mma_async<transposed, float16>(c, a, b, site);
    }
};
#define wgmma WarpgroupProducts<FLOAT16>::begin
#define wgmma_commit emulator::wgmma_commit_group
#define wgmma_wait emulator::wgmma_wait_group
template <unsigned count>
void fence_accumulators(float (&)[count]) {}
#define sync_first emulator::bar_sync
#define setmaxnreg_dec emulator::setmaxnreg_dec
#define setmaxnreg_inc emulator::setmaxnreg_inc
