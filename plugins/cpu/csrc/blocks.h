// Quantized rows as checkpoints hold them, read into uniform shapes: codes with the scales and minimums of a group of 32, and codes with
// one scale and zero point for whole runs.
//
// Q… are GGML's, as the GGUF files hold them (the block structures of that project's ggml-common.h, restated as byte offsets); INT… and
// UINT… are those of octavo.quant.integers.
#pragma once
#include <cstdint>

namespace octavo {

enum class Format : int { F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, INT8, INT4_G128, INT4_G64, INT4_G32, UINT4_G128, UINT4_G64, UINT4_G32 };

struct FormatInfo {
    int block_elements;
    int block_bytes;
    int head_bytes = 0;  // of a row, before its blocks
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

// Group `index` (of 32 weights) of a stored row of a Q… format.
void read_group(Format format, const uint8_t* row, int index, Group& group);

// Weights of an INT… or UINT… format that share a scale: weight = scale * (code - zero). INT8, whose codes are signed, has a zero of 0 and
// one run for the whole row; the others have one for each block.
struct Run {
    float scale;
    int zero;
    const uint8_t* codes;  // two to a byte, low bits first, but for INT8
};

bool integers(Format format);  // INT… or UINT…

Run read_run(Format format, const uint8_t* row, int index);

// Code `i` of a run, as read_run's zero is to be taken from it.
int run_code(Format format, const Run& run, int i);

// A whole row as float32.
void dequantise_row(Format format, const uint8_t* row, int columns, float* out);

}  // namespace octavo
