// A warp's matrix operations by the tables of the PTX ISA ("Warp-level matrix load instruction:
// ldmatrix", "Matrix Fragments for mma.m16n8k16", "... mma.m16n8k8"). NVIDIA does not say how a
// tensor core adds: measurements find sums of one product's terms between two models, exact sums
// rounded once to nearest, and terms cut to 24 bits below the largest one before they are added,
// cut again at the end (M. Fasi et al., "Numerical behavior of NVIDIA tensor cores", PeerJ Computer
// Science 7, 2021). A test that holds for both holds between them.
#include "runtime.h"

#include <algorithm>
#include <cmath>

namespace emulator {

namespace {

struct Load {
    const unsigned char* row;
    unsigned* to;
    unsigned count;
    bool transposed;
};

struct Product {
    float* c;
    const unsigned *a, *b;
};

constexpr int COLUMNS = TILE_COLUMNS, MOST_TERMS = TILE_DEPTH + 1;  // and what is added to

// Of all columns at once, for which processors have vectors.
using Row = double __attribute__((vector_size(COLUMNS * sizeof(double))));
using Terms = Row[MOST_TERMS];

template <class Request>
Request& request(Operand* operand) {
    return *reinterpret_cast<Request*>(operand->value);
}

uint16_t half_word(const Load& load, unsigned column) {
    uint16_t value;
    memcpy(&value, load.row + 2 * column, 2);
    return value;
}

void load_for_all(Operand** of_lane) {
    Load* lanes[WARP];
    for (unsigned l = 0; l < WARP; l++) lanes[l] = &request<Load>(of_lane[l]);
    for (unsigned l = 0; l < WARP; l++)
        for (unsigned matrix = 0; matrix < lanes[l]->count; matrix++) {
            Load** rows = lanes + 8 * matrix;
            unsigned fast = l / 4, slow = 2 * (l % 4);
            uint16_t low =
                lanes[l]->transposed ? half_word(*rows[slow], fast) : half_word(*rows[fast], slow);
            uint16_t high = lanes[l]->transposed ? half_word(*rows[slow + 1], fast)
                                                 : half_word(*rows[fast], slow + 1);
            lanes[l]->to[matrix] = low | uint32_t(high) << 16;
        }
}

// Exact (bits further than 96 below the largest term are cut), then rounded to nearest even.
// exponent: of the largest term.
float rounded_sum(const Terms& terms, int column, int count, int exponent) {
    constexpr int BELOW = 96;
    __int128 sum = 0;
    for (int i = 0; i < count; i++)
        sum += static_cast<__int128>(std::ldexp(terms[i][column], BELOW - exponent));
    bool negative = sum < 0;
    unsigned __int128 magnitude = negative ? -sum : sum;
    int cut = 0;
    bool rest = false;
    for (; magnitude >> 53; cut++) {
        rest |= magnitude & 1;
        magnitude >>= 1;
    }
    // Rounded to odd here, so that the one rounding to float is the correct one.
    double value = std::ldexp(static_cast<double>(static_cast<uint64_t>(magnitude) | rest),
                              cut + exponent - BELOW);
    return static_cast<float>(negative ? -value : value);
}

float truncated_sum(const Terms& terms, int column, int count, int exponent) {
    int64_t sum = 0;
    double scale = std::ldexp(1.0, 23 - exponent);
    for (int i = 0; i < count; i++) sum += static_cast<int64_t>(terms[i][column] * scale);
    double value = static_cast<double>(sum) / scale;
    float nearest = static_cast<float>(value);
    return std::fabs(static_cast<double>(nearest)) > std::fabs(value)
               ? std::nextafterf(nearest, 0.0f)
               : nearest;
}

// The sums of the terms in each column as the launch's tensor cores add.
void tensor_sums(const Terms& terms, int count, float (&sums)[COLUMNS]) {
    // D. Knuth's TwoSum: what each addition loses, in sum its magnitude
    Row plain{}, largest{}, lost{};
    for (int i = 0; i < count; i++) {
        Row before = plain, size = terms[i] < 0.0 ? -terms[i] : terms[i];
        plain += terms[i];
        Row added = plain - before, error = (before - (plain - added)) + (terms[i] - added);
        lost += error < 0.0 ? -error : error;
        largest = size > largest ? size : largest;
    }
    for (int column = 0; column < COLUMNS; column++) {
        if (!std::isfinite(plain[column]) || largest[column] == 0.0 ||
            (lost[column] == 0.0 && !running->truncates)) {
            sums[column] = static_cast<float>(plain[column]);
            continue;
        }
        int exponent = std::ilogb(largest[column]);
        sums[column] = running->truncates ? truncated_sum(terms, column, count, exponent)
                                          : rounded_sum(terms, column, count, exponent);
    }
}

}  // namespace

void add_tile(float* const (&c)[WARP], const double (&a)[TILE_ROWS][TILE_DEPTH], const double* b,
              int row_of_b, int depth) {
    for (int row = 0; row < TILE_ROWS; row++) {
        Terms terms;
        float *to[COLUMNS], sums[COLUMNS];
        for (int k = 0; k < depth; k++) {
            memcpy(&terms[k], b + k * row_of_b, sizeof(Row));
            terms[k] *= a[row][k];
        }
        for (int column = 0; column < COLUMNS; column++) {
            to[column] = &c[row % 8 * 4 + column / 2][row / 8 * 2 + column % 2];
            terms[depth][column] = *to[column];
        }
        tensor_sums(terms, depth + 1, sums);
        for (int column = 0; column < COLUMNS; column++) *to[column] = sums[column];
    }
}

namespace {

float of_bf16(unsigned register_, int half) {
    return bits_of<float>(half ? register_ & 0xffff0000u : register_ << 16);
}
float of_f16(unsigned register_, int half) {
    unsigned bits = register_ >> 16 * half & 0xffff, exponent = bits >> 10 & 31,
             fraction = bits & 1023;
    float magnitude =
        exponent == 0
            ? fraction * 0x1p-24f
            : bits_of<float>((exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13);
    return bits & 0x8000 ? -magnitude : magnitude;
}
float of_tf32(unsigned register_) { return bits_of<float>(register_ & 0xffffe000u); }

void multiply(Operand** of_lane, const double (&a)[TILE_ROWS][TILE_DEPTH],
              const double (&b)[TILE_DEPTH][COLUMNS], int depth) {
    float* c[WARP];
    for (unsigned l = 0; l < WARP; l++) c[l] = request<Product>(of_lane[l]).c;
    add_tile(c, a, b[0], COLUMNS, depth);
}

template <int DEPTH, float (*number)(unsigned, int)>
void multiply_16bit(Operand** of_lane) {
    double a[TILE_ROWS][TILE_DEPTH], b[TILE_DEPTH][COLUMNS];
    for (unsigned l = 0; l < WARP; l++) {
        const Product& mine = request<Product>(of_lane[l]);
        int row = l / 4, first = 2 * (l % 4);
        for (int half = 0; half < 2; half++) {
            for (int i = 0; i < DEPTH / 4; i++)
                a[row + 8 * (i % 2)][first + half + 8 * (i / 2)] = number(mine.a[i], half);
            for (int i = 0; i < DEPTH / 8; i++)
                b[first + half + 8 * i][row] = number(mine.b[i], half);
        }
    }
    multiply(of_lane, a, b, DEPTH);
}

void multiply_tf32(Operand** of_lane) {
    double a[TILE_ROWS][TILE_DEPTH], b[TILE_DEPTH][COLUMNS];
    for (unsigned l = 0; l < WARP; l++) {
        const Product& mine = request<Product>(of_lane[l]);
        for (int i = 0; i < 4; i++)
            a[l / 4 + 8 * (i % 2)][l % 4 + 4 * (i / 2)] = of_tf32(mine.a[i]);
        for (int i = 0; i < 2; i++) b[l % 4 + 4 * i][l / 4] = of_tf32(mine.b[i]);
    }
    multiply(of_lane, a, b, 8);
}

void of_whole_warp(Site site, Combine combine, void* mine) {
    Operand operand{reinterpret_cast<uint64_t>(mine), 0, 0};
    collective(site, 0xffffffffu, combine, &operand);
}

}  // namespace

namespace {

struct WarpProduct {
    int rows, columns, depth;
    const double* mine;
    double* sums;
    bool exact;
};

// Row by row, of as many columns at once as the model has; a deep product is one after another.
void multiply_matrices(Operand** of_lane) {
    const WarpProduct& size = request<WarpProduct>(of_lane[0]);
    int of_a = size.rows * size.depth, of_b = size.depth * size.columns,
        of_c = size.rows * size.columns;
    std::vector<double> all(of_a + of_b + of_c);
    for (int i = 0; i < of_a + of_b + of_c; i++)
        all[i] = request<WarpProduct>(of_lane[i % WARP]).mine[i / WARP];
    const double *a = all.data(), *b = a + of_a;
    double* c = all.data() + of_a + of_b;
    for (int row = 0; row < size.rows; row++)
        for (int column = 0; column < size.columns; column += COLUMNS)
            for (int k = 0; k < size.depth; k += TILE_DEPTH) {
                int depth = std::min(size.depth - k, TILE_DEPTH);
                Terms terms;
                for (int i = 0; i < depth; i++) {
                    memcpy(&terms[i], b + (k + i) * size.columns + column, sizeof(Row));
                    terms[i] *= a[row * size.depth + k + i];
                }
                double* to = c + row * size.columns + column;
                memcpy(&terms[depth], to, sizeof(Row));
                if (size.exact) {
                    for (int i = 0; i < depth; i++) terms[depth] += terms[i];
                    memcpy(to, &terms[depth], sizeof(Row));
                    continue;
                }
                float sums[COLUMNS];
                tensor_sums(terms, depth + 1, sums);
                std::copy(sums, sums + COLUMNS, to);
            }
    for (int i = 0; i < of_c; i++) request<WarpProduct>(of_lane[i % WARP]).sums[i / WARP] = c[i];
}

}  // namespace

void multiply_warp(int rows, int columns, int depth, const double* mine, double* sums, bool exact) {
    WarpProduct product{rows, columns, depth, mine, sums, exact};
    of_whole_warp(here(), multiply_matrices, &product);
}

void ldmatrix(unsigned* to, const void* row, unsigned matrices, bool transposed, Site site) {
    if (matrices != 1 && matrices != 2 && matrices != 4)
        fail(describe("bad ldmatrix", at(site), "loads %u matrices, not 1, 2 or 4", matrices));
    auto* bytes = static_cast<const unsigned char*>(row);
    if (lane() < 8 * matrices) {
        if (reinterpret_cast<uintptr_t>(row) % 16)
            fail(describe("misaligned access", at(site),
                          "loads the row of a matrix from an address that is no multiple of 16"));
        accessed(row, 16, false, reinterpret_cast<uintptr_t>(__builtin_return_address(0)));
        must_be_shared(site, row, "ldmatrix");
    }
    Load mine{bytes, to, matrices, transposed};
    of_whole_warp(site, load_for_all, &mine);
    loaded_fragment(site, to, 4 * matrices);  // all lanes have loaded
}

void mma_bf16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], Site site) {
    Product mine{c, a, b};
    of_whole_warp(site, multiply_16bit<16, of_bf16>, &mine);
}

void mma_f16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], Site site) {
    Product mine{c, a, b};
    of_whole_warp(site, multiply_16bit<16, of_f16>, &mine);
}

void mma_f16_k8(float (&c)[4], const unsigned (&a)[2], unsigned b, Site site) {
    Product mine{c, a, &b};
    of_whole_warp(site, multiply_16bit<8, of_f16>, &mine);
}

void mma_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], Site site) {
    Product mine{c, a, b};
    of_whole_warp(site, multiply_tf32, &mine);
}

}  // namespace emulator
