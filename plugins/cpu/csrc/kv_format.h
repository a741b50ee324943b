// How the block pool keeps keys and values.
//
// A head's part of a block is a run of parts, each of 16 positions. In a part elements lie as the kernels read them: keys [head_dim/2][16][2],
// two dimensions of each position together; values [8][head_dim][2], two positions of each dimension together.
//
//   Bf16   the elements
//   Int8   the codes in the same order, then bf16 scales: of keys one per 8 dimensions and position, [head_dim/8][16], of values one per
//          16 dimensions and position, [head_dim/16][16]; element = scale * code, code in -127 ... 127
//
//   F32, F16   the elements in another order: keys [head_dim][16], values [16][head_dim]; see attention_float.h
//
// Keys have channels far above the others, which a scale for a whole head would round away: four times the divergence of groups of 8.
#pragma once
#include <cstddef>
#include <cstdint>

namespace octavo {

enum class KVFormat : int { Bf16, Int8, F32, F16 };

constexpr bool kept_as_floats(KVFormat format) { return format == KVFormat::F32 || format == KVFormat::F16; }

// Of an element; of an int8 code without its scales.
constexpr size_t element_bytes(KVFormat format) { return format == KVFormat::F32 ? 4 : format == KVFormat::Int8 ? 1 : 2; }

constexpr int kPart = 16;        // positions
constexpr int kKeyGroup = 8;     // dimensions that share a scale
constexpr int kValueGroup = 16;

constexpr size_t key_part_bytes(KVFormat format, int head_dim) {
    return size_t(head_dim) * kPart * element_bytes(format) + (format == KVFormat::Int8 ? size_t(head_dim) * kPart * 2 / kKeyGroup : 0);
}

constexpr size_t value_part_bytes(KVFormat format, int head_dim) {
    return size_t(head_dim) * kPart * element_bytes(format) + (format == KVFormat::Int8 ? size_t(head_dim) * kPart * 2 / kValueGroup : 0);
}

}  // namespace octavo
