// AVX2 with FMA and F16C (Haswell, Zen and later). kernels_avx_vnni.cpp compiles this file a second time, for processors with AVX-VNNI.
#include "attention.h"
#include "kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kv_codes.h"
#include "numbers.h"
#include "weigh.h"

namespace octavo {

namespace {

#if defined(__AVXVNNI__)
constexpr bool kVnni = true;
#else
constexpr bool kVnni = false;
#endif

// Rows of one register block: of 16 registers 8 are dot products (a tile is two registers wide), 4 codes, 2 activations.
constexpr int kRows = 4;
// Bytes ahead of the codes in use: about what a core takes in while memory answers.
constexpr int kAhead = 3072;

inline void prefetch(const uint8_t* at, size_t bytes) {
    for (size_t offset = 0; offset < bytes; offset += 64) _mm_prefetch(reinterpret_cast<const char*>(at + offset), _MM_HINT_T0);
}

inline __m256i load(const void* at) { return _mm256_loadu_si256(static_cast<const __m256i*>(at)); }

inline __m128i load_half(const void* at) { return _mm_loadu_si128(static_cast<const __m128i*>(at)); }

inline __m256 halves(const uint8_t* at) { return _mm256_cvtph_ps(load_half(at)); }

// Eight bytes as floats.
inline __m256 unsigned_bytes(const uint8_t* at) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))));
}

inline __m256 signed_bytes(const uint8_t* at) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))));
}

inline __m256i broadcast_codes(const int8_t* at) {
    int32_t four;
    std::memcpy(&four, at, 4);
    return _mm256_set1_epi32(four);
}

// Lanes 0 … left-1.
inline __m256i first_lanes(int left) {
    static const int32_t lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return load(lanes + 8 - std::min(left, 8));
}

inline float largest_of(__m256 x) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

inline float sum_of(__m256 x) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

inline int32_t sum_of(__m256i x) {
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

// -- quantized matrices --------------------------------------------------------------------------------------------------------

// Without VNNI four products meet in two steps: VPMADDUBSW adds pairs in 16 bits, VPMADDWD adds pairs of those in 32. Activations are
// -127 … 127, so a pair of products with codes up to c is at most 254 c, and 16 bits hold
//   c =  15   3,810 a pair: all 8 planes of a group, 30,480
//   c =  31   7,874 a pair: 4 planes, 31,496
//   c =  63  16,002 a pair: 2 planes, 32,004
//   c = 255  64,770 a pair: none. Those codes are taken as code - 128, and the activations take on their sign: at most 2 x 128 x 127 =
//            32,512 a pair, one plane at a time.
template <Packing packing>
constexpr int kPlanesIn16Bits = packing == Packing::U8Super ? 4 : packing == Packing::U8Super16 ? 2 : 1;

inline __m256i widen(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

// Adds the products of planes first … last-1 of a group's codes to the dot products of M rows; outputs 0 … 7 and 8 … 15 apart.
// Nibbles come all at once: a register of them holds planes p and p + 4. Without VNNI, codes up to 255 leave out 128 times the activations.
template <Packing packing, int M>
inline void add_planes(const uint8_t* codes, const int8_t* const (&a)[M], int first, int last, __m256i (&dot)[M][2]) {
    if constexpr (nibbles(packing)) {
        const __m256i low = _mm256_set1_epi8(15);
        __m256i pairs[M][2];
        for (int m = 0; m < M; ++m) pairs[m][0] = pairs[m][1] = _mm256_setzero_si256();
        for (int p = 0; p < 4; ++p) {
            const __m256i left = load(codes + 64 * p), right = load(codes + 64 * p + 32);
            const __m256i left_low = _mm256_and_si256(left, low), left_high = _mm256_and_si256(_mm256_srli_epi16(left, 4), low);
            const __m256i right_low = _mm256_and_si256(right, low), right_high = _mm256_and_si256(_mm256_srli_epi16(right, 4), low);
            for (int m = 0; m < M; ++m) {
                const __m256i a_low = broadcast_codes(a[m] + 4 * p), a_high = broadcast_codes(a[m] + 4 * p + 16);
#if defined(__AVXVNNI__)
                dot[m][0] = _mm256_dpbusd_avx_epi32(dot[m][0], left_low, a_low);
                dot[m][1] = _mm256_dpbusd_avx_epi32(dot[m][1], right_low, a_low);
                dot[m][0] = _mm256_dpbusd_avx_epi32(dot[m][0], left_high, a_high);
                dot[m][1] = _mm256_dpbusd_avx_epi32(dot[m][1], right_high, a_high);
#else
                pairs[m][0] = _mm256_add_epi16(pairs[m][0], _mm256_maddubs_epi16(left_low, a_low));
                pairs[m][1] = _mm256_add_epi16(pairs[m][1], _mm256_maddubs_epi16(right_low, a_low));
                pairs[m][0] = _mm256_add_epi16(pairs[m][0], _mm256_maddubs_epi16(left_high, a_high));
                pairs[m][1] = _mm256_add_epi16(pairs[m][1], _mm256_maddubs_epi16(right_high, a_high));
#endif
            }
        }
        if constexpr (!kVnni)
            for (int m = 0; m < M; ++m)
                for (int h = 0; h < 2; ++h) dot[m][h] = _mm256_add_epi32(dot[m][h], widen(pairs[m][h]));
    } else {
#if defined(__AVXVNNI__)
        for (int p = first; p < last; ++p) {
            const __m256i left = load(codes + 64 * p), right = load(codes + 64 * p + 32);
            for (int m = 0; m < M; ++m) {
                const __m256i own = broadcast_codes(a[m] + 4 * p);
                dot[m][0] = _mm256_dpbusd_avx_epi32(dot[m][0], left, own);
                dot[m][1] = _mm256_dpbusd_avx_epi32(dot[m][1], right, own);
            }
        }
#else
        constexpr int run = kPlanesIn16Bits<packing>;
        for (int start = first; start < last; start += run) {
            __m256i pairs[M][2];
            for (int m = 0; m < M; ++m) pairs[m][0] = pairs[m][1] = _mm256_setzero_si256();
            for (int p = start; p < start + run; ++p) {
                __m256i left = load(codes + 64 * p), right = load(codes + 64 * p + 32);
                if constexpr (packing == Packing::U8Half || packing == Packing::U8Centred) {
                    left = _mm256_xor_si256(left, _mm256_set1_epi8(-128));
                    right = _mm256_xor_si256(right, _mm256_set1_epi8(-128));
                    const __m256i left_size = _mm256_abs_epi8(left), right_size = _mm256_abs_epi8(right);
                    for (int m = 0; m < M; ++m) {
                        const __m256i own = broadcast_codes(a[m] + 4 * p);
                        pairs[m][0] = _mm256_maddubs_epi16(left_size, _mm256_sign_epi8(own, left));
                        pairs[m][1] = _mm256_maddubs_epi16(right_size, _mm256_sign_epi8(own, right));
                    }
                } else {
                    for (int m = 0; m < M; ++m) {
                        const __m256i own = broadcast_codes(a[m] + 4 * p);
                        pairs[m][0] = _mm256_add_epi16(pairs[m][0], _mm256_maddubs_epi16(left, own));
                        pairs[m][1] = _mm256_add_epi16(pairs[m][1], _mm256_maddubs_epi16(right, own));
                    }
                }
            }
            for (int m = 0; m < M; ++m)
                for (int h = 0; h < 2; ++h) dot[m][h] = _mm256_add_epi32(dot[m][h], widen(pairs[m][h]));
        }
#endif
    }
}

// The rows' finer codes of a group.
template <int M>
inline void low_codes(const BlockRows& x, const int8_t* (&low)[M]) {
    for (int m = 0; m < M; ++m) low[m] = x.low(m);
}

// 256 times the products of codes, and those of the finer ones.
template <int M>
inline void join_low(__m256i (&dot)[M][2], const __m256i (&low)[M][2]) {
    for (int m = 0; m < M; ++m)
        for (int h = 0; h < 2; ++h) dot[m][h] = _mm256_add_epi32(_mm256_slli_epi32(dot[m][h], 8), low[m][h]);
}

template <int M>
inline void set(__m256i (&dot)[M][2], int m, int32_t value) { dot[m][0] = dot[m][1] = _mm256_set1_epi32(value); }

// total += dot * (scale * own), for both halves of a tile.
inline void add_scaled(__m256 (&total)[2], const __m256i (&dot)[2], const __m256 (&scale)[2], float own) {
    for (int h = 0; h < 2; ++h)
        total[h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[h]), _mm256_mul_ps(scale[h], _mm256_set1_ps(own)), total[h]);
}

// M rows by one tile: each group's codes are unpacked once for all rows.
template <Packing packing, int M>
void tile_rows(const uint8_t* tile, int groups, const Activations& x, int row, float* y, int ld) {
    constexpr bool super = packing != Packing::U4Half && packing != Packing::U8Half;
    constexpr size_t bytes = nibbles(packing) ? 256 : 512;
    constexpr size_t step = super ? bytes : bytes + 64;
    BlockRows own(x, row);
    __m256 total[M][2];
    for (int m = 0; m < M; ++m) total[m][0] = total[m][1] = _mm256_setzero_ps();
    const uint8_t* codes = tile;
    const uint8_t* header = tile;
    for (int g = 0; g < groups; ++g, codes += step, own.next()) {
        if constexpr (super) {
            if (g % 8 == 0) {
                header = codes;
                prefetch(header + kAhead, 320);
                codes = header + 320;
            }
        }
        prefetch(codes + kAhead, step);
        __m256i dot[M][2], low_dot[M][2];
        const bool refined = own.any_refined(M);
        const float unit = refined ? kLowUnit : 1.0f;
        const int8_t *a[M], *low[M];
        for (int m = 0; m < M; ++m) a[m] = own.codes(m);
        if (refined) low_codes(own, low);
        if constexpr (packing == Packing::U8Super16) {
            for (int half = 0; half < 2; ++half) {
                const uint8_t* sub = header + 64 + (g % 8) * 32 + half * 16;
                const __m256 scale[2] = {_mm256_mul_ps(halves(header), signed_bytes(sub)), _mm256_mul_ps(halves(header + 16), signed_bytes(sub + 8))};
                for (int m = 0; m < M; ++m) set(dot, m, -32 * own[m].half_sums[half]);
                add_planes<packing>(codes, a, half * 4, half * 4 + 4, dot);
                if (refined) {
                    for (int m = 0; m < M; ++m) set(low_dot, m, -32 * own[m].low_half_sums[half]);
                    add_planes<packing>(codes, low, half * 4, half * 4 + 4, low_dot);
                    join_low(dot, low_dot);
                }
                for (int m = 0; m < M; ++m) add_scaled(total[m], dot[m], scale, own[m].scale * unit);
            }
        } else {
            for (int m = 0; m < M; ++m)
                set(dot, m, packing == Packing::U8Half && !kVnni ? 128 * (own[m].half_sums[0] + own[m].half_sums[1]) : 0);
            add_planes<packing>(codes, a, 0, 8, dot);
            if (refined) {
                for (int m = 0; m < M; ++m)
                    set(low_dot, m, packing == Packing::U8Half && !kVnni ? 128 * (own[m].low_half_sums[0] + own[m].low_half_sums[1]) : 0);
                add_planes<packing>(codes, low, 0, 8, low_dot);
                join_low(dot, low_dot);
            }
            __m256 scale[2], minimum[2];
            for (int h = 0; h < 2; ++h) {
                if constexpr (super) {
                    const uint8_t* sub = header + 64 + (g % 8) * 32 + h * 8;
                    scale[h] = _mm256_mul_ps(halves(header + 16 * h), unsigned_bytes(sub));
                    minimum[h] = _mm256_sub_ps(_mm256_setzero_ps(), _mm256_mul_ps(halves(header + 32 + 16 * h), unsigned_bytes(sub + 16)));
                } else {
                    scale[h] = halves(codes + bytes + 16 * h);
                    minimum[h] = halves(codes + bytes + 32 + 16 * h);
                }
            }
            for (int m = 0; m < M; ++m) {
                add_scaled(total[m], dot[m], scale, own[m].scale * unit);
                const __m256 sum = _mm256_set1_ps(own[m].sum);
                for (int h = 0; h < 2; ++h) total[m][h] = _mm256_fmadd_ps(minimum[h], sum, total[m][h]);
            }
        }
    }
    for (int m = 0; m < M; ++m)
        for (int h = 0; h < 2; ++h) _mm256_storeu_ps(y + size_t(row + m) * size_t(ld) + h * 8, total[m][h]);
}

// zero * taken_away, for numbers of 16 bits in 32.
inline __m256i small_product(__m256i zero, int32_t taken_away) { return _mm256_madd_epi16(zero, _mm256_set1_epi32(taken_away)); }

// The same where scales are for spans of groups. A dot product begins with what the zero points take away.
template <Packing packing, int M>
void tile_rows_by_spans(const Matrix& matrix, const uint8_t* tile, const Activations& x, int row, float* y, int ld) {
    constexpr size_t bytes = nibbles(packing) ? 256 : 512;
    const Spans parts = spans_of(matrix, tile);
    BlockRows own(x, row);
    __m256 total[M][2];
    for (int m = 0; m < M; ++m) total[m][0] = total[m][1] = _mm256_setzero_ps();
    const uint8_t* codes = parts.codes;
    const int groups = matrix.inputs / kGroup;
    for (int start = 0, s = 0; start < groups; start += matrix.span, ++s) {
        __m256 scale[2];
        for (int h = 0; h < 2; ++h)
            scale[h] = matrix.half_scales ? halves(parts.scales + s * 32 + h * 16) : _mm256_loadu_ps(reinterpret_cast<const float*>(parts.scales) + s * 16 + h * 8);
        for (int g = start; g < start + matrix.span; ++g, codes += bytes, own.next()) {
            prefetch(codes + kAhead, bytes);
            __m256i dot[M][2], low_dot[M][2];
            const auto begin = [&](__m256i (&dots)[M][2], int m, const int16_t* half_sums) {
                const int32_t sum = half_sums[0] + half_sums[1];
                if constexpr (packing == Packing::U4Zero)
                    for (int h = 0; h < 2; ++h)
                        dots[m][h] = small_product(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(parts.zeros + s * 16 + h * 8))), -sum);
                else set(dots, m, packing == Packing::U4Centred ? -8 * sum : kVnni ? -128 * sum : 0);
            };
            const int8_t* a[M];
            for (int m = 0; m < M; ++m) {
                a[m] = own.codes(m);
                begin(dot, m, own[m].half_sums);
            }
            add_planes<packing>(codes, a, 0, 8, dot);
            const bool refined = own.any_refined(M);
            const float unit = refined ? kLowUnit : 1.0f;
            if (refined) {
                const int8_t* low[M];
                low_codes(own, low);
                for (int m = 0; m < M; ++m) begin(low_dot, m, own[m].low_half_sums);
                add_planes<packing>(codes, low, 0, 8, low_dot);
                join_low(dot, low_dot);
            }
            for (int m = 0; m < M; ++m) {
                const float own_scale = own[m].scale * unit;
                if constexpr (packing == Packing::U8Centred)
                    for (int h = 0; h < 2; ++h) total[m][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[m][h]), _mm256_set1_ps(own_scale), total[m][h]);
                else add_scaled(total[m], dot[m], scale, own_scale);
            }
        }
        if constexpr (packing == Packing::U8Centred)
            for (int m = 0; m < M; ++m)
                for (int h = 0; h < 2; ++h) total[m][h] = _mm256_mul_ps(total[m][h], scale[h]);
    }
    for (int m = 0; m < M; ++m)
        for (int h = 0; h < 2; ++h) _mm256_storeu_ps(y + size_t(row + m) * size_t(ld) + h * 8, total[m][h]);
}

// -- bf16 matrices -------------------------------------------------------------------------------------------------------------

// A register of pairs of bf16: the first of each pair as floats, and the second.
inline __m256 first_of(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
inline __m256 second_of(__m256i pairs) { return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(int32_t(0xffff0000)))); }

template <int M>
void bf16_rows(const uint8_t* tile, int inputs, const Activations& x, int row, float* y, int ld) {
    const uint16_t* of[M];
    for (int m = 0; m < M; ++m) of[m] = x.bf16 + size_t(row + m) * size_t(x.k);
    __m256 total[M][2];
    for (int m = 0; m < M; ++m) total[m][0] = total[m][1] = _mm256_setzero_ps();
    int pair = 0;
    for (; pair < inputs / 2; ++pair) {
        const uint8_t* weights = tile + size_t(pair) * 64;
        prefetch(weights + kAhead, 64);
        const __m256i left = load(weights), right = load(weights + 32);
        for (int m = 0; m < M; ++m) {
            int32_t two;
            std::memcpy(&two, of[m] + pair * 2, 4);
            const __m256i own = _mm256_set1_epi32(two);
            total[m][0] = _mm256_fmadd_ps(first_of(left), first_of(own), total[m][0]);
            total[m][1] = _mm256_fmadd_ps(first_of(right), first_of(own), total[m][1]);
            total[m][0] = _mm256_fmadd_ps(second_of(left), second_of(own), total[m][0]);
            total[m][1] = _mm256_fmadd_ps(second_of(right), second_of(own), total[m][1]);
        }
    }
    if (inputs % 2 != 0) {  // what lies beside the last input is anybody's
        const __m256i left = load(tile + size_t(pair) * 64), right = load(tile + size_t(pair) * 64 + 32);
        for (int m = 0; m < M; ++m) {
            const __m256 own = _mm256_set1_ps(from_bf16(of[m][inputs - 1]));
            total[m][0] = _mm256_fmadd_ps(first_of(left), own, total[m][0]);
            total[m][1] = _mm256_fmadd_ps(first_of(right), own, total[m][1]);
        }
    }
    for (int m = 0; m < M; ++m)
        for (int h = 0; h < 2; ++h) _mm256_storeu_ps(y + size_t(row + m) * size_t(ld) + h * 8, total[m][h]);
}

// -- any number of rows from blocks of a few fixed sizes -----------------------------------------------------------------------

template <Packing packing, int M>
void block(const Matrix& matrix, const uint8_t* tile, const Activations& x, int row, float* y, int ld) {
    if constexpr (packing == Packing::Bf16) bf16_rows<M>(tile, matrix.inputs, x, row, y, ld);
    else if constexpr (spans(packing)) tile_rows_by_spans<packing, M>(matrix, tile, x, row, y, ld);
    else tile_rows<packing, M>(tile, matrix.inputs / kGroup, x, row, y, ld);
}

template <Packing packing>
void matmul_as(const Matrix& matrix, int first, int last, const Activations& x, int rows, float* y, int ld) {
    for (int t = first; t < last; ++t) {
        const uint8_t* tile = matrix.data + size_t(t) * matrix.tile_bytes;
        float* out = y + size_t(t) * kTile;
        int row = 0;
        for (; rows - row >= kRows; row += kRows) block<packing, kRows>(matrix, tile, x, row, out, ld);
        switch (rows - row) {
            case 1: block<packing, 1>(matrix, tile, x, row, out, ld); break;
            case 2: block<packing, 2>(matrix, tile, x, row, out, ld); break;
            case 3: block<packing, 3>(matrix, tile, x, row, out, ld); break;
            default: break;
        }
    }
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
    __m256 total[M][2];
    for (int m = 0; m < M; ++m) total[m][0] = total[m][1] = _mm256_setzero_ps();
    for (int k = 0; k < inputs; ++k) {
        const uint8_t* at = tile + size_t(k) * (half ? 32 : 64);
        const __m256 left = half ? halves(at) : _mm256_loadu_ps(reinterpret_cast<const float*>(at));
        const __m256 right = half ? halves(at + 16) : _mm256_loadu_ps(reinterpret_cast<const float*>(at + 32));
        for (int m = 0; m < M; ++m) {
            const __m256 own = _mm256_set1_ps(x[size_t(m) * size_t(x_ld) + size_t(k)]);
            total[m][0] = _mm256_fmadd_ps(left, own, total[m][0]);
            total[m][1] = _mm256_fmadd_ps(right, own, total[m][1]);
        }
    }
    for (int m = 0; m < M; ++m)
        for (int h = 0; h < 2; ++h) _mm256_storeu_ps(y + size_t(m) * size_t(ld) + h * 8, total[m][h]);
}

template <bool half>
void float_tile(const Matrix& matrix, const uint8_t* tile, const float* x, int x_ld, int rows, float* y, int ld) {
    const auto at = [&](int row) { return x + size_t(row) * size_t(x_ld); };
    const auto to = [&](int row) { return y + size_t(row) * size_t(ld); };
    int row = 0;
    for (; rows - row >= kRows; row += kRows) float_rows<half, kRows>(tile, matrix.inputs, at(row), x_ld, to(row), ld);
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
    const __m256 unsigned_mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256 infinity = _mm256_set1_ps(std::numeric_limits<float>::infinity());
    BlockRows own(x, row);
    for (int g = 0; g < k / 32; ++g, own.next()) {
        __m256 value[4], size[4], finite_lanes = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
        for (int i = 0; i < 4; ++i) {
            value[i] = _mm256_loadu_ps(values + g * 32 + i * 8);
            size[i] = _mm256_and_ps(value[i], unsigned_mask);
            finite_lanes = _mm256_and_ps(finite_lanes, _mm256_cmp_ps(size[i], infinity, _CMP_LT_OQ));
        }
        const float largest = largest_of(_mm256_max_ps(_mm256_max_ps(size[0], size[1]), _mm256_max_ps(size[2], size[3])));
        const bool finite = _mm256_movemask_ps(finite_lanes) == 0xff;
        const bool counts = finite && largest >= kQuantiseFloor;
        const __m256 inverse = _mm256_set1_ps(counts ? 127.0f / largest : 0.0f);
        const __m256i kept = _mm256_set1_epi32(counts ? -1 : 0);
        __m256i code[4];
        for (int i = 0; i < 4; ++i) code[i] = _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(value[i], inverse)), kept);
        // Packing works within halves of a register: the 32-bit words come out as 0 2 4 6 1 3 5 7 of these.
        const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(code[0], code[1]), _mm256_packs_epi32(code[2], code[3]));
        const __m256i in_order = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(own.codes(0)), in_order);
        const int32_t sum_a = sum_of(_mm256_add_epi32(code[0], code[1])), sum_b = sum_of(_mm256_add_epi32(code[2], code[3]));
        own[0].scale = !finite ? std::numeric_limits<float>::quiet_NaN() : counts ? largest / 127.0f : 0.0f;
        own[0].sum = own[0].scale * float(sum_a + sum_b);
        own[0].half_sums[0] = int16_t(sum_a);
        own[0].half_sums[1] = int16_t(sum_b);
        own.refined(0, false);
    }
}

// Eight floats to the nearest bf16, ties to even, in the high halves of the lanes; NaN stays NaN.
inline __m256i rounded_to_bf16(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_and_si256(_mm256_blendv_epi8(up, quiet, nan), _mm256_set1_epi32(int32_t(0xffff0000)));
}

void to_bf16_row(const float* values, int k, uint16_t* out) {
    int i = 0;
    for (; i + 16 <= k; i += 16) {
        const __m256i a = _mm256_srli_epi32(rounded_to_bf16(_mm256_loadu_ps(values + i)), 16);
        const __m256i b = _mm256_srli_epi32(rounded_to_bf16(_mm256_loadu_ps(values + i + 8)), 16);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8));
    }
    for (; i < k; ++i) out[i] = to_bf16(values[i]);
}

void rms_norm(const float* x, const float* residual, float* sum, const float* weight, int size, int width, float eps, float* y) {
    for (int start = 0; start < size; start += width) {
        __m256 squares = _mm256_setzero_ps();
        for (int i = 0; i < width; i += 8) {
            const __m256i mask = first_lanes(width - i);
            __m256 value = _mm256_maskload_ps(x + start + i, mask);
            if (residual) value = _mm256_add_ps(value, _mm256_maskload_ps(residual + start + i, mask));
            if (sum) _mm256_maskstore_ps(sum + start + i, mask, value);
            squares = _mm256_fmadd_ps(value, value, squares);
        }
        const __m256 factor = _mm256_set1_ps(1.0f / std::sqrt(sum_of(squares) / float(width) + eps));
        const float* from = sum ? sum : x;
        for (int i = 0; i < width; i += 8) {
            const __m256i mask = first_lanes(width - i);
            const __m256 scaled = _mm256_mul_ps(_mm256_maskload_ps(from + start + i, mask), factor);
            _mm256_maskstore_ps(y + start + i, mask, _mm256_mul_ps(scaled, _mm256_maskload_ps(weight + i, mask)));
        }
    }
}

// e^x by 2^n * p(r), |r| <= ln 2 / 2; p is the Taylor polynomial of degree 7, whose error there is below half an ulp. For x up to 88;
// below -104 the result is 0, and NaN stays NaN. 2^n is multiplied in two halves, each of which is a float where 2^n is not.
inline __m256 exponential(__m256 x) {
    const __m256 clamped = _mm256_max_ps(_mm256_set1_ps(-104.0f), x);  // max takes its second operand where one is NaN
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(clamped, _mm256_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145752f), clamped);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860677e-6f), r);
    __m256 p = _mm256_set1_ps(1.0f / 5040.0f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), bias = _mm256_set1_epi32(127);
    const __m256i rest = _mm256_sub_epi32(whole, half);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}

inline __m256 hyperbolic_tangent(__m256 x) {  // 1 - 2 / (e^2x + 1); clamped where it is 1 in float anyway
    const __m256 clamped = _mm256_max_ps(_mm256_set1_ps(-20.0f), _mm256_min_ps(_mm256_set1_ps(20.0f), x));
    const __m256 e = exponential(_mm256_add_ps(clamped, clamped));
    return _mm256_sub_ps(_mm256_set1_ps(1.0f), _mm256_div_ps(_mm256_set1_ps(2.0f), _mm256_add_ps(e, _mm256_set1_ps(1.0f))));
}

// x / (1 + e^-z) from e^-|z|, which cannot overflow.
inline __m256 times_logistic(__m256 x, __m256 z) {
    const __m256 e = exponential(_mm256_or_ps(z, _mm256_set1_ps(-0.0f)));
    const __m256 negative = _mm256_cmp_ps(z, _mm256_setzero_ps(), _CMP_LT_OQ);
    return _mm256_div_ps(_mm256_blendv_ps(x, _mm256_mul_ps(x, e), negative), _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

inline __m256 silu(__m256 x) { return times_logistic(x, x); }

inline __m256 gelu_tanh(__m256 x) {
    const __m256 cube = _mm256_mul_ps(_mm256_mul_ps(x, x), x);
    return times_logistic(x, _mm256_mul_ps(_mm256_set1_ps(1.5957691216f), _mm256_fmadd_ps(_mm256_set1_ps(0.044715f), cube, x)));
}

// x / 2 erfc(-x / sqrt 2)
inline __m256 gelu(__m256 x) {
    const __m256 one = _mm256_set1_ps(1.0f), size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
    const __m256 t = _mm256_div_ps(one, _mm256_fmadd_ps(size, _mm256_set1_ps(0.35355339f), one));
    __m256 p = _mm256_set1_ps(kComplement[9]);
    for (int i = 8; i >= 0; --i) p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(kComplement[i]));
    const __m256 fall = _mm256_fnmadd_ps(_mm256_mul_ps(x, _mm256_set1_ps(0.5f)), x, p);
    const __m256 beyond = _mm256_mul_ps(_mm256_mul_ps(t, _mm256_set1_ps(0.5f)), exponential(fall));
    const __m256 negative = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ);
    return _mm256_mul_ps(x, _mm256_blendv_ps(_mm256_sub_ps(one, beyond), beyond, negative));
}

inline __m256 relu(__m256 x) { return _mm256_and_ps(x, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_NLE_UQ)); }  // NaN stays NaN

void gated(const float* a, const float* b, int size, Gate kind, float* out) {
    for (int i = 0; i < size; i += 8) {
        const __m256i mask = first_lanes(size - i);
        const __m256 x = _mm256_maskload_ps(a + i, mask);
        const __m256 y = kind == Gate::Silu ? silu(x) : kind == Gate::GeluTanh ? gelu_tanh(x) : kind == Gate::Gelu ? gelu(x) : relu(x);
        _mm256_maskstore_ps(out + i, mask, _mm256_mul_ps(y, _mm256_maskload_ps(b + i, mask)));
    }
}

void rope_interleaved(float* x, int heads, int head_dim, int half, const float* cos, const float* sin) {
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    for (int head = 0; head < heads; ++head, x += head_dim)
        for (int i = 0; i < half; i += 4) {
            const __m256i mask = first_lanes(half - i), pairs = first_lanes(2 * (half - i));
            const __m256 c = _mm256_permutevar8x32_ps(_mm256_maskload_ps(cos + i, mask), twice);
            const __m256 s = _mm256_permutevar8x32_ps(_mm256_maskload_ps(sin + i, mask), twice);
            const __m256 ab = _mm256_maskload_ps(x + 2 * i, pairs), ba = _mm256_permute_ps(ab, 0xb1);
            _mm256_maskstore_ps(x + 2 * i, pairs, _mm256_fmaddsub_ps(ab, c, _mm256_mul_ps(ba, s)));
        }
}

void rope(float* x, int heads, int head_dim, int turned, bool interleaved, const float* cos, const float* sin) {
    const int half = turned / 2;
    if (interleaved) return rope_interleaved(x, heads, head_dim, half, cos, sin);
    for (int head = 0; head < heads; ++head, x += head_dim)
        for (int i = 0; i < half; i += 8) {
            const __m256i mask = first_lanes(half - i);
            const __m256 a = _mm256_maskload_ps(x + i, mask), b = _mm256_maskload_ps(x + half + i, mask);
            const __m256 c = _mm256_maskload_ps(cos + i, mask), s = _mm256_maskload_ps(sin + i, mask);
            _mm256_maskstore_ps(x + i, mask, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
            _mm256_maskstore_ps(x + half + i, mask, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
        }
}

// -- attention -----------------------------------------------------------------------------------------------------------------

// The parts of attention that are this set's own; see attention.h.
struct Eights {
    using Floats = __m256;
    static constexpr int kLanes = 8;

    static Floats all(float x) { return _mm256_set1_ps(x); }

    static Floats scales(const uint8_t* at) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))), 16));
    }

    // Scores of V queries against 16 positions.
    template <int V>
    static void scores16(const uint16_t* keys, const float* queries, int dim, float* scores) {
        __m256 total[V][2];
        for (int v = 0; v < V; ++v) total[v][0] = total[v][1] = _mm256_setzero_ps();
        for (int d = 0; d < dim; d += 2) {
            const __m256i left = load(keys + d * 16), right = load(keys + d * 16 + 16);
            for (int v = 0; v < V; ++v) {
                const __m256 first = _mm256_set1_ps(queries[v * dim + d]), second = _mm256_set1_ps(queries[v * dim + d + 1]);
                total[v][0] = _mm256_fmadd_ps(first_of(left), first, total[v][0]);
                total[v][1] = _mm256_fmadd_ps(first_of(right), first, total[v][1]);
                total[v][0] = _mm256_fmadd_ps(second_of(left), second, total[v][0]);
                total[v][1] = _mm256_fmadd_ps(second_of(right), second, total[v][1]);
            }
        }
        for (int v = 0; v < V; ++v)
            for (int h = 0; h < 2; ++h) _mm256_storeu_ps(scores + v * kSpan + h * 8, total[v][h]);
    }

    // out[V][16] of one slice of the head += weights x values, for positions first … end-1 of the span; first is even. Where the number of
    // positions is odd, the one beside the last is not written yet: whatever is there must not touch the sum.
    template <int V>
    static void mix(const uint16_t* const* parts, int dim, int first, int end, const float* weights, int slice, float* out) {
        __m256 total[V][2];
        for (int v = 0; v < V; ++v)
            for (int h = 0; h < 2; ++h) total[v][h] = _mm256_loadu_ps(out + v * dim + slice + h * 8);
        for (int i = first; i < end; i += 2) {
            const uint16_t* values = parts[i / kPart] + size_t(i % kPart) * size_t(dim) + slice * 2;
            const __m256i left = load(values), right = load(values + 16);
            for (int v = 0; v < V; ++v) {
                const __m256 weight = _mm256_set1_ps(weights[v * kSpan + i]);
                total[v][0] = _mm256_fmadd_ps(first_of(left), weight, total[v][0]);
                total[v][1] = _mm256_fmadd_ps(first_of(right), weight, total[v][1]);
            }
            if (i + 1 == end) break;
            for (int v = 0; v < V; ++v) {
                const __m256 weight = _mm256_set1_ps(weights[v * kSpan + i + 1]);
                total[v][0] = _mm256_fmadd_ps(second_of(left), weight, total[v][0]);
                total[v][1] = _mm256_fmadd_ps(second_of(right), weight, total[v][1]);
            }
        }
        for (int v = 0; v < V; ++v)
            for (int h = 0; h < 2; ++h) _mm256_storeu_ps(out + v * dim + slice + h * 8, total[v][h]);
    }

    // A span's scores of one query, capped and masked; returns the largest.
    static float finish_scores(const AttentionUnit& unit, int v, int start, int first, int end, float* scores) {
        const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        const __m256 minus_infinity = _mm256_set1_ps(kMinusInfinity);
        __m256 largest = minus_infinity;
        for (int i = first; i < end; i += 8) {
            __m256 score = _mm256_loadu_ps(scores + i);
            if (unit.softcap > 0.0f) {
                const __m256 scaled = _mm256_mul_ps(score, _mm256_set1_ps(unit.scale));
                score = _mm256_mul_ps(_mm256_set1_ps(unit.softcap), hyperbolic_tangent(_mm256_div_ps(scaled, _mm256_set1_ps(unit.softcap))));
            }
            const __m256i position = _mm256_add_epi32(lane, _mm256_set1_epi32(start + i));
            const __m256i hidden = _mm256_or_si256(_mm256_cmpgt_epi32(position, _mm256_set1_epi32(unit.positions[v])),
                                                   _mm256_cmpgt_epi32(_mm256_set1_epi32(unit.first[v]), position));
            score = _mm256_blendv_ps(score, minus_infinity, _mm256_castsi256_ps(hidden));
            _mm256_storeu_ps(scores + i, score);
            largest = _mm256_max_ps(largest, score);
        }
        return largest_of(largest);
    }

    // 2^x, x <= 0, by 2^n * p(r), |r| <= 1/2. Below -126 it falls to 0, which its rounding to bf16 does elsewhere; NaN stays NaN (max takes its
    // second operand where one is).
    static __m256 power_of_two(__m256 x) {
        const __m256 clamped = _mm256_max_ps(_mm256_set1_ps(-127.0f), x);
        const __m256 n = _mm256_round_ps(clamped, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const __m256 r = _mm256_sub_ps(clamped, n);
        __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(kPower4), r, _mm256_set1_ps(kPower3));
        p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kPower2));
        p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kPower1));
        p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kPower0));
        const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
        return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
    }

    // Scores become weights, rounded to bf16; returns their sum.
    static float weigh(int first, int end, float factor, float shift, float* scores) {
        __m256 sum = _mm256_setzero_ps();
        for (int i = first; i < end; i += 8) {
            const __m256 weight = power_of_two(_mm256_fmsub_ps(_mm256_loadu_ps(scores + i), _mm256_set1_ps(factor), _mm256_set1_ps(shift)));
            const __m256 rounded = _mm256_castsi256_ps(rounded_to_bf16(weight));
            _mm256_storeu_ps(scores + i, rounded);
            sum = _mm256_add_ps(sum, rounded);
        }
        return sum_of(sum);
    }

    // 16 codes, two to a lane, with a scale for the first and one for the second of each lane, as bf16.
    static void expand(const uint8_t* codes, __m256 first_scale, __m256 second_scale, uint16_t* out) {
        const __m256i both = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
        const __m256 first = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(both, 16), 16)), first_scale);
        const __m256 second = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(both, 16)), second_scale);
        const __m256i low = _mm256_srli_epi32(rounded_to_bf16(first), 16);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_or_si256(low, rounded_to_bf16(second)));
    }

    static void round(const float* x, int dim, float* out) {
        for (int d = 0; d < dim; d += 8) _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + d), rounded_to_bf16(_mm256_loadu_ps(x + d)));
    }

    static void multiply(float* x, int dim, float by) {
        for (int d = 0; d < dim; d += 8) _mm256_storeu_ps(x + d, _mm256_mul_ps(_mm256_loadu_ps(x + d), _mm256_set1_ps(by)));
    }

    static void divide(const float* x, int dim, float by, float* out) {
        for (int d = 0; d < dim; d += 8) _mm256_storeu_ps(out + d, _mm256_div_ps(_mm256_loadu_ps(x + d), _mm256_set1_ps(by)));
    }
};

void argmax(const float* values, int count, int base, Best& best) {
    int i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m256 x = _mm256_loadu_ps(values + i);
        const __m256 better = _mm256_cmp_ps(x, _mm256_set1_ps(best.value), _CMP_NLE_UQ);  // NaN too
        if (_mm256_movemask_ps(better)) generic_kernels()->argmax(values + i, 8, base + i, best);
    }
    if (i < count) generic_kernels()->argmax(values + i, count - i, base + i, best);
}

constexpr Kernels kTable = {kVnni ? "avx_vnni" : "avx2", matmul, matmul_float, quantise, to_bf16_row, rms_norm, gated, rope, attend<Eights>, argmax, logit_maxima, weigh_logits, mask_logits, kv_codes};

}  // namespace

#if defined(__AVXVNNI__)
const Kernels* avx_vnni_kernels() { return &kTable; }
#else
const Kernels* avx2_kernels() { return &kTable; }
#endif

}  // namespace octavo

#else

namespace octavo {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace octavo

#endif
