// How the block pool keeps keys and values.
//
// A head's part of a block is a run of parts, each of 16 positions. In a part elements lie as the kernels read them: keys [head_dim/2][16][2],
// two dimensions of each position together; values [8][head_dim][2], two positions of each dimension together.
//
//   Bf16   the elements
//   Int8   the codes in the same order, then bf16 scales: of keys one per 8 dimensions and position, [head_dim/8][16], of values one per
//          16 dimensions and position, [head_dim/16][16]; element = scale * code, code in -127 ... 127
//
// Keys have channels far above the others, which a scale for a whole head would round away: four times the divergence of groups of 8.
#pragma once
#include <cstddef>
#include <cstdint>

namespace octavo {

enum class KVFormat : int { Bf16, Int8 };

constexpr int kPart = 16;        // positions
constexpr int kKeyGroup = 8;     // dimensions that share a scale
constexpr int kValueGroup = 16;

constexpr size_t key_part_bytes(KVFormat format, int head_dim) {
    return size_t(head_dim) * (format == KVFormat::Bf16 ? kPart * 2 : kPart + kPart * 2 / kKeyGroup);
}

constexpr size_t value_part_bytes(KVFormat format, int head_dim) {
    return size_t(head_dim) * (format == KVFormat::Bf16 ? kPart * 2 : kPart + kPart * 2 / kValueGroup);
}

}  // namespace octavo
