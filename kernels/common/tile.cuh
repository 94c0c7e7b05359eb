// Tile: how a block computes its part of a matrix product, chosen when a kernel is compiled: TILE_M x TILE_N elements in all, and
// THREAD_M x THREAD_N of a thread, or, on tensor cores, WARP_M x WARP_N of a warp; the multiplier says which operands those take.
#pragma once
#ifdef WARP_M
#include "common/bfloat16_tile.cuh"
#include "common/tf32_tile.cuh"

template <class Multiplier, int... sizes>
struct TensorTile;   // tensor cores form no products of other multipliers
template <int... sizes>
struct TensorTile<multipliers::exact, sizes...> : Tf32Tile<sizes...> {};
template <int... sizes>
struct TensorTile<multipliers::tf32, sizes...> : Tf32Tile<sizes...> {};
template <int... sizes>
struct TensorTile<multipliers::bfloat16, sizes...> : Bfloat16Tile<sizes...> {};
using Tile = TensorTile<multipliers::Chosen, TILE_M, TILE_N, WARP_M, WARP_N>;
#else
#include "common/gemm_tile.cuh"
using Tile = GemmTile<TILE_M, TILE_N, THREAD_M, THREAD_N>;
#endif
