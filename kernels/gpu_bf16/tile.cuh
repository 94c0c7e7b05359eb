// Tile: TILE_M x TILE_N elements of a block and WARP_M x WARP_N of a warp, chosen when a kernel is compiled, in three stages,
// as many as fit the 99 KB of shared memory that a block may have on sm_86 and sm_89.
#pragma once
#include "gpu_bf16/stages.cuh"

#ifndef TILE_M
#define TILE_M 128
#define TILE_N 128
#define WARP_M 64
#define WARP_N 64
#define WHOLE 1
#endif
using Tile = StagedTile<TILE_M, TILE_N, WARP_M, WARP_N, 3>;
