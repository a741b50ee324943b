// Every kernel in plain C++: slow, right, and what the vector ones are compared with.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attention.h"
#include "kernels.h"
#include "kv_codes.h"
#include "numbers.h"
#include "weigh.h"

namespace octavo {

namespace {

float half_of(const uint8_t* at, int column) {
    uint16_t half;
    std::memcpy(&half, at + column * 2, 2);
    return from_f16(half);
}

int code_of(const uint8_t* codes, bool halves, int column, int k) {
    const int plane = k / 4, byte = column * 4 + k % 4;
    if (!halves) return codes[plane * 64 + byte];
    return plane < 4 ? codes[plane * 64 + byte] & 15 : codes[(plane - 4) * 64 + byte] >> 4;
}

// A row's codes in one group as whole numbers, of one unit each: the codes, or 256 times them and the finer ones.
struct Group {
    Group(const Activations& x, int row, int g) {
        const BlockRows own(x, row, g);
        const bool refined = own.refined(0);
        unit = refined ? own[0].scale * kLowUnit : own[0].scale;
        sum = own[0].sum;
        for (int i = 0; i < 32; ++i) code[i] = refined ? 256 * own.codes(0)[i] + own.low(0)[i] : own.codes(0)[i];
        for (int h = 0; h < 2; ++h) half_sum[h] = 32 * (refined ? 256 * own[0].half_sums[h] + own[0].low_half_sums[h] : own[0].half_sums[h]);
    }
    float unit, sum;
    int32_t code[32], half_sum[2];
};

// One output of one row: groups in order, each added with two fused multiply-adds, as the vector kernels do.
float quantized_dot(const Matrix& matrix, const uint8_t* tile, int column, const Activations& x, int row) {
    const bool small = nibbles(matrix.packing);
    const bool super = matrix.packing != Packing::U4Half && matrix.packing != Packing::U8Half;
    const size_t bytes = small ? 256 : 512;
    const int groups = matrix.inputs / kGroup;
    float y = 0.0f;
    for (int g = 0; g < groups; ++g) {
        const Group a(x, row, g);
        const uint8_t* header = tile + size_t(g / 8) * (320 + 8 * bytes);
        const uint8_t* codes = super ? header + 320 + size_t(g % 8) * bytes : tile + size_t(g) * (bytes + 64);
        int32_t dot[2] = {0, 0};
        for (int k = 0; k < kGroup; ++k) dot[k / 16] += code_of(codes, small, column, k) * a.code[k];
        if (matrix.packing == Packing::U8Super16) {
            const float d = half_of(header, column);
            for (int h = 0; h < 2; ++h) {
                const float scale = d * float(int8_t(header[64 + (g % 8) * 32 + h * 16 + column]));
                y = std::fma(float(dot[h] - a.half_sum[h]), scale * a.unit, y);
            }
            continue;
        }
        float scale, minimum;
        if (super) {
            const uint8_t* own = header + 64 + (g % 8) * 32;
            scale = half_of(header, column) * float(own[column]);
            minimum = -(half_of(header + 32, column) * float(own[16 + column]));
        } else {
            scale = half_of(codes + bytes, column);
            minimum = half_of(codes + bytes + 32, column);
        }
        y = std::fma(float(dot[0] + dot[1]), scale * a.unit, y);
        y = std::fma(minimum, a.sum, y);
    }
    return y;
}

// The same where scales are for spans of groups: codes less their zero point are whole numbers, so that only scaling rounds.
float spans_dot(const Matrix& matrix, const uint8_t* tile, int column, const Activations& x, int row) {
    const Spans parts = spans_of(matrix, tile);
    const auto scale_at = [&](size_t at) {
        if (matrix.half_scales) return half_of(parts.scales, int(at));
        float scale;
        std::memcpy(&scale, parts.scales + at * 4, 4);
        return scale;
    };
    const bool small = nibbles(matrix.packing), one_scale = matrix.packing == Packing::U8Centred;
    float y = 0.0f;
    for (int g = 0; g < matrix.inputs / kGroup; ++g) {
        const Group a(x, row, g);
        const size_t at = size_t(g / matrix.span) * 16 + size_t(column);
        const int zero = one_scale ? 128 : matrix.packing == Packing::U4Zero ? parts.zeros[at] : 8;
        int32_t dot = 0;
        for (int k = 0; k < kGroup; ++k)
            dot += (code_of(parts.codes + size_t(g) * (small ? 256 : 512), small, column, k) - zero) * a.code[k];
        y = std::fma(float(dot), one_scale ? a.unit : scale_at(at) * a.unit, y);
    }
    return one_scale ? y * scale_at(size_t(column)) : y;
}

float bf16_dot(const Matrix& matrix, const uint8_t* tile, int column, const uint16_t* x) {
    float y = 0.0f;
    for (int k = 0; k < matrix.inputs; ++k) {
        uint16_t weight;
        std::memcpy(&weight, tile + (size_t(k / 2) * 16 + size_t(column)) * 4 + size_t(k % 2) * 2, 2);
        y += from_bf16(weight) * from_bf16(x[k]);
    }
    return y;
}

void matmul(const Matrix& matrix, int first, int last, const Activations& x, int rows, float* y, int ld) {
    for (int t = first; t < last; ++t) {
        const uint8_t* tile = matrix.data + size_t(t) * matrix.tile_bytes;
        for (int row = 0; row < rows; ++row)
            for (int column = 0; column < kTile; ++column)
                y[size_t(row) * size_t(ld) + size_t(t * kTile + column)] =
                    matrix.packing == Packing::Bf16 ? bf16_dot(matrix, tile, column, x.bf16 + size_t(row) * size_t(x.k))
                    : spans(matrix.packing)         ? spans_dot(matrix, tile, column, x, row)
                                                    : quantized_dot(matrix, tile, column, x, row);
    }
}

void matmul_float(const Matrix& matrix, int first, int last, const float* x, int x_ld, int rows, float* y, int ld) {
    for (int t = first; t < last; ++t) {
        const uint8_t* tile = matrix.data + size_t(t) * matrix.tile_bytes;
        for (int row = 0; row < rows; ++row)
            for (int column = 0; column < kTile; ++column) {
                float total = 0.0f;
                for (int k = 0; k < matrix.inputs; ++k) {
                    const size_t at = size_t(k) * 16 + size_t(column);
                    float weight;
                    if (matrix.packing == Packing::F32) std::memcpy(&weight, tile + at * 4, 4);
                    else weight = half_of(tile + at * 2, 0);
                    total = std::fma(weight, x[size_t(row) * size_t(x_ld) + size_t(k)], total);
                }
                y[size_t(row) * size_t(ld) + size_t(t * kTile + column)] = total;
            }
    }
}

void quantise(const float* values, int k, const Activations& x, int row) {
    BlockRows own(x, row);
    for (int g = 0; g < k / 32; ++g, own.next()) {
        float largest = 0.0f;
        bool finite = true;
        for (int i = 0; i < 32; ++i) {
            finite = finite && std::isfinite(values[g * 32 + i]);
            largest = std::max(largest, std::fabs(values[g * 32 + i]));
        }
        const bool counts = finite && largest >= kQuantiseFloor;
        const float inverse = counts ? 127.0f / largest : 0.0f;
        int32_t sum[2] = {0, 0};
        for (int i = 0; i < 32; ++i) {
            const int code = counts ? int(std::nearbyint(values[g * 32 + i] * inverse)) : 0;
            own.codes(0)[i] = int8_t(code);
            sum[i / 16] += code;
        }
        own[0].scale = !finite ? std::numeric_limits<float>::quiet_NaN() : counts ? largest / 127.0f : 0.0f;
        own[0].sum = own[0].scale * float(sum[0] + sum[1]);
        for (int h = 0; h < 2; ++h) own[0].half_sums[h] = int16_t(sum[h]);
        own.refined(0, false);
    }
}

void to_bf16_row(const float* values, int k, uint16_t* out) {
    for (int i = 0; i < k; ++i) out[i] = to_bf16(values[i]);
}

void rms_norm(const float* x, const float* residual, float* sum, const float* weight, int size, int width, float eps, float* y) {
    for (int start = 0; start < size; start += width) {
        float squares = 0.0f;
        for (int i = start; i < start + width; ++i) {
            const float value = residual ? x[i] + residual[i] : x[i];
            if (sum) sum[i] = value;
            squares += value * value;
        }
        const float factor = 1.0f / std::sqrt(squares / float(width) + eps);
        const float* from = sum ? sum : x;
        for (int i = 0; i < width; ++i) y[start + i] = from[start + i] * factor * weight[i];
    }
}

// x / (1 + e^-z) without an exponential that overflows, and so right to the last bits at both ends.
float times_logistic(float x, float z) {
    const float e = std::exp(-std::fabs(z));
    return (z < 0.0f ? x * e : x) / (1.0f + e);
}

float gate(float x, Gate kind) {
    switch (kind) {
        case Gate::Silu: return times_logistic(x, x);
        // (1 + tanh u) / 2 = 1 / (1 + e^-2u), which does not cancel where tanh u is near -1.
        case Gate::GeluTanh: return times_logistic(x, 1.5957691216f * std::fma(0.044715f, x * x * x, x));
        case Gate::Gelu: return 0.5f * x * std::erfc(x * -0.70710678f);
        case Gate::Relu: return x > 0.0f || x != x ? x : 0.0f;
    }
    return x;
}

void gated(const float* a, const float* b, int size, Gate kind, float* out) {
    for (int i = 0; i < size; ++i) out[i] = gate(a[i], kind) * b[i];
}

void rope(float* x, int heads, int head_dim, int turned, bool interleaved, const float* cos, const float* sin) {
    const int half = turned / 2;
    for (int head = 0; head < heads; ++head, x += head_dim)
        for (int i = 0; i < half; ++i) {
            float& a = interleaved ? x[2 * i] : x[i];
            float& b = interleaved ? x[2 * i + 1] : x[i + half];
            const float first = a * cos[i] - b * sin[i], second = b * cos[i] + a * sin[i];
            a = first;
            b = second;
        }
}

void int8_keys(const uint8_t* part, int dim, uint16_t* out) {
    for (int i = 0; i < dim * kPart; ++i) {
        const int position = i / 2 % kPart, dimension = i / (2 * kPart) * 2 + i % 2;
        out[i] = to_bf16(float(int8_t(part[i])) * scale_at(part + dim * kPart, dimension / kKeyGroup * kPart + position));
    }
}

void int8_values(const uint8_t* part, int dim, uint16_t* out) {
    for (int i = 0; i < dim * kPart; ++i) {
        const int position = i / (2 * dim) * 2 + i % 2, dimension = i / 2 % dim;
        out[i] = to_bf16(float(int8_t(part[i])) * scale_at(part + dim * kPart, dimension / kValueGroup * kPart + position));
    }
}

void attend_one(const AttentionUnit& unit, int v, float* query, uint16_t* room) {
    const int dim = unit.head_dim, low = std::max(unit.first[v], unit.begin), high = std::min(unit.positions[v], unit.end - 1);
    for (int d = 0; d < dim; ++d) query[d] = from_bf16(to_bf16(unit.queries[v][d]));
    const Parts parts(unit, room);
    SoftmaxState state = initial_state(unit, v);
    float* out = unit.partial ? unit.partial + v * partial_stride(dim) : unit.outputs[v];
    std::fill(out, out + dim, 0.0f);
    float weights[kSpan];
    for (int start = low / kSpan * kSpan; start <= high; start += kSpan) {
        const int from = std::max(low, start), to = std::min(high + 1, start + kSpan);
        float largest = kMinusInfinity;
        for (int position = from; position < to; ++position) {
            const uint16_t* keys = parts.keys(position, 0, int8_keys);
            float score = 0.0f;
            for (int d = 0; d < dim; ++d) score += query[d] * from_bf16(keys[d / 2 * 2 * kPart + position % kPart * 2 + d % 2]);
            if (unit.softcap > 0.0f) score = unit.softcap * std::tanh(score * unit.scale / unit.softcap);
            weights[position - start] = score;
            largest = std::max(largest, score);
        }
        const float shrink = state.raise(largest * score_factor(unit));
        for (int d = 0; d < dim; ++d) out[d] *= shrink;
        for (int position = from; position < to; ++position) {
            const float weight = from_bf16(to_bf16(std::exp2(std::fma(weights[position - start], score_factor(unit), -state.shift()))));
            state.total += weight;
            const uint16_t* values = parts.values(position, 0, int8_values);
            for (int d = 0; d < dim; ++d) out[d] += weight * from_bf16(values[position % kPart / 2 * 2 * dim + d * 2 + position % 2]);
        }
    }
    if (unit.partial) return keep_partial(unit, v, state, out);
    for (int d = 0; d < dim; ++d) out[d] /= state.total;
}

void attention(const AttentionUnit& unit, float* scratch) {
    if (kept_as_floats(unit.format)) return attend_floats(unit, scratch);
    uint16_t* const room = reinterpret_cast<uint16_t*>(scratch + unit.head_dim);
    for (int v = 0; v < unit.vectors; ++v) attend_one(unit, v, scratch, room);
}

void argmax(const float* values, int count, int base, Best& best) {
    for (int i = 0; i < count; ++i) {
        if (values[i] != values[i]) best.nan = true;
        if (values[i] > best.value) {
            best.value = values[i];
            best.index = base + i;
        }
    }
}

constexpr Kernels kTable = {"generic", matmul, matmul_float, quantise, to_bf16_row, rms_norm, gated, rope, attention, argmax, logit_maxima, weigh_logits, mask_logits, kv_codes};

}  // namespace

const Kernels* generic_kernels() { return &kTable; }

}  // namespace octavo
