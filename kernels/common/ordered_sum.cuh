// Sums of parts, added in order, with many loads under way.
#pragma once

// sum += `parts` parts, in order; load(to, part) loads the numbers of one part, one for each sum.
// `at_once` loads are always under way: each round adds what the round before has asked for. A load
// that waited for the sum before it would take the whole latency of memory. Behind the last part
// zeros are added, which change no sum, because none is ever -0.
template <int at_once, class Part = float, class Number, int sums, class Load>
__device__ __forceinline__ void add_in_order(Number (&sum)[sums], int parts, Load load) {
    Part asked[at_once][sums] = {};
#pragma unroll
    for (int i = 0; i < at_once; i++)
        if (i < parts) load(asked[i], i);
#pragma unroll 1
    for (int next = at_once; next < parts; next += at_once)
#pragma unroll
        for (int i = 0; i < at_once; i++) {
#pragma unroll
            for (int s = 0; s < sums; s++) sum[s] += asked[i][s], asked[i][s] = 0;
            if (next + i < parts) load(asked[i], next + i);
        }
#pragma unroll
    for (int i = 0; i < at_once; i++)
#pragma unroll
        for (int s = 0; s < sums; s++) sum[s] += asked[i][s];
}

// The sum of parts that are `apart` numbers from one another.
template <class Number = float, int at_once = 8, class Part>
__device__ __forceinline__ Number sum_of_parts(const Part* first, int parts, int apart) {
    Number sum[1] = {};
    add_in_order<at_once, Part>(sum, parts,
                                [=](Part(&to)[1], int part) { to[0] = first[part * apart]; });
    return sum[0];
}
