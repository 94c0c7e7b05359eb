// Sums of parts, added in order, with many loads under way.
#pragma once

// Adds `parts` parts, in order, to sums that begin at 0; load(to, part) loads the numbers of one
// part, one for each sum. A load that waited for the sum of the parts before it would take the
// whole latency of memory; here `at_once` parts are always under way: what a round adds was asked
// for in the round before, so that the compiler cannot bring a load and its sum together. In place
// of parts behind the last one it adds zeros, which change no sum: none is ever -0.
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

// One sum of parts that are `apart` numbers from one another.
template <class Number = float, int at_once = 8, class Part>
__device__ __forceinline__ Number sum_of_parts(const Part* first, int parts, int apart) {
    Number sum[1] = {};
    add_in_order<at_once, Part>(sum, parts,
                                [=](Part(&to)[1], int part) { to[0] = first[part * apart]; });
    return sum[0];
}
