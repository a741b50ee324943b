// What every 64-bit Arm processor has (Cortex-A53 and A72 and later). Two more files compile this one again: kernels_neon_dotprod.cpp
// for the integer dot product, kernels_neon_i8mm.cpp, which adds to it, for products of matrices in int8 and bf16.
#include "attention.h"
#include "kernels.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kv_codes.h"
#include "numbers.h"
#include "weigh.h"

namespace octavo {

namespace {

#if defined(OCTAVO_NEON_I8MM)
constexpr const char* kName = "neon_i8mm";
#elif defined(OCTAVO_NEON_DOTPROD)
constexpr const char* kName = "neon_dotprod";
#else
constexpr const char* kName = "neon";
#endif

// Rows of one register block: a tile is four registers wide, so that 16 of 32 are dot products, 8 activations, 8 codes.
constexpr int kRows = 4;
constexpr int kParts = 4;  // registers of a tile's width

struct Tile {  // 16 floats, one for each output of a tile
    float32x4_t part[kParts];
};

inline float32x4_t zero() { return vdupq_n_f32(0.0f); }

// 16 f16 as floats.
inline Tile halves(const uint8_t* at) {
    Tile out;
    for (int q = 0; q < kParts; ++q) {
        float16x4_t four;
        std::memcpy(&four, at + q * 8, 8);
        out.part[q] = vcvt_f32_f16(four);
    }
    return out;
}

// 16 bytes as floats.
inline Tile widened(int16x8_t low, int16x8_t high) {
    return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
             vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}

inline Tile unsigned_bytes(const uint8_t* at) {
    const uint8x16_t bytes = vld1q_u8(at);
    return widened(vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes))), vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(bytes))));
}

inline Tile signed_bytes(const uint8_t* at) {
    const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(at));
    return widened(vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes)));
}

inline Tile product(const Tile& a, const Tile& b) {
    Tile out;
    for (int q = 0; q < kParts; ++q) out.part[q] = vmulq_f32(a.part[q], b.part[q]);
    return out;
}

// The first `count` (1 … 4) floats at an address, zeros beyond; and the first `count` lanes to one.
inline float32x4_t load_some(const float* at, int count) {
    if (count >= 4) return vld1q_f32(at);
    float four[4] = {};
    std::memcpy(four, at, size_t(count) * sizeof(float));
    return vld1q_f32(four);
}

inline void store_some(float* at, int count, float32x4_t x) {
    if (count >= 4) return vst1q_f32(at, x);
    float four[4];
    vst1q_f32(four, x);
    std::memcpy(at, four, size_t(count) * sizeof(float));
}

// -- quantized matrices --------------------------------------------------------------------------------------------------------

// dot[q] += 4 k of the outputs of part q, for each plane's register of codes: `lane` is the plane's place in the 16 activations.
template <int lane>
inline void add_plane(int32x4_t (&dot)[kParts], const int8x16_t (&codes)[kParts], int8x16_t a) {
#if defined(__ARM_FEATURE_DOTPROD)
    for (int q = 0; q < kParts; ++q) dot[q] = vdotq_laneq_s32(dot[q], codes[q], a, lane);
#else
    // Pairs of products meet in 16 bits: codes are -128 … 127 and activations -127 … 127, so that a pair is at most 32,512.
    const int8x16_t four = vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(a), lane));
    for (int q = 0; q < kParts; ++q) {
        const int16x8_t low = vmull_s8(vget_low_s8(codes[q]), vget_low_s8(four)), high = vmull_high_s8(codes[q], four);
        dot[q] = vpadalq_s16(dot[q], vpaddq_s16(low, high));
    }
#endif
}

// Plane p = 4 * half + lane. Codes up to 127 are signed bytes as they are; those up to 255 are taken less 128.
template <Packing packing, int M, int lane>
inline void add_planes(const uint8_t* codes, const int8x16_t (&a)[M][2], int first, int last, int32x4_t (&dot)[M][kParts]) {
    int8x16_t plane[kParts];
    if constexpr (nibbles(packing)) {
        int8x16_t high[kParts];
        for (int q = 0; q < kParts; ++q) {
            const uint8x16_t both = vld1q_u8(codes + lane * 64 + q * 16);
            plane[q] = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
            high[q] = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
        }
        for (int m = 0; m < M; ++m) {
            add_plane<lane>(dot[m], plane, a[m][0]);
            add_plane<lane>(dot[m], high, a[m][1]);
        }
    } else {
        for (int half = first; half < last; ++half) {
            for (int q = 0; q < kParts; ++q) {
                uint8x16_t bytes = vld1q_u8(codes + (half * 4 + lane) * 64 + q * 16);
                if constexpr (packing == Packing::U8Half || packing == Packing::U8Centred) bytes = veorq_u8(bytes, vdupq_n_u8(128));
                plane[q] = vreinterpretq_s8_u8(bytes);
            }
            for (int m = 0; m < M; ++m) add_plane<lane>(dot[m], plane, a[m][half]);
        }
    }
}

// The products of halves first … last-1 (of 16 k) of a group's codes.
template <Packing packing, int M>
inline void add_group(const uint8_t* codes, const int8x16_t (&a)[M][2], int first, int last, int32x4_t (&dot)[M][kParts]) {
    add_planes<packing, M, 0>(codes, a, first, last, dot);
    add_planes<packing, M, 1>(codes, a, first, last, dot);
    add_planes<packing, M, 2>(codes, a, first, last, dot);
    add_planes<packing, M, 3>(codes, a, first, last, dot);
}

inline void set(int32x4_t (&dot)[kParts], int32_t value) {
    for (int q = 0; q < kParts; ++q) dot[q] = vdupq_n_s32(value);
}

// A group's codes of M rows, 16 to a register.
template <int M>
inline void load_codes(const int8_t* codes, int8x16_t (&out)[M][2]) {
    for (int m = 0; m < M; ++m)
        for (int half = 0; half < 2; ++half) out[m][half] = vld1q_s8(codes + m * 32 + half * 16);
}

// 256 times the products of codes, and those of the finer ones.
template <int M>
inline void join_low(int32x4_t (&dot)[M][kParts], const int32x4_t (&low)[M][kParts]) {
    for (int m = 0; m < M; ++m)
        for (int q = 0; q < kParts; ++q) dot[m][q] = vaddq_s32(vshlq_n_s32(dot[m][q], 8), low[m][q]);
}

inline void add_scaled(Tile& total, const int32x4_t (&dot)[kParts], const Tile& scale, float own) {
    for (int q = 0; q < kParts; ++q) total.part[q] = vfmaq_f32(total.part[q], vcvtq_f32_s32(dot[q]), vmulq_n_f32(scale.part[q], own));
}

inline void store(float* y, const Tile& tile) {
    for (int q = 0; q < kParts; ++q) vst1q_f32(y + q * 4, tile.part[q]);
}

// M rows by one tile: each group's codes are unpacked once for all rows.
template <Packing packing, int M>
void tile_rows(const uint8_t* tile, int groups, const Activations& x, int row, float* y, int ld) {
    constexpr bool super = packing != Packing::U4Half && packing != Packing::U8Half;
    constexpr size_t bytes = nibbles(packing) ? 256 : 512;
    BlockRows own(x, row);
    Tile total[M];
    for (int m = 0; m < M; ++m) total[m] = {{zero(), zero(), zero(), zero()}};
    const uint8_t* codes = tile;
    const uint8_t* header = tile;
    for (int g = 0; g < groups; ++g, codes += super ? bytes : bytes + 64, own.next()) {
        if constexpr (super) {
            if (g % 8 == 0) {
                header = codes;
                codes = header + 320;
            }
        }
        int8x16_t a[M][2], low[M][2];
        load_codes(own.codes(0), a);
        const bool refined = own.any_refined(M);
        const float unit = refined ? kLowUnit : 1.0f;
        if (refined) load_codes(own.low(0), low);
        int32x4_t dot[M][kParts], low_dot[M][kParts];
        if constexpr (packing == Packing::U8Super16) {
            const Tile d = halves(header);
            for (int half = 0; half < 2; ++half) {
                const Tile scale = product(d, signed_bytes(header + 64 + (g % 8) * 32 + half * 16));
                for (int m = 0; m < M; ++m) set(dot[m], -32 * own[m].half_sums[half]);
                add_group<packing>(codes, a, half, half + 1, dot);
                if (refined) {
                    for (int m = 0; m < M; ++m) set(low_dot[m], -32 * own[m].low_half_sums[half]);
                    add_group<packing>(codes, low, half, half + 1, low_dot);
                    join_low(dot, low_dot);
                }
                for (int m = 0; m < M; ++m) add_scaled(total[m], dot[m], scale, own[m].scale * unit);
            }
        } else {
            for (int m = 0; m < M; ++m)  // what U8Half's codes lack of 128 each
                set(dot[m], packing == Packing::U8Half ? 128 * (own[m].half_sums[0] + own[m].half_sums[1]) : 0);
            add_group<packing>(codes, a, 0, 2, dot);
            if (refined) {
                for (int m = 0; m < M; ++m)
                    set(low_dot[m], packing == Packing::U8Half ? 128 * (own[m].low_half_sums[0] + own[m].low_half_sums[1]) : 0);
                add_group<packing>(codes, low, 0, 2, low_dot);
                join_low(dot, low_dot);
            }
            Tile scale, minimum;
            if constexpr (super) {
                const uint8_t* sub = header + 64 + (g % 8) * 32;
                scale = product(halves(header), unsigned_bytes(sub));
                minimum = product(halves(header + 32), unsigned_bytes(sub + 16));
                for (int q = 0; q < kParts; ++q) minimum.part[q] = vsubq_f32(zero(), minimum.part[q]);
            } else {
                scale = halves(codes + bytes);
                minimum = halves(codes + bytes + 32);
            }
            for (int m = 0; m < M; ++m) {
                add_scaled(total[m], dot[m], scale, own[m].scale * unit);
                for (int q = 0; q < kParts; ++q) total[m].part[q] = vfmaq_n_f32(total[m].part[q], minimum.part[q], own[m].sum);
            }
        }
    }
    for (int m = 0; m < M; ++m) store(y + size_t(row + m) * size_t(ld), total[m]);
}

// 16 unsigned bytes as integers, times a number.
inline void multiplied(int32x4_t (&out)[kParts], const uint8_t* at, int32_t by) {
    const uint8x16_t bytes = vld1q_u8(at);
    const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
    const uint16x4_t four[kParts] = {vget_low_u16(low), vget_high_u16(low), vget_low_u16(high), vget_high_u16(high)};
    for (int q = 0; q < kParts; ++q) out[q] = vmulq_n_s32(vreinterpretq_s32_u32(vmovl_u16(four[q])), by);
}

// The scales of a span.
inline Tile span_scales(const Matrix& matrix, const Spans& parts, int s) {
    if (matrix.half_scales) return halves(parts.scales + s * 32);
    const float* const at = reinterpret_cast<const float*>(parts.scales) + s * 16;
    return {{vld1q_f32(at), vld1q_f32(at + 4), vld1q_f32(at + 8), vld1q_f32(at + 12)}};
}

// The same where scales are for spans of groups. A dot product begins with what the zero points take away.
template <Packing packing, int M>
void tile_rows_by_spans(const Matrix& matrix, const uint8_t* tile, const Activations& x, int row, float* y, int ld) {
    constexpr size_t bytes = nibbles(packing) ? 256 : 512;
    const Spans parts = spans_of(matrix, tile);
    BlockRows own(x, row);
    Tile total[M];
    for (int m = 0; m < M; ++m) total[m] = {{zero(), zero(), zero(), zero()}};
    const uint8_t* codes = parts.codes;
    const int groups = matrix.inputs / kGroup;
    for (int start = 0, s = 0; start < groups; start += matrix.span, ++s) {
        const Tile scale = span_scales(matrix, parts, s);
        for (int g = start; g < start + matrix.span; ++g, codes += bytes, own.next()) {
            int8x16_t a[M][2];
            load_codes(own.codes(0), a);
            int32x4_t dot[M][kParts];
            const auto begin = [&](int32x4_t (&one)[kParts], const int16_t* half_sums) {
                const int32_t sum = half_sums[0] + half_sums[1];
                if constexpr (packing == Packing::U4Zero) multiplied(one, parts.zeros + s * 16, -sum);
                else set(one, packing == Packing::U4Centred ? -8 * sum : 0);
            };
            for (int m = 0; m < M; ++m) begin(dot[m], own[m].half_sums);
            add_group<packing>(codes, a, 0, 2, dot);
            const bool refined = own.any_refined(M);
            const float unit = refined ? kLowUnit : 1.0f;
            if (refined) {
                int32x4_t low_dot[M][kParts];
                load_codes(own.low(0), a);
                for (int m = 0; m < M; ++m) begin(low_dot[m], own[m].low_half_sums);
                add_group<packing>(codes, a, 0, 2, low_dot);
                join_low(dot, low_dot);
            }
            for (int m = 0; m < M; ++m) {
                const float own_scale = own[m].scale * unit;
                if constexpr (packing == Packing::U8Centred)
                    for (int q = 0; q < kParts; ++q) total[m].part[q] = vfmaq_n_f32(total[m].part[q], vcvtq_f32_s32(dot[m][q]), own_scale);
                else add_scaled(total[m], dot[m], scale, own_scale);
            }
        }
        if constexpr (packing == Packing::U8Centred)
            for (int m = 0; m < M; ++m) total[m] = product(total[m], scale);
    }
    for (int m = 0; m < M; ++m) store(y + size_t(row + m) * size_t(ld), total[m]);
}

// -- bf16 matrices -------------------------------------------------------------------------------------------------------------

// A register of pairs of bf16: the first of each pair as floats, and the second.
inline float32x4_t first_of(uint32x4_t pairs) { return vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16)); }
inline float32x4_t second_of(uint32x4_t pairs) { return vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000))); }

inline uint32x4_t load_pairs(const void* at) { return vreinterpretq_u32_u8(vld1q_u8(static_cast<const uint8_t*>(at))); }

template <int M>
void bf16_rows(const uint8_t* tile, int inputs, const Activations& x, int row, float* y, int ld) {
    const uint16_t* of[M];
    Tile total[M];
    for (int m = 0; m < M; ++m) {
        of[m] = x.bf16 + size_t(row + m) * size_t(x.k);
        total[m] = {{zero(), zero(), zero(), zero()}};
    }
    for (int k = 0; k < inputs; k += 2) {
        uint32x4_t weights[kParts];
        for (int q = 0; q < kParts; ++q) weights[q] = load_pairs(tile + size_t(k) * 32 + q * 16);
        for (int m = 0; m < M; ++m)
            for (int q = 0; q < kParts; ++q) total[m].part[q] = vfmaq_n_f32(total[m].part[q], first_of(weights[q]), from_bf16(of[m][k]));
        if (k + 1 == inputs) break;  // what lies beside the last input is anybody's
        for (int m = 0; m < M; ++m)
            for (int q = 0; q < kParts; ++q) total[m].part[q] = vfmaq_n_f32(total[m].part[q], second_of(weights[q]), from_bf16(of[m][k + 1]));
    }
    for (int m = 0; m < M; ++m) store(y + size_t(row + m) * size_t(ld), total[m]);
}

// -- any number of rows from blocks of a few fixed sizes -----------------------------------------------------------------------

template <Packing packing, int M>
void block(const Matrix& matrix, const uint8_t* tile, const Activations& x, int row, float* y, int ld) {
    if constexpr (packing == Packing::Bf16) bf16_rows<M>(tile, matrix.inputs, x, row, y, ld);
    else if constexpr (spans(packing)) tile_rows_by_spans<packing, M>(matrix, tile, x, row, y, ld);
    else tile_rows<packing, M>(tile, matrix.inputs / kGroup, x, row, y, ld);
}

#if defined(OCTAVO_NEON_I8MM)
// Rows of one tile two at a time; returns how many of them it has done, from the first on.
template <Packing packing>
int rows_in_pairs(const Matrix& matrix, const uint8_t* tile, const Activations& x, int rows, float* y, int ld);
#endif

template <Packing packing>
void matmul_as(const Matrix& matrix, int first, int last, const Activations& x, int rows, float* y, int ld) {
    for (int t = first; t < last; ++t) {
        const uint8_t* tile = matrix.data + size_t(t) * matrix.tile_bytes;
        float* out = y + size_t(t) * kTile;
        int row = 0;
#if defined(OCTAVO_NEON_I8MM)
        row = rows_in_pairs<packing>(matrix, tile, x, rows, out, ld);
#endif
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
    Tile total[M];
    for (int m = 0; m < M; ++m) total[m] = {{zero(), zero(), zero(), zero()}};
    for (int k = 0; k < inputs; ++k) {
        Tile weights;
        if constexpr (half) weights = halves(tile + size_t(k) * 32);
        else
            for (int q = 0; q < kParts; ++q) weights.part[q] = vreinterpretq_f32_u8(vld1q_u8(tile + size_t(k) * 64 + q * 16));
        for (int m = 0; m < M; ++m)
            for (int q = 0; q < kParts; ++q) total[m].part[q] = vfmaq_n_f32(total[m].part[q], weights.part[q], x[size_t(m) * size_t(x_ld) + size_t(k)]);
    }
    for (int m = 0; m < M; ++m) store(y + size_t(m) * size_t(ld), total[m]);
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
    BlockRows own(x, row);
    for (int g = 0; g < k / 32; ++g, own.next()) {
        float32x4_t value[8], size = zero();
        for (int i = 0; i < 8; ++i) {
            value[i] = vld1q_f32(values + g * 32 + i * 4);
            size = vmaxq_f32(size, vabsq_f32(value[i]));
        }
        const float largest = vmaxvq_f32(size);  // a NaN among them stays one
        const bool finite = largest <= std::numeric_limits<float>::max();
        const bool counts = finite && largest >= kQuantiseFloor;
        const float inverse = counts ? 127.0f / largest : 0.0f;
        const uint32x4_t kept = vdupq_n_u32(counts ? 0xffffffff : 0);
        int8_t* codes = own.codes(0);
        int32_t sum[2];
        for (int half = 0; half < 2; ++half) {
            int32x4_t code[4];
            for (int i = 0; i < 4; ++i)
                code[i] = vandq_s32(vcvtnq_s32_f32(vmulq_n_f32(value[half * 4 + i], inverse)), vreinterpretq_s32_u32(kept));
            const int16x8_t low = vcombine_s16(vmovn_s32(code[0]), vmovn_s32(code[1])), high = vcombine_s16(vmovn_s32(code[2]), vmovn_s32(code[3]));
            vst1q_s8(codes + half * 16, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
            sum[half] = vaddvq_s32(vaddq_s32(vaddq_s32(code[0], code[1]), vaddq_s32(code[2], code[3])));
        }
        own[0].scale = !finite ? std::numeric_limits<float>::quiet_NaN() : counts ? largest / 127.0f : 0.0f;
        own[0].sum = own[0].scale * float(sum[0] + sum[1]);
        for (int h = 0; h < 2; ++h) own[0].half_sums[h] = int16_t(sum[h]);
        own.refined(0, false);
    }
}

// Four floats to the nearest bf16, ties to even, in the high halves of the lanes; NaN stays NaN.
inline uint32x4_t rounded_to_bf16(float32x4_t x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t up = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    return vandq_u32(vbslq_u32(vceqq_f32(x, x), up, quiet), vdupq_n_u32(0xffff0000));
}

void to_bf16_row(const float* values, int k, uint16_t* out) {
    int i = 0;
    for (; i + 8 <= k; i += 8) {
        const uint16x4_t a = vshrn_n_u32(rounded_to_bf16(vld1q_f32(values + i)), 16);
        const uint16x4_t b = vshrn_n_u32(rounded_to_bf16(vld1q_f32(values + i + 4)), 16);
        vst1q_u16(out + i, vcombine_u16(a, b));
    }
    for (; i < k; ++i) out[i] = to_bf16(values[i]);
}

void rms_norm(const float* x, const float* residual, float* sum, const float* weight, int size, int width, float eps, float* y) {
    for (int start = 0; start < size; start += width) {
        float32x4_t squares[2] = {zero(), zero()};
        for (int i = 0; i < width; i += 4) {
            const int left = width - i;
            float32x4_t value = load_some(x + start + i, left);
            if (residual) value = vaddq_f32(value, load_some(residual + start + i, left));
            if (sum) store_some(sum + start + i, left, value);
            squares[i / 4 % 2] = vfmaq_f32(squares[i / 4 % 2], value, value);
        }
        const float factor = 1.0f / std::sqrt(vaddvq_f32(vaddq_f32(squares[0], squares[1])) / float(width) + eps);
        const float* from = sum ? sum : x;
        for (int i = 0; i < width; i += 4) {
            const int left = width - i;
            const float32x4_t scaled = vmulq_n_f32(load_some(from + start + i, left), factor);
            store_some(y + start + i, left, vmulq_f32(scaled, load_some(weight + i, left)));
        }
    }
}

// e^x by 2^n * p(r), |r| <= ln 2 / 2; p is the Taylor polynomial of degree 7, whose error there is below half an ulp. For x up to 88;
// below -104 the result is 0, and NaN stays NaN. 2^n is multiplied in two halves, each of which is a float where 2^n is not.
inline float32x4_t exponential(float32x4_t x) {
    const float32x4_t clamped = vmaxq_f32(vdupq_n_f32(-104.0f), x);
    const float32x4_t n = vrndnq_f32(vmulq_n_f32(clamped, 1.44269504f));
    float32x4_t r = vfmsq_f32(clamped, n, vdupq_n_f32(0.693145752f));
    r = vfmsq_f32(r, n, vdupq_n_f32(1.42860677e-6f));
    float32x4_t p = vdupq_n_f32(1.0f / 5040.0f);
    for (float coefficient : {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f}) p = vfmaq_f32(vdupq_n_f32(coefficient), p, r);
    const int32x4_t whole = vcvtnq_s32_f32(n), half = vshrq_n_s32(whole, 1), bias = vdupq_n_s32(127);
    p = vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23)));
    return vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), bias), 23)));
}

inline float32x4_t hyperbolic_tangent(float32x4_t x) {  // 1 - 2 / (e^2x + 1); clamped where it is 1 in float anyway
    const float32x4_t clamped = vmaxq_f32(vdupq_n_f32(-20.0f), vminq_f32(vdupq_n_f32(20.0f), x));
    const float32x4_t e = exponential(vaddq_f32(clamped, clamped));
    return vsubq_f32(vdupq_n_f32(1.0f), vdivq_f32(vdupq_n_f32(2.0f), vaddq_f32(e, vdupq_n_f32(1.0f))));
}

// x / (1 + e^-z) from e^-|z|, which cannot overflow.
inline float32x4_t times_logistic(float32x4_t x, float32x4_t z) {
    const float32x4_t e = exponential(vnegq_f32(vabsq_f32(z)));
    return vdivq_f32(vbslq_f32(vcltzq_f32(z), vmulq_f32(x, e), x), vaddq_f32(vdupq_n_f32(1.0f), e));
}

inline float32x4_t silu(float32x4_t x) { return times_logistic(x, x); }

inline float32x4_t gelu_tanh(float32x4_t x) {
    const float32x4_t cube = vmulq_f32(vmulq_f32(x, x), x);
    return times_logistic(x, vmulq_n_f32(vfmaq_n_f32(x, cube, 0.044715f), 1.5957691216f));
}

// x / 2 erfc(-x / sqrt 2)
inline float32x4_t gelu(float32x4_t x) {
    const float32x4_t one = vdupq_n_f32(1.0f), t = vdivq_f32(one, vfmaq_n_f32(one, vabsq_f32(x), 0.35355339f));
    float32x4_t p = vdupq_n_f32(kComplement[9]);
    for (int i = 8; i >= 0; --i) p = vfmaq_f32(vdupq_n_f32(kComplement[i]), p, t);
    const float32x4_t fall = vfmsq_f32(p, vmulq_n_f32(x, 0.5f), x), beyond = vmulq_f32(vmulq_n_f32(t, 0.5f), exponential(fall));
    return vmulq_f32(x, vbslq_f32(vcltzq_f32(x), beyond, vsubq_f32(one, beyond)));
}

inline float32x4_t relu(float32x4_t x) {  // NaN stays NaN
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x), vclezq_f32(x)));
}

void gated(const float* a, const float* b, int size, Gate kind, float* out) {
    for (int i = 0; i < size; i += 4) {
        const float32x4_t x = load_some(a + i, size - i);
        const float32x4_t y = kind == Gate::Silu ? silu(x) : kind == Gate::GeluTanh ? gelu_tanh(x) : kind == Gate::Gelu ? gelu(x) : relu(x);
        store_some(out + i, size - i, vmulq_f32(y, load_some(b + i, size - i)));
    }
}

void rope_interleaved(float* x, int heads, int head_dim, int half, const float* cos, const float* sin) {
    const int whole = half / 4 * 4;
    if (whole < half) generic_kernels()->rope(x + 2 * whole, heads, head_dim, 2 * (half - whole), true, cos + whole, sin + whole);
    for (int head = 0; head < heads; ++head, x += head_dim)
        for (int i = 0; i < whole; i += 4) {
            float32x4x2_t pair = vld2q_f32(x + 2 * i);
            const float32x4_t a = pair.val[0], b = pair.val[1], c = vld1q_f32(cos + i), s = vld1q_f32(sin + i);
            pair.val[0] = vfmsq_f32(vmulq_f32(a, c), b, s);
            pair.val[1] = vfmaq_f32(vmulq_f32(a, s), b, c);
            vst2q_f32(x + 2 * i, pair);
        }
}

void rope(float* x, int heads, int head_dim, int turned, bool interleaved, const float* cos, const float* sin) {
    const int half = turned / 2;
    if (interleaved) return rope_interleaved(x, heads, head_dim, half, cos, sin);
    for (int head = 0; head < heads; ++head, x += head_dim)
        for (int i = 0; i < half; i += 4) {
            const int left = half - i;
            const float32x4_t a = load_some(x + i, left), b = load_some(x + half + i, left);
            const float32x4_t c = load_some(cos + i, left), s = load_some(sin + i, left);
            store_some(x + i, left, vfmsq_f32(vmulq_f32(a, c), b, s));
            store_some(x + half + i, left, vfmaq_f32(vmulq_f32(a, s), b, c));
        }
}

// -- attention -----------------------------------------------------------------------------------------------------------------

// The parts of attention that are this set's own; see attention.h.
struct Fours {
    using Floats = float32x4_t;
    static constexpr int kLanes = 4;

    static Floats all(float x) { return vdupq_n_f32(x); }

    static Floats scales(const uint8_t* at) { return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(at)), 16)); }

#if defined(OCTAVO_NEON_I8MM)  // kernels_neon_i8mm.cpp has these two
    template <int V>
    static void scores16(const uint16_t* keys, const float* queries, int dim, float* scores);
    template <int V>
    static void mix(const uint16_t* const* parts, int dim, int first, int end, const float* weights, int slice, float* out);
#else
    // Scores of V queries against 16 positions.
    template <int V>
    static void scores16(const uint16_t* keys, const float* queries, int dim, float* scores) {
        Tile total[V];
        for (int v = 0; v < V; ++v) total[v] = {{zero(), zero(), zero(), zero()}};
        for (int d = 0; d < dim; d += 2) {
            uint32x4_t pairs[kParts];
            for (int q = 0; q < kParts; ++q) pairs[q] = load_pairs(keys + d * 16 + q * 8);
            for (int v = 0; v < V; ++v)
                for (int q = 0; q < kParts; ++q) {
                    total[v].part[q] = vfmaq_n_f32(total[v].part[q], first_of(pairs[q]), queries[v * dim + d]);
                    total[v].part[q] = vfmaq_n_f32(total[v].part[q], second_of(pairs[q]), queries[v * dim + d + 1]);
                }
        }
        for (int v = 0; v < V; ++v) store(scores + v * kSpan, total[v]);
    }

    // out[V][16] of one slice of the head += weights x values, for positions first … end-1 of the span; first is even. Where the number of
    // positions is odd, the one beside the last is not written yet: whatever is there must not touch the sum.
    template <int V>
    static void mix(const uint16_t* const* parts, int dim, int first, int end, const float* weights, int slice, float* out) {
        Tile total[V];
        for (int v = 0; v < V; ++v)
            for (int q = 0; q < kParts; ++q) total[v].part[q] = vld1q_f32(out + v * dim + slice + q * 4);
        for (int i = first; i < end; i += 2) {
            const uint16_t* values = parts[i / kPart] + size_t(i % kPart) * size_t(dim) + slice * 2;
            uint32x4_t pairs[kParts];
            for (int q = 0; q < kParts; ++q) pairs[q] = load_pairs(values + q * 8);
            for (int v = 0; v < V; ++v)
                for (int q = 0; q < kParts; ++q) total[v].part[q] = vfmaq_n_f32(total[v].part[q], first_of(pairs[q]), weights[v * kSpan + i]);
            if (i + 1 == end) break;
            for (int v = 0; v < V; ++v)
                for (int q = 0; q < kParts; ++q) total[v].part[q] = vfmaq_n_f32(total[v].part[q], second_of(pairs[q]), weights[v * kSpan + i + 1]);
        }
        for (int v = 0; v < V; ++v) store(out + v * dim + slice, total[v]);
    }
#endif

    // A span's scores of one query, capped and masked; returns the largest, of which a NaN is none.
    static float finish_scores(const AttentionUnit& unit, int v, int start, int first, int end, float* scores) {
        const int32_t lanes[4] = {0, 1, 2, 3};
        const float32x4_t minus_infinity = vdupq_n_f32(kMinusInfinity);
        float32x4_t largest = minus_infinity;
        for (int i = first; i < end; i += 4) {
            float32x4_t score = vld1q_f32(scores + i);
            if (unit.softcap > 0.0f)
                score = vmulq_n_f32(hyperbolic_tangent(vdivq_f32(vmulq_n_f32(score, unit.scale), vdupq_n_f32(unit.softcap))), unit.softcap);
            const int32x4_t position = vaddq_s32(vld1q_s32(lanes), vdupq_n_s32(start + i));
            const uint32x4_t seen = vandq_u32(vcleq_s32(position, vdupq_n_s32(unit.positions[v])), vcgeq_s32(position, vdupq_n_s32(unit.first[v])));
            score = vbslq_f32(seen, score, minus_infinity);
            vst1q_f32(scores + i, score);
            largest = vmaxnmq_f32(largest, score);
        }
        return vmaxnmvq_f32(largest);
    }

    // 2^x, x <= 0, by 2^n * p(r), |r| <= 1/2. Below -126 it falls to 0; NaN stays NaN.
    static float32x4_t power_of_two(float32x4_t x) {
        const float32x4_t clamped = vmaxq_f32(vdupq_n_f32(-127.0f), x);
        const float32x4_t n = vrndnq_f32(clamped), r = vsubq_f32(clamped, n);
        float32x4_t p = vfmaq_f32(vdupq_n_f32(kPower3), vdupq_n_f32(kPower4), r);
        p = vfmaq_f32(vdupq_n_f32(kPower2), p, r);
        p = vfmaq_f32(vdupq_n_f32(kPower1), p, r);
        p = vfmaq_f32(vdupq_n_f32(kPower0), p, r);
        const int32x4_t exponent = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
        return vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23)));
    }

    // Scores become weights, rounded to bf16; returns their sum.
    static float weigh(int first, int end, float factor, float shift, float* scores) {
        float32x4_t sum = zero();
        for (int i = first; i < end; i += 4) {
            const float32x4_t weight = power_of_two(vfmaq_n_f32(vdupq_n_f32(-shift), vld1q_f32(scores + i), factor));
            const float32x4_t rounded = vreinterpretq_f32_u32(rounded_to_bf16(weight));
            vst1q_f32(scores + i, rounded);
            sum = vaddq_f32(sum, rounded);
        }
        return vaddvq_f32(sum);
    }

    // 8 codes, two to a lane, with a scale for the first and one for the second of each lane, as bf16.
    static void expand(const uint8_t* codes, float32x4_t first_scale, float32x4_t second_scale, uint16_t* out) {
        const int32x4_t both = vreinterpretq_s32_s16(vmovl_s8(vreinterpret_s8_u8(vld1_u8(codes))));
        const float32x4_t first = vmulq_f32(vcvtq_f32_s32(vshrq_n_s32(vshlq_n_s32(both, 16), 16)), first_scale);
        const float32x4_t second = vmulq_f32(vcvtq_f32_s32(vshrq_n_s32(both, 16)), second_scale);
        vst1q_u16(out, vreinterpretq_u16_u32(vorrq_u32(vshrq_n_u32(rounded_to_bf16(first), 16), rounded_to_bf16(second))));
    }

    static void round(const float* x, int dim, float* out) {
        for (int d = 0; d < dim; d += 4) vst1q_f32(out + d, vreinterpretq_f32_u32(rounded_to_bf16(vld1q_f32(x + d))));
    }

    static void multiply(float* x, int dim, float by) {
        for (int d = 0; d < dim; d += 4) vst1q_f32(x + d, vmulq_n_f32(vld1q_f32(x + d), by));
    }

    static void divide(const float* x, int dim, float by, float* out) {
        for (int d = 0; d < dim; d += 4) vst1q_f32(out + d, vdivq_f32(vld1q_f32(x + d), vdupq_n_f32(by)));
    }
};

void argmax(const float* values, int count, int base, Best& best) {
    int i = 0;
    for (; i + 4 <= count; i += 4) {
        const uint32x4_t no_better = vcleq_f32(vld1q_f32(values + i), vdupq_n_f32(best.value));  // false for NaN
        if (vminvq_u32(no_better) == 0) generic_kernels()->argmax(values + i, 4, base + i, best);
    }
    if (i < count) generic_kernels()->argmax(values + i, count - i, base + i, best);
}

constexpr Kernels kTable = {kName, matmul, matmul_float, quantise, to_bf16_row, rms_norm, gated, rope, attend<Fours>, argmax, logit_maxima, weigh_logits, mask_logits, kv_codes};

}  // namespace

#if defined(OCTAVO_NEON_I8MM)
const Kernels* neon_i8mm_kernels() { return &kTable; }
#elif defined(OCTAVO_NEON_DOTPROD)
const Kernels* neon_dotprod_kernels() { return &kTable; }
#else
const Kernels* neon_kernels() { return &kTable; }
#endif

}  // namespace octavo

#else

namespace octavo {
const Kernels* neon_kernels() { return nullptr; }
}  // namespace octavo

#endif
