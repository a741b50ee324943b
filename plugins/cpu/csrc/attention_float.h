// Attention over keys and values that are kept as f32 or f16: for whoever wants no rounding of the cache before speed. One implementation for
// every set of kernels, of loops that compilers make vectors of; included by attention.h alone, and of internal linkage for the same reason.
//
// Nothing is rounded to bf16 here, neither queries nor weights. A query is computed by itself, so that its bits never depend on its neighbours.
#pragma once

namespace octavo {
namespace {

// A part of 16 positions as floats: where it lies, or converted into `room`, which holds [kPart][dim].
static inline const float* part_as_floats(const uint8_t* part, KVFormat format, int dim, float* room) {
    if (format == KVFormat::F32) return reinterpret_cast<const float*>(part);
    const uint16_t* const halves = reinterpret_cast<const uint16_t*>(part);
    for (int i = 0; i < dim * kPart; ++i) room[i] = from_f16(halves[i]);
    return room;
}

// Scores of one query against the 16 positions of a part of keys, [dim][kPart].
static inline void float_scores(const float* keys, const float* query, int dim, float* scores) {
    float sums[kPart] = {};
    for (int d = 0; d < dim; ++d)
        for (int i = 0; i < kPart; ++i) sums[i] += query[d] * keys[d * kPart + i];
    std::memcpy(scores, sums, sizeof sums);
}

// Scores first … last of a span to the softmax's weights, in place; returns what the sums so far are multiplied with.
static inline float float_weights(const AttentionUnit& unit, int first, int last, SoftmaxState& state, float* scores) {
    float largest = kMinusInfinity;
    for (int i = first; i <= last; ++i) {
        if (unit.softcap > 0.0f) scores[i] = unit.softcap * std::tanh(scores[i] * unit.scale / unit.softcap);
        largest = std::max(largest, scores[i]);
    }
    const float factor = score_factor(unit), shrink = state.raise(largest * factor);
    for (int i = first; i <= last; ++i) {
        scores[i] = std::exp2(std::fma(scores[i], factor, -state.shift()));
        state.total += scores[i];
    }
    return shrink;
}

static inline void attend_floats(const AttentionUnit& unit, float* scratch) {
    const int dim = unit.head_dim, vectors = unit.vectors;
    float* const scores = scratch;                        // [kVectors][kSpan], then the weights
    float* const out = scores + kVectors * kSpan;         // [kVectors][dim]
    float* const queries = out + kVectors * dim;          // [kVectors][dim]: an output may lie where its query did
    float* const room = queries + kVectors * dim;         // [kPart][dim]
    const Parts parts(unit, nullptr);
    SoftmaxState states[kVectors];
    for (int v = 0; v < vectors; ++v) {
        std::memcpy(queries + v * dim, unit.queries[v], size_t(dim) * sizeof(float));
        states[v] = initial_state(unit, v);
    }
    std::memset(out, 0, size_t(vectors) * size_t(dim) * sizeof(float));
    const auto [low, high] = seen_range(unit);
    for (int start = low / kSpan * kSpan; start <= high; start += kSpan) {
        // Each query's own stretch of the span; what lies beyond it may be anything.
        int from[kVectors], to[kVectors];
        for (int v = 0; v < vectors; ++v) {
            from[v] = std::max({unit.first[v], unit.begin, start}) - start;
            to[v] = std::min({unit.positions[v], unit.end - 1, start + kSpan - 1}) - start;
        }
        const int first = std::max(0, (low - start) / kPart * kPart), last = std::min(kSpan - 1, high - start);
        for (int i = first; i <= last; i += kPart) {
            const float* const keys = part_as_floats(parts.keys_at(start + i), unit.format, dim, room);
            for (int v = 0; v < vectors; ++v) float_scores(keys, queries + v * dim, dim, scores + v * kSpan + i);
        }
        for (int v = 0; v < vectors; ++v) {
            if (from[v] > to[v]) continue;
            const float shrink = float_weights(unit, from[v], to[v], states[v], scores + v * kSpan);
            if (shrink != 1.0f)
                for (int d = 0; d < dim; ++d) out[v * dim + d] *= shrink;
        }
        for (int i = first; i <= last; i += kPart) {
            const float* const values = part_as_floats(parts.values_at(start + i), unit.format, dim, room);
            for (int v = 0; v < vectors; ++v)
                for (int at = std::max(i, from[v]); at <= std::min(i + kPart - 1, to[v]); ++at) {
                    const float weight = scores[v * kSpan + at];
                    const float* const value = values + size_t(at - i) * size_t(dim);
                    for (int d = 0; d < dim; ++d) out[v * dim + d] += weight * value[d];
                }
        }
    }
    for (int v = 0; v < vectors; ++v) {
        if (unit.partial) keep_partial(unit, v, states[v], out + v * dim);
        else
            for (int d = 0; d < dim; ++d) unit.outputs[v][d] = out[v * dim + d] / states[v].total;
    }
}

}  // namespace
}  // namespace octavo
