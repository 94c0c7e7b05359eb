// A block's tile of a matrix product whose operands go from global to shared memory without passing registers (cp.async):
// sums, operands and order of k as in gemm_tile.cuh, which keeps the next step in registers.
//
// STAGES steps of Tile::K are in dynamic shared memory: while the warps multiply one, the copies of the next are under way. One
// barrier a step is enough: what a step's copies overwrite was multiplied before the barrier. A tile takes this way if it has
// STAGES. Its operands have
//     next(fetch), copy(step, ...)   start this thread's copies of the next step
//     arrived(step)                  called when those of a step are in shared memory, before it is multiplied
#pragma once
#include "common/cp_async.cuh"
#include "common/shared_memory.cuh"

template <class Tile, class = void>
constexpr bool COPIES = false;
template <class Tile>
constexpr bool COPIES<Tile, decltype(void(Tile::STAGES))> = true;

template <class A, class B>
struct Stage {
    A a;
    B b;
};

// sum += the first Tile::K * steps products of a and b. The launch gives the block STAGES stages of dynamic shared memory.
template <class Tile, class A, class B>
__device__ __forceinline__ void multiply_copied(A& a, B& b, int steps, float (&sum)[Tile::M_THREAD][Tile::N_THREAD]) {
    using Both = Stage<typename Tile::template Step<Tile::M, A::Share::ALONG_K>,
                       typename Tile::template Step<Tile::N, B::Share::ALONG_K>>;
    DYNAMIC_SHARED(Both, stages);
    auto copy = [&](int step) {
        if (step < steps) {
            Both& to = stages[step % Tile::STAGES];
            a.next([&](int pass, int e, int at, bool there) { a.copy(to.a, pass, e, at, there); });
            b.next([&](int pass, int e, int at, bool there) { b.copy(to.b, pass, e, at, there); });
        }
        cp_async_commit();
    };
#pragma unroll
    for (int step = 0; step < Tile::STAGES - 1; step++) copy(step);
    for (int step = 0; step < steps; step++) {
        cp_async_wait<Tile::STAGES - 2>();
        __syncthreads();
        copy(step + Tile::STAGES - 1);
        const Both& now = stages[step % Tile::STAGES];
        a.arrived(now.a);
        Tile::add_step(now.a, now.b, sum);
    }
}
