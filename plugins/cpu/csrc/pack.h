// Packed matrices: weights in the order the kernels read them.
//
// A tile is 16 outputs (columns of y) by all of K. Along K a tile is cut into groups of 32; in a group, four consecutive k of one
// output lie in 32 bits, so that one VPDPBUSD (or four scalar multiply-adds) takes 4 k of 16 outputs.
//
//   U4   group = 4 planes of 64 bytes; plane p holds k 4p … 4p+3 in its low nibbles, k 4(p+4) … in its high ones
//   U8   group = 8 planes of 64 bytes; plane p holds k 4p … 4p+3
//   Half scales: after each group's codes 16 f16 scales and 16 f16 minimums          y += a_scale * (scale * dot + minimum * a_sum)
//   Super scales: 8 groups share a header of 320 bytes before their codes: 16 f16 d, 16 f16 dmin, then per group 16 bytes of
//     scales and 16 of minimums (Q4_K, Q5_K), or 16 signed scales for each half of 16 k (Q6_K)
//   Centred: scale * (code - 8) in nibbles, or scale * (code - 128) in bytes. The tile begins with 16 scales for each span of groups, f32 or (for
//     Q4_0, whose spans are single groups) f16, then padding to 64 bytes; one for all of K where codes are bytes
//                                                                                      y += a_scale * scale * (dot - 8 sum(a))
//   Zero: scale * (code - zero). After all the scales come 16 bytes of zero points for each span, then padding to 64 bytes
//   BF16 tile = [K/2][16][2],  F16 and F32 tile = [K][16]
#pragma once
#include <cstddef>
#include <cstdint>

#include "blocks.h"

namespace octavo {

constexpr int kTile = 16;
constexpr int kGroup = 32;

enum class Packing : int { U4Half, U8Half, U4Super, U8Super, U8Super16, U4Centred, U4Zero, U8Centred, Bf16, F16, F32 };

struct Matrix {
    Packing packing;
    int outputs;        // N
    int inputs;         // K
    int tiles;          // ceil(N / 16); outputs beyond N are zero
    size_t tile_bytes;  // a multiple of 64
    const uint8_t* data;  // 64-byte aligned
    int span;           // groups under one scale, in Centred and Zero
    bool half_scales;   // f16 scales, in Centred
};

Packing packing_for(Format format);
size_t tile_bytes(Format format, int inputs);
Matrix matrix_for(Format format, int outputs, int inputs, const uint8_t* data);
bool quantized(Packing packing);

// (All static: see numbers.h.)
static constexpr bool nibbles(Packing packing) {
    return packing == Packing::U4Half || packing == Packing::U4Super || packing == Packing::U4Centred || packing == Packing::U4Zero;
}

static constexpr bool spans(Packing packing) {
    return packing == Packing::U4Centred || packing == Packing::U4Zero || packing == Packing::U8Centred;
}

// Where the parts of a tile lie whose scales are for spans of groups.
struct Spans {
    const uint8_t* scales;  // [spans][16], f32 or f16
    const uint8_t* zeros;   // [spans][16], in Zero
    const uint8_t* codes;
};

static inline size_t spans_bytes(Packing packing, bool half_scales, int count) {
    const size_t one = packing == Packing::U4Zero ? 80 : half_scales ? 32 : 64;
    return (size_t(count) * one + 63) / 64 * 64;
}

static inline Spans spans_of(const Matrix& matrix, const uint8_t* tile) {
    const int count = matrix.inputs / kGroup / matrix.span;
    return {tile, tile + size_t(count) * 64, tile + spans_bytes(matrix.packing, matrix.half_scales, count)};
}

// Pack tiles first … last-1 of a matrix whose rows lie at `rows`, `row_bytes` apart, into out (tile `first` at its start).
void pack_tiles(Format format, const uint8_t* rows, size_t row_bytes, int outputs, int inputs, int first, int last, uint8_t* out);

}  // namespace octavo
