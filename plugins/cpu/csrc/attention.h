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

// Of 2^r for |r| <= 1/2: the polynomial of degree 4 with the least relative error, 2.7e-6. Weights are rounded to bf16 afterwards.
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

// Parts of 16 positions, as bf16: where they lie in the pool, or expanded, into what the unit shares with others or else into `scratch`, which
// holds the keys of two and the values of a span.
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
        return as_bf16(keys_at(position), position, slot, unit.expanded ? &unit.expanded->keys : nullptr, expand);
    }
    template <typename Expand>
    const uint16_t* values(int position, int slot, Expand expand) const {
        return as_bf16(values_at(position), position, 2 + slot, unit.expanded ? &unit.expanded->values : nullptr, expand);
    }

    const size_t key_bytes, value_bytes;

private:
    int64_t offset(int position, size_t part_bytes) const {
        const int part = (position & (unit.block_size - 1)) / kPart;
        return unit.block_stride * unit.table[position >> block_bits] + int64_t(part) * int64_t(part_bytes);
    }
    template <typename Expand>
    const uint16_t* as_bf16(const uint8_t* part, int position, int slot, Expanded::Half* shared, Expand expand) const {
        if (unit.format == KVFormat::Bf16) return reinterpret_cast<const uint16_t*>(part);
        const size_t index = shared ? size_t(position - unit.begin) / kPart : size_t(slot);
        uint16_t* const out = (shared ? shared->parts : scratch) + index * size_t(unit.head_dim) * kPart;
        if (shared && (shared->there >> index & 1)) return out;
        expand(part, unit.head_dim, out);
        if (shared) shared->there |= uint64_t(1) << index;
        return out;
    }

    const AttentionUnit& unit;
    uint16_t* const scratch;
    int block_bits = 0;  // a division would take as long as four products
};

}  // namespace
}  // namespace octavo

#include "attention_float.h"

namespace octavo {
namespace {

// An int8 part of keys, or of values, as bf16. A Set has `kLanes` floats in a register of type `Floats`, `scales(at)` of that many bf16
// numbers, `all(x)` of one, and `expand(codes, first, second, out)`: 2 kLanes codes, two to a lane, with a scale for the first and one for the
// second of each lane.
template <typename Set>
void expand_keys(const uint8_t* part, int dim, uint16_t* out) {
    const uint8_t* scales = part + dim * kPart;
    for (int group = 0; group < dim / kKeyGroup; ++group)
        for (int position = 0; position < kPart; position += Set::kLanes) {
            const typename Set::Floats scale = Set::scales(scales + (group * kPart + position) * 2);
            for (int pair = 0; pair < kKeyGroup / 2; ++pair) {
                const int at = (group * kKeyGroup / 2 + pair) * 2 * kPart + position * 2;
                Set::expand(part + at, scale, scale, out + at);
            }
        }
}

template <typename Set>
void expand_values(const uint8_t* part, int dim, uint16_t* out) {
    const uint8_t* scales = part + dim * kPart;
    for (int pair = 0; pair < kPart / 2; ++pair)
        for (int group = 0; group < dim / kValueGroup; ++group) {
            const typename Set::Floats first = Set::all(scale_at(scales, group * kPart + pair * 2));
            const typename Set::Floats second = Set::all(scale_at(scales, group * kPart + pair * 2 + 1));
            for (int dimension = 0; dimension < kValueGroup; dimension += Set::kLanes) {
                const int at = pair * dim * 2 + (group * kValueGroup + dimension) * 2;
                Set::expand(part + at, first, second, out + at);
            }
        }
}

// Attention for sets whose registers are narrower than a part: `scores16<V>` and `mix<V>` take V queries at a time, `finish_scores` and
// `weigh` one; the rest of a Set are loops over a row.
template <typename Set>
void attend(const AttentionUnit& unit, float* scratch) {
    if (kept_as_floats(unit.format)) return attend_floats(unit, scratch);
    const int dim = unit.head_dim, vectors = unit.vectors;
    float* scores = scratch;                    // [kVectors][kSpan], then the weights
    float* out = scores + kVectors * kSpan;     // [kVectors][dim]
    float* queries = out + kVectors * dim;      // [kVectors][dim], rounded to bf16
    const Parts parts(unit, reinterpret_cast<uint16_t*>(queries + kVectors * dim));
    SoftmaxState states[kVectors];
    for (int v = 0; v < vectors; ++v) {
        Set::round(unit.queries[v], dim, queries + v * dim);
        states[v] = initial_state(unit, v);
    }
    std::memset(out, 0, size_t(vectors) * size_t(dim) * sizeof(float));
    const auto [low, high] = seen_range(unit);
    for (int start = low / kSpan * kSpan; start <= high; start += kSpan) {
        // Whole parts of 16 positions, as keys lie; beyond `high` they are masked.
        const int first = std::max(0, (low - start) / kPart * kPart), end = std::min(kSpan, high - start + 1), whole = (end + 15) / kPart * kPart;
        const uint16_t* values[kSpan / kPart];
        for (int i = first; i < whole; i += kPart) {
            const uint16_t* keys = parts.keys(start + i, 0, expand_keys<Set>);
            int v = 0;
            for (; vectors - v >= 4; v += 4) Set::template scores16<4>(keys, queries + v * dim, dim, scores + v * kSpan + i);
            for (; vectors - v >= 2; v += 2) Set::template scores16<2>(keys, queries + v * dim, dim, scores + v * kSpan + i);
            for (; v < vectors; ++v) Set::template scores16<1>(keys, queries + v * dim, dim, scores + v * kSpan + i);
        }
        for (int v = 0; v < vectors; ++v) {
            float* own = scores + v * kSpan;
            const float factor = score_factor(unit), shrink = states[v].raise(Set::finish_scores(unit, v, start, first, whole, own) * factor);
            states[v].total += Set::weigh(first, whole, factor, states[v].shift(), own);
            if (shrink != 1.0f) Set::multiply(out + v * dim, dim, shrink);
        }
        for (int i = first; i < whole; i += kPart) values[i / kPart] = parts.values(start + i, i / kPart, expand_values<Set>);
        for (int slice = 0; slice < dim; slice += 16) {
            int v = 0;
            for (; vectors - v >= 4; v += 4) Set::template mix<4>(values, dim, first, end, scores + v * kSpan, slice, out + v * dim);
            for (; vectors - v >= 2; v += 2) Set::template mix<2>(values, dim, first, end, scores + v * kSpan, slice, out + v * dim);
            for (; v < vectors; ++v) Set::template mix<1>(values, dim, first, end, scores + v * kSpan, slice, out + v * dim);
        }
    }
    for (int v = 0; v < vectors; ++v) {
        if (unit.partial) keep_partial(unit, v, states[v], out + v * dim);
        else Set::divide(out + v * dim, dim, states[v].total, unit.outputs[v]);
    }
}

}  // namespace
}  // namespace octavo
