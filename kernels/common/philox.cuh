// Random numbers that depend on a key and a counter alone: Philox4x64-10 (Salmon et al., 2011), as
// NumPy's Philox draws them.
//   philox_block(seed, stream, step, block)   the four 64-bit numbers of block 0, 1, ... of a
//                                             stream in a step: the first of
//                                             np.random.Philox(key=(seed, stream), counter=(block,
//                                             0, 0, step))
//   philox_word(numbers, place)               32 bits of them, place 0 to 7, the lower half of each
//                                             number first
// NumPy increments the counter first, so the block's counter is (block + 1, 0, 0, step).
#pragma once

struct PhiloxBlock {
    unsigned long long a, b, c, d;
};

__device__ __forceinline__ PhiloxBlock philox_block(unsigned long long seed,
                                                    unsigned long long stream,
                                                    unsigned long long step,
                                                    unsigned long long block) {
    PhiloxBlock x = {block + 1, 0, 0, step};
#pragma unroll
    for (int round = 0; round < 10; round++) {
        unsigned long long a_low = 0xD2E7470EE14C6C93ull * x.a,
                           a_high = __umul64hi(0xD2E7470EE14C6C93ull, x.a);
        unsigned long long c_low = 0xCA5A826395121157ull * x.c,
                           c_high = __umul64hi(0xCA5A826395121157ull, x.c);
        x = {c_high ^ x.b ^ seed, c_low, a_high ^ x.d ^ stream, a_low};
        seed += 0x9E3779B97F4A7C15ull;
        stream += 0xBB67AE8584CAA73Bull;
    }
    return x;
}

__device__ __forceinline__ unsigned philox_word(const PhiloxBlock& numbers, int place) {
    unsigned long long number =
        place < 4 ? (place < 2 ? numbers.a : numbers.b) : (place < 6 ? numbers.c : numbers.d);
    return place % 2 ? number >> 32 : number;
}
