// AVX-512 with VNNI and BF16 (Zen 4 and later, Cooper Lake, Sapphire Rapids and later).
#include "attention.h"
#include "kernels.h"

#if defined(__AVX512VNNI__) && defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kv_codes.h"
#include "weigh.h"

namespace octavo {

namespace {

// Loops over the rows, vectors or registers of a block must be unrolled whole: only then do its accumulators live in registers. GCC on its
// own stops at six rows or so.
#define OCTAVO_UNROLL _Pragma("GCC unroll 16")

// Rows of one register block: 16 accumulators, 8 registers of unpacked codes, scale, minimum and a dot product stay in 32.
constexpr int kRows = kBlockRows;
// Rows that are refined together: if one has finer codes in a group, all are multiplied with theirs.
constexpr int kTogether = 4;
// Bytes ahead of the codes in use: about what a core takes in while memory answers.
constexpr int kAhead = 3072;

inline void prefetch(const uint8_t* at, size_t bytes) {
    for (size_t offset = 0; offset < bytes; offset += 64) _mm_prefetch(reinterpret_cast<const char*>(at + offset), _MM_HINT_T0);
}

inline __m512 halves(const uint8_t* at) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))); }

inline __m512i broadcast_codes(const int8_t* at) {
    int32_t four;
    std::memcpy(&four, at, 4);
    return _mm512_set1_epi32(four);
}

// Two bf16 in every lane.
inline __m512bh broadcast_pair(int32_t pair) {
    __m512i lanes = _mm512_set1_epi32(pair);
#if defined(__clang__)
    __asm__("" : "+v"(lanes));  // up to version 18 it recurses without end where it sees that bf16 come from a broadcast
#endif
    return __m512bh(lanes);
}

// -- quantized matrices --------------------------------------------------------------------------------------------------------

template <Packing packing>
inline void unpack(const uint8_t* codes, __m512i (&planes)[8]) {
    if constexpr (nibbles(packing)) {
        const __m512i low = _mm512_set1_epi8(15);
        for (int p = 0; p < 4; ++p) {
            const __m512i both = _mm512_loadu_si512(codes + 64 * p);
            planes[p] = _mm512_and_si512(both, low);
            planes[p + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
        }
    } else {
        for (int p = 0; p < 8; ++p) planes[p] = _mm512_loadu_si512(codes + 64 * p);
    }
}

// What a group's sum of activation codes is multiplied with to begin a dot product: takes away the zero point where one is known, and
// leaves it to be multiplied where each output has its own.
template <Packing packing>
constexpr int kTakenAway = packing == Packing::U4Centred ? -8 : packing == Packing::U8Centred ? -128 : -1;

template <Packing packing>
inline int32_t taken_away(const int16_t* half_sums) { return (half_sums[0] + half_sums[1]) * kTakenAway<packing>; }

// A block of activations whose height is known here, so that every offset is a constant; see activations.h.
template <int height>
struct Block {
    const uint8_t* data;

    Block(const Activations& x, int row) : data(x.blocks + size_t(row / height) * size_t(x.k / 32) * group_bytes(height)) {}

    const uint8_t* at(int g, size_t offset) const { return data + size_t(g) * group_bytes(height) + offset; }
    const RowGroup& of(int m, int g) const { return reinterpret_cast<const RowGroup*>(at(g, row_groups_at(height)))[m]; }
    const int8_t* codes(int m, int g) const { return reinterpret_cast<const int8_t*>(at(g, 0)) + m * 32; }
    float scale(int m, int g) const { return of(m, g).scale; }
    float sum(int m, int g) const { return of(m, g).sum; }
    const int16_t* half_sums(int m, int g) const { return of(m, g).half_sums; }
    const int8_t* low(int m, int g) const { return reinterpret_cast<const int8_t*>(at(g, low_at(height))) + m * 32; }
    const int16_t* low_half_sums(int m, int g) const { return of(m, g).low_half_sums; }
    // Whether any of up to kTogether rows has finer codes.
    bool refined(int m, int rows, int g) const {
        const uint8_t* flags = at(g, refined_at(height)) + m;
        if (rows == 1) return flags[0] != 0;
        uint32_t four;
        std::memcpy(&four, flags, 4);
        return (four & (0xffffffffu >> (8 * (kTogether - rows)))) != 0;
    }
};

// dot + the products of planes first … last-1 of a group with codes that begin at the first's.
template <int M, int first = 0, int last = 8>
inline __m512i add_planes(__m512i dot, const __m512i (&planes)[8], const int8_t* codes) {
    if constexpr (M < 4) {  // few rows: two chains hide VPDPBUSD's latency, where many rows do it themselves
        __m512i odd = _mm512_setzero_si512();
        OCTAVO_UNROLL
        for (int p = first; p < last; p += 2) {
            dot = _mm512_dpbusd_epi32(dot, planes[p], broadcast_codes(codes + (p - first) * 4));
            odd = _mm512_dpbusd_epi32(odd, planes[p + 1], broadcast_codes(codes + (p - first) * 4 + 4));
        }
        return _mm512_add_epi32(dot, odd);
    } else {
        OCTAVO_UNROLL
        for (int p = first; p < last; ++p) dot = _mm512_dpbusd_epi32(dot, planes[p], broadcast_codes(codes + (p - first) * 4));
        return dot;
    }
}

// Do `row_of(refined, m)` for all M rows of a block: `refined` tells at compile time whether to take the finer codes too.
template <int M, typename Source, typename RowOf>
[[gnu::always_inline]] inline void for_rows(const Source& x, int g, const RowOf& row_of) {
    OCTAVO_UNROLL
    for (int m = 0; m < M; m += kTogether) {
        if (x.refined(m, std::min(kTogether, M - m), g)) {
            OCTAVO_UNROLL
            for (int i = 0; i < kTogether; ++i)
                if (m + i < M) row_of(std::true_type{}, m + i);
        } else {
            OCTAVO_UNROLL
            for (int i = 0; i < kTogether; ++i)
                if (m + i < M) row_of(std::false_type{}, m + i);
        }
    }
}

// 256 times the codes' product and the finer codes': apart until here, so that neither waits for the other.
inline __m512i with_low(__m512i dot, __m512i low) { return _mm512_add_epi32(_mm512_slli_epi32(dot, 8), low); }

// What multiplies a dot product of codes alone, or of 256 codes and the finer ones.
template <bool refined>
inline __m512 own_scale(float scale) { return _mm512_set1_ps(refined ? scale * kLowUnit : scale); }

// M rows by one tile: each group's codes are unpacked once for all rows.
template <Packing packing, int M, typename Source>
void tile_rows(const uint8_t* tile, int groups, const Source& x, int row, float* y, int ld) {
    constexpr bool super = packing != Packing::U4Half && packing != Packing::U8Half;
    constexpr size_t bytes = nibbles(packing) ? 256 : 512, step = super ? bytes : bytes + 64;
    __m512 total[M];
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) total[m] = _mm512_setzero_ps();
    __m512i planes[8];
    const uint8_t* codes = tile;
    const uint8_t* header = tile;
    __m512 d{}, dmin{};
    for (int g = 0; g < groups; ++g, codes += step) {
        if constexpr (super) {
            if (g % 8 == 0) {
                header = codes;
                d = halves(header);
                if constexpr (packing != Packing::U8Super16) dmin = halves(header + 32);
                prefetch(header + kAhead, 320);
                codes = header + 320;
            }
        }
        prefetch(codes + kAhead, step);
        unpack<packing>(codes, planes);
        if constexpr (packing == Packing::U8Super16) {
            const __m128i sub = _mm_loadu_si128(reinterpret_cast<const __m128i*>(header + 64 + (g % 8) * 32));
            const __m128i sub2 = _mm_loadu_si128(reinterpret_cast<const __m128i*>(header + 80 + (g % 8) * 32));
            const __m512 scale0 = _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sub)));
            const __m512 scale1 = _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sub2)));
            for_rows<M>(x, g, [&](auto refined, int m) __attribute__((always_inline)) {
                const int16_t* offsets = x.half_sums(m, g);
                __m512i dot0 = add_planes<M, 0, 4>(_mm512_set1_epi32(-32 * offsets[0]), planes, x.codes(m, g));
                __m512i dot1 = add_planes<M, 4, 8>(_mm512_set1_epi32(-32 * offsets[1]), planes, x.codes(m, g) + 16);
                if constexpr (refined) {
                    const int16_t* low_offsets = x.low_half_sums(m, g);
                    dot0 = with_low(dot0, add_planes<M, 0, 4>(_mm512_set1_epi32(-32 * low_offsets[0]), planes, x.low(m, g)));
                    dot1 = with_low(dot1, add_planes<M, 4, 8>(_mm512_set1_epi32(-32 * low_offsets[1]), planes, x.low(m, g) + 16));
                }
                const __m512 own = own_scale<refined>(x.scale(m, g));
                total[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot0), _mm512_mul_ps(scale0, own), total[m]);
                total[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot1), _mm512_mul_ps(scale1, own), total[m]);
            });
        } else {
            __m512 scale, minimum;
            if constexpr (super) {
                const uint8_t* own = header + 64 + (g % 8) * 32;
                const __m128i sub = _mm_loadu_si128(reinterpret_cast<const __m128i*>(own));
                const __m128i sub_minimum = _mm_loadu_si128(reinterpret_cast<const __m128i*>(own + 16));
                scale = _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(sub)));
                minimum = _mm512_sub_ps(_mm512_setzero_ps(), _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(sub_minimum))));
            } else {
                scale = halves(codes + bytes);
                minimum = halves(codes + bytes + 32);
            }
            for_rows<M>(x, g, [&](auto refined, int m) __attribute__((always_inline)) {
                __m512i dot = add_planes<M>(_mm512_setzero_si512(), planes, x.codes(m, g));
                if constexpr (refined) dot = with_low(dot, add_planes<M>(_mm512_setzero_si512(), planes, x.low(m, g)));
                total[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(scale, own_scale<refined>(x.scale(m, g))), total[m]);
                total[m] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(x.sum(m, g)), total[m]);
            });
        }
    }
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) _mm512_storeu_ps(y + size_t(row + m) * size_t(ld), total[m]);
}

// zero * taken_away + dot: both factors fit 16 bits, and the upper 16 of `zero` are 0.
inline __m512i add_small_product(__m512i dot, __m512i zero, int32_t taken_away) {
    return _mm512_dpwssd_epi32(dot, zero, _mm512_set1_epi32(taken_away));
}

// The same where scales are for spans of groups.
template <Packing packing, int M, typename Source>
void tile_rows_by_spans(const Matrix& matrix, const uint8_t* tile, const Source& x, int row, float* y, int ld) {
    constexpr size_t bytes = nibbles(packing) ? 256 : 512;
    const Spans parts = spans_of(matrix, tile);
    __m512 total[M];
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) total[m] = _mm512_setzero_ps();
    __m512i planes[8];
    const uint8_t* codes = parts.codes;
    const int groups = matrix.inputs / kGroup;
    for (int start = 0, s = 0; start < groups; start += matrix.span, ++s) {
        const __m512 scale = matrix.half_scales ? halves(parts.scales + s * 32) : _mm512_loadu_ps(parts.scales + s * 64);
        __m512i zero{};
        if constexpr (packing == Packing::U4Zero) zero = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(parts.zeros + s * 16)));
        const auto without_zeros = [&](__m512i dot, int32_t taken_away) __attribute__((always_inline)) {
            if constexpr (packing == Packing::U4Zero) return add_small_product(dot, zero, taken_away);
            else return _mm512_add_epi32(dot, _mm512_set1_epi32(taken_away));
        };
        for (int g = start; g < start + matrix.span; ++g, codes += bytes) {
            prefetch(codes + kAhead, bytes);
            unpack<packing>(codes, planes);
            for_rows<M>(x, g, [&](auto refined, int m) __attribute__((always_inline)) {
                __m512i dot = without_zeros(_mm512_setzero_si512(), taken_away<packing>(x.half_sums(m, g)));
                dot = add_planes<M>(dot, planes, x.codes(m, g));
                if constexpr (refined) {
                    const __m512i low = without_zeros(_mm512_setzero_si512(), taken_away<packing>(x.low_half_sums(m, g)));
                    dot = with_low(dot, add_planes<M>(low, planes, x.low(m, g)));
                }
                const __m512 own = own_scale<refined>(x.scale(m, g));
                if constexpr (packing == Packing::U8Centred) total[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), own, total[m]);
                else total[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(scale, own), total[m]);
            });
        }
        if constexpr (packing == Packing::U8Centred) {
            OCTAVO_UNROLL
            for (int m = 0; m < M; ++m) total[m] = _mm512_mul_ps(total[m], scale);
        }
    }
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) _mm512_storeu_ps(y + size_t(row + m) * size_t(ld), total[m]);
}

// -- bf16 matrices -------------------------------------------------------------------------------------------------------------

template <int M>
void bf16_rows(const uint8_t* tile, int inputs, const Activations& x, int row, float* y, int ld) {
    __m512 total[M];
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) total[m] = _mm512_setzero_ps();
    const uint16_t* of[M];
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) of[m] = x.bf16 + size_t(row + m) * size_t(x.k);
    int pair = 0;
    for (; pair < inputs / 2; ++pair) {
        _mm_prefetch(reinterpret_cast<const char*>(tile + size_t(pair) * 64 + kAhead), _MM_HINT_T0);
        const __m512bh weights = __m512bh(_mm512_loadu_si512(tile + size_t(pair) * 64));
        OCTAVO_UNROLL
        for (int m = 0; m < M; ++m) {
            int32_t two;
            std::memcpy(&two, of[m] + pair * 2, 4);
            total[m] = _mm512_dpbf16_ps(total[m], weights, broadcast_pair(two));
        }
    }
    if (inputs % 2 != 0) {  // what lies beside the last input is anybody's
        const __m512bh weights = __m512bh(_mm512_loadu_si512(tile + size_t(pair) * 64));
        OCTAVO_UNROLL
        for (int m = 0; m < M; ++m) total[m] = _mm512_dpbf16_ps(total[m], weights, broadcast_pair(of[m][inputs - 1]));
    }
    OCTAVO_UNROLL
    for (int m = 0; m < M; ++m) _mm512_storeu_ps(y + size_t(row + m) * size_t(ld), total[m]);
}

// -- any number of rows from blocks of a few fixed sizes -----------------------------------------------------------------------

template <int M>
void bf16_block(const Matrix& matrix, const uint8_t* tile, const Activations& x, int row, float* y, int ld) {
    bf16_rows<M>(tile, matrix.inputs, x, row, y, ld);
}

template <Packing packing, int M, typename Source>
void quantized_block(const Matrix& matrix, const uint8_t* tile, const Source& x, int row, float* y, int ld) {
    if constexpr (spans(packing)) tile_rows_by_spans<packing, M>(matrix, tile, x, row, y, ld);
    else tile_rows<packing, M>(tile, matrix.inputs / kGroup, x, row, y, ld);
}

// `rows` (1 … height) rows from `row` on by tiles first … last-1.
template <Packing packing, int height>
void rows_by_tiles(const Matrix& matrix, int first, int last, const Activations& x, int row, int rows, float* y, int ld) {
    const Block<height> block(x, row);
    for (int t = first; t < last; ++t) {
        const uint8_t* tile = matrix.data + size_t(t) * matrix.tile_bytes;
        float* out = y + size_t(t) * kTile;
        switch (rows) {
#define OCTAVO_ROWS(n)                                                                            \
    case n:                                                                                       \
        if constexpr (n > height) break;                                                          \
        else if constexpr (packing == Packing::Bf16) bf16_block<n>(matrix, tile, x, row, out, ld); \
        else quantized_block<packing, n>(matrix, tile, block, row, out, ld);                      \
        break;
            OCTAVO_ROWS(1) OCTAVO_ROWS(2) OCTAVO_ROWS(3) OCTAVO_ROWS(4) OCTAVO_ROWS(5) OCTAVO_ROWS(6) OCTAVO_ROWS(7) OCTAVO_ROWS(8)
            OCTAVO_ROWS(9) OCTAVO_ROWS(10) OCTAVO_ROWS(11) OCTAVO_ROWS(12) OCTAVO_ROWS(13) OCTAVO_ROWS(14) OCTAVO_ROWS(15) OCTAVO_ROWS(16)
#undef OCTAVO_ROWS
            default: break;
        }
    }
}

template <Packing packing>
void matmul_as(const Matrix& matrix, int first, int last, const Activations& x, int rows, float* y, int ld) {
    if (x.height == kFewRows) return rows_by_tiles<packing, kFewRows>(matrix, first, last, x, 0, rows, y, ld);
    for (int row = 0; row < rows; row += kRows) rows_by_tiles<packing, kRows>(matrix, first, last, x, row, std::min(kRows, rows - row), y, ld);
}

void matmul(const Matrix& matrix, int first, int last, const Activations& x, int rows, float* y, int ld) {
    switch (matrix.packing) {
        case Packing::U4Half: return matmul_as<Packing::U4Half>(matrix, first, last, x, rows, y, ld);
        case Packing::U8Half: return matmul_as<Packing::U8Half>(matrix, first, last, x, rows, y, ld);
        case Packing::U4Super: return matmul_as<Packing::U4Super>(matrix, first, last, x, rows, y, ld);
        case Packing::U8Super: return matmul_as<Packing::U8Super>(matrix, first, last, x, rows, y, ld);
        case Packing::U8Super16: return matmul_as<Packing::U8Super16>(matrix, first, last, x, rows, y, ld);
        case Packing::U4Centred: return matmul_as<Packing::U4Centred>(matrix, first, last, x, rows, y, ld);
        case Packing::U4Zero: return matmul_as<Packing::U4Zero>(matrix, first, last, x, rows, y, ld);
        case Packing::U8Centred: return matmul_as<Packing::U8Centred>(matrix, first, last, x, rows, y, ld);
        default: return matmul_as<Packing::Bf16>(matrix, first, last, x, rows, y, ld);
    }
}

template <bool half, int M>
void float_rows(const uint8_t* tile, int inputs, const float* x, int x_ld, float* y, int ld) {
    __m512 total[M];
    for (int m = 0; m < M; ++m) total[m] = _mm512_setzero_ps();
    for (int k = 0; k < inputs; ++k) {
        const __m512 weights = half ? halves(tile + size_t(k) * 32) : _mm512_loadu_ps(tile + size_t(k) * 64);
        for (int m = 0; m < M; ++m) total[m] = _mm512_fmadd_ps(weights, _mm512_set1_ps(x[size_t(m) * size_t(x_ld) + size_t(k)]), total[m]);
    }
    for (int m = 0; m < M; ++m) _mm512_storeu_ps(y + size_t(m) * size_t(ld), total[m]);
}

template <bool half>
void float_tile(const Matrix& matrix, const uint8_t* tile, const float* x, int x_ld, int rows, float* y, int ld) {
    const auto at = [&](int row) { return x + size_t(row) * size_t(x_ld); };
    const auto to = [&](int row) { return y + size_t(row) * size_t(ld); };
    int row = 0;
    for (; rows - row >= 16; row += 16) float_rows<half, 16>(tile, matrix.inputs, at(row), x_ld, to(row), ld);
    for (; rows - row >= 4; row += 4) float_rows<half, 4>(tile, matrix.inputs, at(row), x_ld, to(row), ld);
    for (; rows - row >= 1; row += 1) float_rows<half, 1>(tile, matrix.inputs, at(row), x_ld, to(row), ld);
}

void matmul_float(const Matrix& matrix, int first, int last, const float* x, int x_ld, int rows, float* y, int ld) {
    for (int t = first; t < last; ++t) {
        const uint8_t* tile = matrix.data + size_t(t) * matrix.tile_bytes;
        if (matrix.packing == Packing::F16) float_tile<true>(matrix, tile, x, x_ld, rows, y + t * kTile, ld);
        else float_tile<false>(matrix, tile, x, x_ld, rows, y + t * kTile, ld);
    }
}

// -- rows of activations -------------------------------------------------------------------------------------------------------

void quantise(const float* values, int k, const Activations& x, int row) {
    const __m512 unsigned_mask = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fffffff));
    BlockRows own(x, row);
    for (int g = 0; g < k / 32; ++g, own.next()) {
        const __m512 a = _mm512_loadu_ps(values + g * 32), b = _mm512_loadu_ps(values + g * 32 + 16);
        const __m512 size_a = _mm512_and_ps(a, unsigned_mask), size_b = _mm512_and_ps(b, unsigned_mask);
        const float largest = _mm512_reduce_max_ps(_mm512_max_ps(size_a, size_b));
        const __m512 infinity = _mm512_set1_ps(std::numeric_limits<float>::infinity());
        const bool finite = (_mm512_cmp_ps_mask(size_a, infinity, _CMP_LT_OQ) & _mm512_cmp_ps_mask(size_b, infinity, _CMP_LT_OQ)) == 0xffff;
        const bool counts = finite && largest >= kQuantiseFloor;
        const __m512 inverse = _mm512_set1_ps(counts ? 127.0f / largest : 0.0f);
        const __mmask16 kept = counts ? 0xffff : 0;
        const __m512i code_a = _mm512_maskz_cvtps_epi32(kept, _mm512_mul_ps(a, inverse));
        const __m512i code_b = _mm512_maskz_cvtps_epi32(kept, _mm512_mul_ps(b, inverse));
        int8_t* codes = own.codes(0);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtsepi32_epi8(code_a));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 16), _mm512_cvtsepi32_epi8(code_b));
        const int32_t sum_a = _mm512_reduce_add_epi32(code_a), sum_b = _mm512_reduce_add_epi32(code_b);
        own[0].scale = !finite ? std::numeric_limits<float>::quiet_NaN() : counts ? largest / 127.0f : 0.0f;
        own[0].sum = own[0].scale * float(sum_a + sum_b);
        own[0].half_sums[0] = int16_t(sum_a);
        own[0].half_sums[1] = int16_t(sum_b);
        own.refined(0, false);
    }
}

void to_bf16_row(const float* values, int k, uint16_t* out) {
    for (int i = 0; i < k; i += 16) {
        const __mmask16 mask = __mmask16(k - i >= 16 ? 0xffff : (1u << (k - i)) - 1);
        const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, values + i));
        _mm256_mask_storeu_epi16(out + i, mask, __m256i(rounded));
    }
}

void rms_norm(const float* x, const float* residual, float* sum, const float* weight, int size, int width, float eps, float* y) {
    for (int start = 0; start < size; start += width) {
        __m512 squares = _mm512_setzero_ps();
        for (int i = 0; i < width; i += 16) {
            const __mmask16 mask = __mmask16(width - i >= 16 ? 0xffff : (1u << (width - i)) - 1);
            __m512 value = _mm512_maskz_loadu_ps(mask, x + start + i);
            if (residual) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, residual + start + i));
            if (sum) _mm512_mask_storeu_ps(sum + start + i, mask, value);
            squares = _mm512_fmadd_ps(value, value, squares);
        }
        const __m512 factor = _mm512_set1_ps(1.0f / std::sqrt(_mm512_reduce_add_ps(squares) / float(width) + eps));
        const float* from = sum ? sum : x;
        for (int i = 0; i < width; i += 16) {
            const __mmask16 mask = __mmask16(width - i >= 16 ? 0xffff : (1u << (width - i)) - 1);
            const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, from + start + i), factor);
            _mm512_mask_storeu_ps(y + start + i, mask, _mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(mask, weight + i)));
        }
    }
}

// e^x by 2^n * p(r), |r| <= ln 2 / 2; p is the Taylor polynomial of degree 7, whose error there is below half an ulp.
// Below -87.3 the result falls to 0, above 88.7 to infinity; NaN stays NaN.
inline __m512 exponential(__m512 x) {
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6f), r);
    __m512 p = _mm512_set1_ps(1.0f / 5040.0f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

inline __m512 hyperbolic_tangent(__m512 x) {  // 1 - 2 / (e^2x + 1); clamped where it is 1 in float anyway
    const __m512 clamped = _mm512_max_ps(_mm512_set1_ps(-20.0f), _mm512_min_ps(_mm512_set1_ps(20.0f), x));
    const __m512 e = exponential(_mm512_add_ps(clamped, clamped));
    const __m512 t = _mm512_sub_ps(_mm512_set1_ps(1.0f), _mm512_div_ps(_mm512_set1_ps(2.0f), _mm512_add_ps(e, _mm512_set1_ps(1.0f))));
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), t, x);
}

// x / (1 + e^-z) from e^-|z|, which cannot overflow; below e^-104 it is zero in float. max takes its second operand where one is NaN.
inline __m512 times_logistic(__m512 x, __m512 z) {
    const __m512 fall = _mm512_or_ps(z, _mm512_set1_ps(-0.0f));
    const __m512 e = exponential(_mm512_max_ps(_mm512_set1_ps(-104.0f), fall));
    const __mmask16 negative = _mm512_cmp_ps_mask(z, _mm512_setzero_ps(), _CMP_LT_OQ);
    return _mm512_div_ps(_mm512_mask_mul_ps(x, negative, x, e), _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

inline __m512 silu(__m512 x) { return times_logistic(x, x); }

inline __m512 gelu_tanh(__m512 x) {
    const __m512 cube = _mm512_mul_ps(_mm512_mul_ps(x, x), x);
    return times_logistic(x, _mm512_mul_ps(_mm512_set1_ps(1.5957691216f), _mm512_fmadd_ps(_mm512_set1_ps(0.044715f), cube, x)));
}

// x / 2 erfc(-x / sqrt 2)
inline __m512 gelu(__m512 x) {
    const __m512 one = _mm512_set1_ps(1.0f), size = _mm512_abs_ps(x);
    const __m512 t = _mm512_div_ps(one, _mm512_fmadd_ps(size, _mm512_set1_ps(0.35355339f), one));
    __m512 p = _mm512_set1_ps(kComplement[9]);
    for (int i = 8; i >= 0; --i) p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(kComplement[i]));
    const __m512 fall = _mm512_fnmadd_ps(_mm512_mul_ps(x, _mm512_set1_ps(0.5f)), x, p);
    const __m512 beyond = _mm512_mul_ps(_mm512_mul_ps(t, _mm512_set1_ps(0.5f)), exponential(_mm512_max_ps(_mm512_set1_ps(-104.0f), fall)));
    const __mmask16 negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
    return _mm512_mul_ps(x, _mm512_mask_mov_ps(_mm512_sub_ps(one, beyond), negative, beyond));
}

inline __m512 relu(__m512 x) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NLE_UQ), x); }  // NaN stays NaN

void gated(const float* a, const float* b, int size, Gate kind, float* out) {
    for (int i = 0; i < size; i += 16) {
        const __mmask16 mask = __mmask16(size - i >= 16 ? 0xffff : (1u << (size - i)) - 1);
        const __m512 x = _mm512_maskz_loadu_ps(mask, a + i);
        const __m512 y = kind == Gate::Silu ? silu(x) : kind == Gate::GeluTanh ? gelu_tanh(x) : kind == Gate::Gelu ? gelu(x) : relu(x);
        _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(y, _mm512_maskz_loadu_ps(mask, b + i)));
    }
}

void rope_interleaved(float* x, int heads, int head_dim, int half, const float* cos, const float* sin) {
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    for (int head = 0; head < heads; ++head, x += head_dim)
        for (int i = 0; i < half; i += 8) {
            const int left = half - i < 8 ? half - i : 8;
            const __mmask16 mask = __mmask16((1u << left) - 1), pairs = __mmask16((1u << (2 * left)) - 1);
            const __m512 c = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(mask, cos + i));
            const __m512 s = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(mask, sin + i));
            const __m512 ab = _mm512_maskz_loadu_ps(pairs, x + 2 * i), ba = _mm512_permute_ps(ab, 0xb1);
            _mm512_mask_storeu_ps(x + 2 * i, pairs, _mm512_fmaddsub_ps(ab, c, _mm512_mul_ps(ba, s)));
        }
}

void rope(float* x, int heads, int head_dim, int turned, bool interleaved, const float* cos, const float* sin) {
    const int half = turned / 2;
    if (interleaved) return rope_interleaved(x, heads, head_dim, half, cos, sin);
    for (int head = 0; head < heads; ++head, x += head_dim)
        for (int i = 0; i < half; i += 16) {
            const __mmask16 mask = __mmask16(half - i >= 16 ? 0xffff : (1u << (half - i)) - 1);
            const __m512 a = _mm512_maskz_loadu_ps(mask, x + i), b = _mm512_maskz_loadu_ps(mask, x + half + i);
            const __m512 c = _mm512_maskz_loadu_ps(mask, cos + i), s = _mm512_maskz_loadu_ps(mask, sin + i);
            _mm512_mask_storeu_ps(x + i, mask, _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s)));
            _mm512_mask_storeu_ps(x + half + i, mask, _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s)));
        }
}

// -- attention -----------------------------------------------------------------------------------------------------------------

// With few queries attention waits for memory, and where the next block lies only the table knows: a few lines of what comes next are fetched
// beside every product. All at once would stop the processor at the number of lines it can wait for.
constexpr int kFewVectors = 6;
constexpr int kFetchAhead = 64;  // positions between the keys in use and those fetched

struct Fetch {
    const uint8_t* parts[4];  // values and keys of up to two parts
    size_t steps[2];          // bytes to go forward in them beside every pair of dimensions
};

// Scores of V queries against P parts of 16 positions: with two parts a broadcast query serves two products.
template <int V, int P, bool fetching = false>
void score_parts(const uint16_t* const* keys, const uint32_t* queries, int pairs, float* scores, const Fetch& fetch) {
    __m512 total[P][V];
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p)
        OCTAVO_UNROLL
        for (int v = 0; v < V; ++v) total[p][v] = _mm512_setzero_ps();
    for (int pair = 0; pair < pairs; ++pair) {
        if constexpr (fetching)
            OCTAVO_UNROLL
            for (int i = 0; i < 2 * P; ++i) _mm_prefetch(reinterpret_cast<const char*>(fetch.parts[i] + size_t(pair) * fetch.steps[i % 2]), _MM_HINT_T0);
        __m512bh key[P];
        OCTAVO_UNROLL
        for (int p = 0; p < P; ++p) key[p] = __m512bh(_mm512_loadu_si512(keys[p] + pair * 32));
        OCTAVO_UNROLL
        for (int v = 0; v < V; ++v) {
            const __m512bh query = broadcast_pair(int32_t(queries[v * pairs + pair]));
            OCTAVO_UNROLL
            for (int p = 0; p < P; ++p) total[p][v] = _mm512_dpbf16_ps(total[p][v], key[p], query);
        }
    }
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p)
        OCTAVO_UNROLL
        for (int v = 0; v < V; ++v) _mm512_storeu_ps(scores + v * kSpan + p * kPart, total[p][v]);
}

template <int P>
void score_all(const uint16_t* const* keys, const uint32_t* queries, int pairs, int vectors, float* scores, const Fetch* fetch) {
    const Fetch none{};
    int v = 0;
    if (fetch && vectors >= 3) {
        score_parts<3, P, true>(keys, queries, pairs, scores, *fetch);
        v = 3;
    } else if (fetch) {
        score_parts<1, P, true>(keys, queries, pairs, scores, *fetch);
        v = 1;
    }
    for (; vectors - v >= 12; v += 12) score_parts<12, P>(keys, queries + v * pairs, pairs, scores + v * kSpan, none);
    for (; vectors - v >= 6; v += 6) score_parts<6, P>(keys, queries + v * pairs, pairs, scores + v * kSpan, none);
    for (; vectors - v >= 3; v += 3) score_parts<3, P>(keys, queries + v * pairs, pairs, scores + v * kSpan, none);
    for (; v < vectors; ++v) score_parts<1, P>(keys, queries + v * pairs, pairs, scores + v * kSpan, none);
}

// out[V][16 Z] of one slice of the head += weights (pairs of bf16) x values, over pairs first … last-1 of a span.
template <int V, int Z>
void mix(const uint16_t* const* values, int dim, int first, int last, bool odd_end, const uint32_t* weights, int slice, float* out) {
    __m512 total[V][Z];
    OCTAVO_UNROLL
    for (int v = 0; v < V; ++v)
        OCTAVO_UNROLL
        for (int z = 0; z < Z; ++z) total[v][z] = _mm512_loadu_ps(out + v * dim + slice + z * 16);
    for (int pair = first; pair < last; ++pair) {
        const uint16_t* at = values[pair / 8] + size_t(pair % 8) * size_t(dim) * 2 + slice * 2;
        __m512i value[Z];
        OCTAVO_UNROLL
        for (int z = 0; z < Z; ++z) value[z] = _mm512_loadu_si512(at + z * 32);
        if (odd_end && pair == last - 1)  // the second position is not written yet: whatever is there must not touch the sum
            OCTAVO_UNROLL
            for (int z = 0; z < Z; ++z) value[z] = _mm512_and_si512(value[z], _mm512_set1_epi32(0xffff));
        OCTAVO_UNROLL
        for (int v = 0; v < V; ++v) {
            const __m512bh weight = broadcast_pair(int32_t(weights[v * (kSpan / 2) + pair]));
            OCTAVO_UNROLL
            for (int z = 0; z < Z; ++z) total[v][z] = _mm512_dpbf16_ps(total[v][z], __m512bh(value[z]), weight);
        }
    }
    OCTAVO_UNROLL
    for (int v = 0; v < V; ++v)
        OCTAVO_UNROLL
        for (int z = 0; z < Z; ++z) _mm512_storeu_ps(out + v * dim + slice + z * 16, total[v][z]);
}

template <int V>
void mix_head(const uint16_t* const* values, int dim, int first, int last, bool odd_end, const uint32_t* weights, float* out) {
    int slice = 0;
    for (; dim - slice >= 64; slice += 64) mix<V, 4>(values, dim, first, last, odd_end, weights, slice, out);
    for (; slice < dim; slice += 16) mix<V, 1>(values, dim, first, last, odd_end, weights, slice, out);
}

// 2^x by 2^n * p(r), |r| <= 1/2. Below -150 the result is 0; NaN stays NaN (max takes its second operand where one is).
inline __m512 power_of_two(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-150.0f), x);
    const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(x, n);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(kPower4), r, _mm512_set1_ps(kPower3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kPower2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kPower1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kPower0));
    return _mm512_scalef_ps(p, n);
}

// Scale, cap and mask the scores of one part; only parts that a query does not see whole, or capped ones, need it.
inline void finish_part(const AttentionUnit& unit, int v, int position, float* at) {
    __m512 score = _mm512_loadu_ps(at);
    if (unit.softcap > 0.0f) {
        const __m512 capped = hyperbolic_tangent(_mm512_div_ps(_mm512_mul_ps(score, _mm512_set1_ps(unit.scale)), _mm512_set1_ps(unit.softcap)));
        score = _mm512_mul_ps(_mm512_set1_ps(unit.softcap), capped);
    }
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i positions = _mm512_add_epi32(lane, _mm512_set1_epi32(position));
    const __mmask16 seen = _mm512_cmp_epi32_mask(positions, _mm512_set1_epi32(unit.positions[v]), _MM_CMPINT_LE) &
                           _mm512_cmp_epi32_mask(positions, _mm512_set1_epi32(unit.first[v]), _MM_CMPINT_NLT);
    _mm512_storeu_ps(at, _mm512_mask_blend_ps(seen, _mm512_set1_ps(kMinusInfinity), score));
}

// What a span's scores do to the state of all queries of a unit, one in each lane.
struct Peaks {
    __m512 peak, shift, shrink;

    // Take the largest scores of a span into account.
    void raise(__m512 largest) {
        const __m512 before = peak;
        peak = _mm512_max_ps(largest, peak);  // the second where one is NaN
        const __mmask16 infinite = _mm512_fpclass_ps_mask(peak, 0x18);
        shift = _mm512_mask_blend_ps(infinite, peak, _mm512_setzero_ps());
        // An unchanged peak changes nothing, not even by the error of a power: whether a span is looked at may depend on other queries.
        shrink = _mm512_mask_blend_ps(_mm512_cmp_ps_mask(peak, before, _CMP_EQ_OQ), power_of_two(_mm512_sub_ps(before, shift)), _mm512_set1_ps(1.0f));
    }
};

inline float sum_of(__m256 x) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// The scores of a span become weights, pairs of bf16; what was summed up before is scaled to the new peaks. No branch depends on the data.
void weigh(const AttentionUnit& unit, int start, int first16, int last16, float* scores, uint32_t* weights, Peaks& peaks, float* totals, float* out) {
    const int vectors = unit.vectors, dim = unit.head_dim;
    const float factor = score_factor(unit);
    alignas(64) float largest[16] = {}, shifts[16], shrinks[16];
    for (int v = 0; v < vectors; ++v) {
        float* const own = scores + v * kSpan;
        for (int part = first16; part < last16; ++part) {
            const int position = start + part * kPart;
            if (unit.softcap > 0.0f || position < unit.first[v] || position + kPart - 1 > unit.positions[v])
                finish_part(unit, v, position, own + part * kPart);
        }
        __m512 most = _mm512_loadu_ps(own + first16 * kPart);
        for (int part = first16 + 1; part < last16; ++part) most = _mm512_max_ps(most, _mm512_loadu_ps(own + part * kPart));
        largest[v] = _mm512_reduce_max_ps(most) * factor;
    }
    peaks.raise(_mm512_load_ps(largest));
    _mm512_store_ps(shifts, peaks.shift);
    _mm512_store_ps(shrinks, peaks.shrink);
    const __m512 times = _mm512_set1_ps(factor);
    const __m256bh ones = __m256bh(_mm256_set1_epi16(0x3f80));
    for (int v = 0; v < vectors; ++v) {
        const __m512 shift = _mm512_set1_ps(shifts[v]), shrink = _mm512_set1_ps(shrinks[v]);
        __m256 sum = _mm256_setzero_ps();
        for (int part = first16; part < last16; ++part) {
            const __m512 score = _mm512_loadu_ps(scores + v * kSpan + part * kPart);
            const __m256bh rounded = _mm512_cvtneps_pbh(power_of_two(_mm512_fmsub_ps(score, times, shift)));
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights + v * (kSpan / 2) + part * 8), __m256i(rounded));
            sum = _mm256_dpbf16_ps(sum, rounded, ones);
        }
        totals[v] = totals[v] * shrinks[v] + sum_of(sum);
        for (int d = 0; d < dim; d += 16) _mm512_storeu_ps(out + v * dim + d, _mm512_mul_ps(_mm512_loadu_ps(out + v * dim + d), shrink));
    }
}

// How int8 parts become bf16; see attention.h.
struct Sixteens {
    using Floats = __m512;
    static constexpr int kLanes = 16;

    static Floats all(float x) { return _mm512_set1_ps(x); }

    static Floats scales(const uint8_t* at) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))), 16));
    }

    static void expand(const uint8_t* codes, __m512 first_scale, __m512 second_scale, uint16_t* out) {
        const __m512i interleave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18,
                                                    2, 17, 1, 16, 0);
        const __m512i both = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
        const __m512 first = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(both, 16), 16)), first_scale);
        const __m512 second = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(both, 16)), second_scale);
        _mm512_storeu_si512(out, _mm512_permutexvar_epi16(interleave, __m512i(_mm512_cvtne2ps_pbh(second, first))));
    }
};

void attention(const AttentionUnit& unit, float* scratch) {
    if (kept_as_floats(unit.format)) return attend_floats(unit, scratch);
    const int dim = unit.head_dim, pairs = dim / 2, vectors = unit.vectors;
    float* scores = scratch;                                                  // [kVectors][kSpan]
    float* out = scores + kVectors * kSpan;                                   // [kVectors][dim]
    uint32_t* weights = reinterpret_cast<uint32_t*>(out + kVectors * dim);    // [kVectors][kSpan / 2] pairs of bf16
    uint32_t* queries = weights + kVectors * (kSpan / 2);                     // [kVectors][pairs] pairs of bf16
    const Parts parts(unit, reinterpret_cast<uint16_t*>(queries + kVectors * pairs));
    alignas(64) float peak_of[16] = {}, totals[16];
    for (int v = 0; v < vectors; ++v) {
        to_bf16_row(unit.queries[v], dim, reinterpret_cast<uint16_t*>(queries + v * pairs));
        const SoftmaxState state = initial_state(unit, v);
        peak_of[v] = state.peak;
        totals[v] = state.total;
    }
    Peaks peaks{_mm512_load_ps(peak_of), {}, {}};
    std::fill(out, out + size_t(vectors) * size_t(dim), 0.0f);
    const auto [low, high] = seen_range(unit);
    for (int start = low / kSpan * kSpan; start <= high; start += kSpan) {
        const int first16 = std::max(0, (low - start) / kPart), last16 = std::min(kSpan / kPart, (high - start) / kPart + 1);
        const uint16_t *keys[2], *values[kSpan / kPart];
        for (int part = first16; part < last16; part += 2) {
            const int count = std::min(2, last16 - part), position = start + part * kPart;
            Fetch fetch{{}, {parts.value_bytes / size_t(pairs), parts.key_bytes / size_t(pairs)}};
            if (vectors <= kFewVectors)
                for (int p = 0; p < count; ++p) {
                    fetch.parts[2 * p] = parts.values_at(position + p * kPart);
                    fetch.parts[2 * p + 1] = parts.keys_at(std::min(position + kFetchAhead + p * kPart, high));
                }
            for (int p = 0; p < count; ++p) keys[p] = parts.keys(position + p * kPart, p, expand_keys<Sixteens>);
            const Fetch* few = vectors <= kFewVectors ? &fetch : nullptr;
            if (count == 2) score_all<2>(keys, queries, pairs, vectors, scores + part * kPart, few);
            else score_all<1>(keys, queries, pairs, vectors, scores + part * kPart, few);
        }
        weigh(unit, start, first16, last16, scores, weights, peaks, totals, out);
        for (int part = first16; part < last16; ++part) values[part] = parts.values(start + part * kPart, part, expand_values<Sixteens>);
        // All positions up to `high` are written, and finite where the sequence is sound; beyond it lies what others left.
        const int end = std::min(kSpan, high - start + 1);
        const int first_pair = first16 * 8, last_pair = (end + 1) / 2;
        const bool odd_end = end % 2 != 0;
        int v = 0;
        for (; vectors - v >= 6; v += 6) mix_head<6>(values, dim, first_pair, last_pair, odd_end, weights + v * (kSpan / 2), out + v * dim);
        for (; vectors - v >= 3; v += 3) mix_head<3>(values, dim, first_pair, last_pair, odd_end, weights + v * (kSpan / 2), out + v * dim);
        for (; v < vectors; ++v) mix_head<1>(values, dim, first_pair, last_pair, odd_end, weights + v * (kSpan / 2), out + v * dim);
    }
    _mm512_store_ps(peak_of, peaks.peak);
    for (int v = 0; v < vectors; ++v) {
        if (unit.partial) {
            keep_partial(unit, v, {peak_of[v], totals[v]}, out + v * dim);
            continue;
        }
        for (int d = 0; d < dim; d += 16)
            _mm512_storeu_ps(unit.outputs[v] + d, _mm512_div_ps(_mm512_loadu_ps(out + v * dim + d), _mm512_set1_ps(totals[v])));
    }
}

void argmax(const float* values, int count, int base, Best& best) {
    int i = 0;
    for (; i + 16 <= count; i += 16) {
        const __m512 x = _mm512_loadu_ps(values + i);
        if (_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q)) best.nan = true;
        const __mmask16 better = _mm512_cmp_ps_mask(x, _mm512_set1_ps(best.value), _CMP_GT_OQ);
        if (better) generic_kernels()->argmax(values + i, 16, base + i, best);
    }
    if (i < count) generic_kernels()->argmax(values + i, count - i, base + i, best);
}

constexpr Kernels kTable = {"avx512", matmul, matmul_float, quantise, to_bf16_row, rms_norm, gated, rope, attention, argmax, logit_maxima, weigh_logits, mask_logits, kv_codes};

}  // namespace

const Kernels* avx512_kernels() { return &kTable; }

}  // namespace octavo

#else

namespace octavo {
const Kernels* avx512_kernels() { return nullptr; }
}  // namespace octavo

#endif
