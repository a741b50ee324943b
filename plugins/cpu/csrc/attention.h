// What every instruction set's attention shares: finding 16 positions in the pool, and the state of an online softmax.
//
// Everything has internal linkage: these files are compiled for different processors, and one must not end up with another's code.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels.h"
#include "numbers.h"

namespace octavo {
namespace {

// Scores are kept as powers of two.
constexpr float kLog2E = 1.4426950408889634f;

// Of 2^r for |r| <= 1/2: the polynomial of degree 4 with the least relative error, 2.7e-6.
constexpr float kPower0 = 0.99999928f, kPower1 = 0.69312179f, kPower2 = 0.24024744f, kPower3 = 0.05591786f, kPower4 = 0.0095701f;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// What a score is multiplied with to be a power of two; a capped score has been scaled already.
static inline float score_factor(const AttentionUnit& unit) { return (unit.softcap > 0.0f ? 1.0f : unit.scale) * kLog2E; }

struct SoftmaxState {
    float peak, total;

    float shift() const { return std::isinf(peak) ? 0.0f : peak; }
    // Take a score into account; returns what sums and total so far are multiplied with (the total already is).
    float raise(float score) {
        const float before = peak;
        peak = std::max(peak, score);
        if (peak == before) return 1.0f;
        const float shrink = std::exp2(before - shift());
        total *= shrink;
        return shrink;
    }
};

static inline SoftmaxState initial_state(const AttentionUnit& unit, int v) {
    const bool sink = unit.has_sinks && unit.first[v] >= unit.begin && unit.first[v] < unit.end;
    return sink ? SoftmaxState{unit.sinks[v] * kLog2E, 1.0f} : SoftmaxState{kMinusInfinity, 0.0f};
}

struct SeenRange { int low, high; };  // first and last position that any query sees in the chunk

static inline SeenRange seen_range(const AttentionUnit& unit) {
    SeenRange range{unit.first[0], unit.positions[0]};
    for (int v = 1; v < unit.vectors; ++v) {
        range.low = std::min(range.low, unit.first[v]);
        range.high = std::max(range.high, unit.positions[v]);
    }
    return {std::max(range.low, unit.begin), std::min(range.high, unit.end - 1)};
}

static inline void keep_partial(const AttentionUnit& unit, int v, const SoftmaxState& state, const float* sums) {
    float* partial = unit.partial + v * partial_stride(unit.head_dim);
    std::memcpy(partial, sums, size_t(unit.head_dim) * sizeof(float));
    partial[unit.head_dim] = state.peak;
    partial[unit.head_dim + 1] = state.total;
}

static inline float scale_at(const uint8_t* scales, int index) {
    uint16_t scale;
    std::memcpy(&scale, scales + index * 2, 2);
    return from_bf16(scale);
}

// Parts of 16 positions, as bf16: where they lie in the pool, or expanded into `scratch`, which holds the keys of two and the values of a span.
struct Parts {
    Parts(const AttentionUnit& unit_, uint16_t* scratch_)
        : key_bytes(key_part_bytes(unit_.format, unit_.head_dim)), value_bytes(value_part_bytes(unit_.format, unit_.head_dim)), unit(unit_),
          scratch(scratch_) {
        while (unit.block_size >> block_bits > 1) ++block_bits;
    }

    const uint8_t* keys_at(int position) const { return unit.keys + offset(position, key_bytes); }
    const uint8_t* values_at(int position) const { return unit.values + offset(position, value_bytes); }

    template <typename Expand>
    const uint16_t* keys(int position, int slot, Expand expand) const {
        return as_bf16(keys_at(position), slot, expand);
    }
    template <typename Expand>
    const uint16_t* values(int position, int slot, Expand expand) const {
        return as_bf16(values_at(position), 2 + slot, expand);
    }

    const size_t key_bytes, value_bytes;

private:
    int64_t offset(int position, size_t part_bytes) const {
        const int part = (position & (unit.block_size - 1)) / kPart;
        return unit.block_stride * unit.table[position >> block_bits] + int64_t(part) * int64_t(part_bytes);
    }
    template <typename Expand>
    const uint16_t* as_bf16(const uint8_t* part, int slot, Expand expand) const {
        if (unit.format == KVFormat::Bf16) return reinterpret_cast<const uint16_t*>(part);
        uint16_t* const out = scratch + size_t(slot) * size_t(unit.head_dim) * kPart;
        expand(part, unit.head_dim, out);
        return out;
    }

    const AttentionUnit& unit;
    uint16_t* const scratch;
    int block_bits = 0;  // a division would take as long as four products
};

}  // namespace
}  // namespace octavo
