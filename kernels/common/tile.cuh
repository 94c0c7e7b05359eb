// Tile: how a block computes its part of a matrix product, chosen when a kernel is compiled: TILE_M x TILE_N elements in all, and
// THREAD_M x THREAD_N of a thread, or, on tensor cores, WARP_M x WARP_N of a warp.
#pragma once
#ifdef WARP_M
#include "common/tensor_tile.cuh"
using Tile = TensorTile<TILE_M, TILE_N, WARP_M, WARP_N>;
#else
#include "common/gemm_tile.cuh"
using Tile = GemmTile<TILE_M, TILE_N, THREAD_M, THREAD_N>;
#endif
