// nvcuda::wmma on the model of tensor cores (tensor_cores.cpp). CUDA does not say which lane holds
// which element of a fragment; here element i of lane l is number 32 i + l of the matrix, by rows.
#pragma once
#include "half.h"

namespace nvcuda {
namespace wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}  // namespace precision

namespace emulated {
template <class T>
struct Stored {
    using type = T;
    static double number(type x) { return x; }
};
template <>
struct Stored<__half> {
    using type = __half;
    static double number(type x) { return float(x); }
};
template <>
struct Stored<__nv_bfloat16> {
    using type = __nv_bfloat16;
    static double number(type x) { return float(x); }
};
template <>
struct Stored<precision::tf32> {
    using type = float;
    static double number(type x) {
        return emulator::bits_of<float>(emulator::bits_of<unsigned>(x) & 0xffffe000u);
    }
};
template <class Use, int M, int N, int K>
constexpr int rows = std::is_same_v<Use, matrix_b> ? K : M;
template <class Use, int M, int N, int K>
constexpr int columns = std::is_same_v<Use, matrix_a> ? K : N;
}  // namespace emulated

template <class Use, int M, int N, int K, class T, class Layout = void>
class fragment {
public:
    using element_type = T;
    using storage_element_type = typename emulated::Stored<T>::type;
    static constexpr int rows = emulated::rows<Use, M, N, K>,
                         columns = emulated::columns<Use, M, N, K>,
                         num_elements = rows * columns / 32, num_storage_elements = num_elements;
    storage_element_type x[num_elements];
};

template <class Fragment, class T>
void fill_fragment(Fragment& to, T value) {
    for (auto& element : to.x) element = value;
}

// of an element of this lane
#define EMULATOR_ELEMENT(fragment, i) (32 * (i) + int(emulator::lane()))

template <class Fragment, class T>
EMULATOR_INLINE void load_rows(Fragment& to, const T* from, unsigned stride, bool by_row) {
    for (int i = 0; i < Fragment::num_elements; i++) {
        int number = EMULATOR_ELEMENT(to, i), row = number / Fragment::columns,
            column = number % Fragment::columns;
        to.x[i] = from[by_row ? row * stride + column : column * stride + row];
    }
}
template <class Use, int M, int N, int K, class T, class Layout, class U>
EMULATOR_INLINE void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& to, const U* from,
                                      unsigned stride) {
    load_rows(to, from, stride, std::is_same_v<Layout, row_major>);
}
template <int M, int N, int K, class T, class U>
EMULATOR_INLINE void load_matrix_sync(fragment<accumulator, M, N, K, T>& to, const U* from,
                                      unsigned stride, layout_t layout) {
    load_rows(to, from, stride, layout == mem_row_major);
}
template <int M, int N, int K, class T, class U>
EMULATOR_INLINE void store_matrix_sync(U* to, const fragment<accumulator, M, N, K, T>& from,
                                       unsigned stride, layout_t layout) {
    for (int i = 0; i < from.num_elements; i++) {
        int number = EMULATOR_ELEMENT(from, i), row = number / N, column = number % N;
        to[layout == mem_row_major ? row * stride + column : column * stride + row] = from.x[i];
    }
}
static inline float __float_to_tf32(float x) {
    return emulator::bits_of<float>(emulator::cvt_tf32(x));
}

template <int M, int N, int K, class D, class A, class LayoutA, class B, class LayoutB, class C>
void mma_sync(fragment<accumulator, M, N, K, D>& d,
              const fragment<matrix_a, M, N, K, A, LayoutA>& a,
              const fragment<matrix_b, M, N, K, B, LayoutB>& b,
              const fragment<accumulator, M, N, K, C>& c) {
    constexpr int of_a = a.num_elements, of_b = b.num_elements, of_c = c.num_elements;
    double mine[of_a + of_b + of_c], sums[of_c];
    for (int i = 0; i < of_a; i++) mine[i] = emulated::Stored<A>::number(a.x[i]);
    for (int i = 0; i < of_b; i++) mine[of_a + i] = emulated::Stored<B>::number(b.x[i]);
    for (int i = 0; i < of_c; i++) mine[of_a + of_b + i] = emulated::Stored<C>::number(c.x[i]);
    emulator::multiply_warp(M, N, K, mine, sums,
                            std::is_same_v<C, double> || std::is_integral_v<C>);
    for (int i = 0; i < of_c; i++) d.x[i] = sums[i];
}

}  // namespace wmma
}  // namespace nvcuda
