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
//   BF16 tile = [K/2][16][2],  F16 and F32 tile = [K][16]
#pragma once
#include <cstddef>
#include <cstdint>

#include "blocks.h"

namespace octavo {

constexpr int kTile = 16;
constexpr int kGroup = 32;

enum class Packing : int { U4Half, U8Half, U4Super, U8Super, U8Super16, Bf16, F16, F32 };

struct Matrix {
    Packing packing;
    int outputs;        // N
    int inputs;         // K
    int tiles;          // ceil(N / 16); outputs beyond N are zero
    size_t tile_bytes;  // a multiple of 64
    const uint8_t* data;  // 64-byte aligned
};

Packing packing_for(Format format);
size_t tile_bytes(Packing packing, int inputs);
bool quantized(Packing packing);

// Pack tiles first … last-1 of a matrix whose rows lie at `rows`, `row_bytes` apart, into out (tile `first` at its start).
void pack_tiles(Format format, const uint8_t* rows, size_t row_bytes, int outputs, int inputs, int first, int last, uint8_t* out);

}  // namespace octavo
