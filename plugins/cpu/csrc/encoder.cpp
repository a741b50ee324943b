// What encoders have and decoders have not: norms that take the mean away, a vector for each row, and pieces of whole rows.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "plan.h"

namespace octavo {

namespace {

constexpr int kLanes = 16;  // sums that go on side by side: a compiler makes one vector of them, without being free to reorder

float total(const float* lanes) {
    float sum = 0.0f;
    for (int i = 0; i < kLanes; ++i) sum += lanes[i];
    return sum;
}

// (x - mean) / sqrt(variance + eps) * weight (+ bias); y may be x.
void layer_norm(const float* x, const float* weight, const float* bias, int size, float eps, float* y) {
    const int even = size / kLanes * kLanes;
    float lanes[kLanes] = {};
    for (int i = 0; i < even; i += kLanes)
        for (int j = 0; j < kLanes; ++j) lanes[j] += x[i + j];
    for (int i = even; i < size; ++i) lanes[i - even] += x[i];
    const float mean = total(lanes) / float(size);
    std::fill(lanes, lanes + kLanes, 0.0f);
    for (int i = 0; i < even; i += kLanes)
        for (int j = 0; j < kLanes; ++j) lanes[j] += (x[i + j] - mean) * (x[i + j] - mean);
    for (int i = even; i < size; ++i) lanes[i - even] += (x[i] - mean) * (x[i] - mean);
    const float factor = 1.0f / std::sqrt(total(lanes) / float(size) + eps);
    if (bias)
        for (int i = 0; i < size; ++i) y[i] = (x[i] - mean) * factor * weight[i] + bias[i];
    else
        for (int i = 0; i < size; ++i) y[i] = (x[i] - mean) * factor * weight[i];
}

// `count` tokens, `stride` apart, to one vector; zeros of none.
void pool(const float* tokens, int stride, int count, Pooling kind, int width, float* out) {
    std::fill(out, out + width, 0.0f);
    if (count == 0) return;
    if (kind != Pooling::Mean) {
        std::memcpy(out, tokens + (kind == Pooling::Last ? size_t(count - 1) * size_t(stride) : 0), size_t(width) * sizeof(float));
        return;
    }
    for (int t = 0; t < count; ++t)
        for (int i = 0; i < width; ++i) out[i] += tokens[size_t(t) * size_t(stride) + size_t(i)];
    for (int i = 0; i < width; ++i) out[i] /= float(count);
}

}  // namespace

void Model::encode_row(const Step& step, int worker, int r, const StepArrays& arrays, const Activations& fed, const Results& to) {
    const int width = step.width;
    if (step.op == Op::LayerNorm) {
        float* const y = step.out[0] >= 0 ? row(step.out[0], r) : scratch_[size_t(worker)].data();
        const float* const bias = step.bias >= 0 ? vectors[size_t(step.bias)].data() : nullptr;
        layer_norm(row(step.in[0], r), vectors[size_t(step.vector)].data(), bias, width, step.eps, y);
        feed(step, y, width, r, fed);
    } else if (step.op == Op::Pool) {
        const int start = arrays.query_starts[r], count = arrays.query_starts[r + 1] - start;
        pool(count ? row(step.in[0], start) : nullptr, stride(step.in[0]), count, step.pooling, width, row(step.out[0], r));
    } else {
        std::memcpy(to.pooled + size_t(r) * size_t(width), row(step.in[0], r), size_t(width) * sizeof(float));
    }
}

// A piece is a step of its own, of as many rows as make kPieceTokens, or of one that has more.
void Model::run_whole_rows(const StepArrays& arrays, KVStore& kv, const Results& to) {
    std::vector<int32_t> starts, samples;
    int sampled = 0;
    for (int first = 0, last; first < arrays.rows; first = last) {
        const int begin = arrays.query_starts[first];
        last = first + 1;
        while (last < arrays.rows && arrays.query_starts[last + 1] - begin <= kPieceTokens) ++last;
        const int end = arrays.query_starts[last];
        starts.clear();
        for (int r = first; r <= last; ++r) starts.push_back(arrays.query_starts[r] - begin);
        samples.clear();
        for (int s = sampled; s < arrays.samples && arrays.sample_rows[s] < end; ++s) samples.push_back(arrays.sample_rows[s] - begin);
        StepArrays piece = arrays;
        piece.tokens_count = end - begin;
        piece.rows = last - first;
        piece.samples = int(samples.size());
        piece.tokens += begin;
        piece.positions += begin;
        piece.slots += begin;
        piece.query_starts = starts.data();
        piece.context_lens += first;
        piece.tables += size_t(first) * size_t(arrays.table_width);
        piece.sample_rows = samples.data();
        const size_t scored = size_t(scored_ == Domain::Rows ? first : sampled);
        run_piece(piece, kv, {to.logits ? to.logits + scored * size_t(vocab) : nullptr, to.best ? to.best + scored : nullptr,
                              to.pooled ? to.pooled + size_t(first) * size_t(pooled_width_) : nullptr});
        sampled += piece.samples;
    }
}

}  // namespace octavo
