// The short names of cuda_fp16.h and cuda_bf16.h; not included where a file has its own `half`.
#pragma once
using half = __half;
using half2 = __half2;
using nv_half = __half;
using nv_half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
