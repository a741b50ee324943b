// GGML's quantized blocks, read into one uniform shape: codes, scales and minimums of a group.
//
// Layouts as the GGUF files hold them (the block structures of the GGML project's ggml-common.h, restated as byte offsets).
#pragma once
#include <cstdint>

namespace octavo {

enum class Format : int { F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K };

struct FormatInfo {
    int block_elements;
    int block_bytes;
};

FormatInfo format_info(Format format);

// 32 consecutive weights of a row: weight[i] = scale(i) * codes[i] - minimum, with codes unsigned.
//
// Where the format has super-blocks, scale = super_scale * sub_scale (integers kept apart, so that packing loses nothing), and the
// minimum likewise. Q6_K has one sub-scale per 16 weights and an offset of 32 in place of a minimum.
struct Group {
    uint8_t codes[32];
    uint16_t scale;      // f16 bits: the group's own (Q4_0 … Q8_0), or the super-block's
    uint16_t minimum;    // f16 bits: weight = scale * code + minimum for plain formats; super-block's, subtracted, for K formats
    int8_t sub_scale[2]; // Q4_K, Q5_K: 0 … 63 in [0]; Q6_K: one per 16 weights, signed
    uint8_t sub_minimum; // Q4_K, Q5_K: 0 … 63
};

// Group `index` (of 32 weights) of a stored row.
void read_group(Format format, const uint8_t* row, int index, Group& group);

// A whole row as float32.
void dequantise_row(Format format, const uint8_t* row, int columns, float* out);

}  // namespace octavo
