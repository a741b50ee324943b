#include "sampler.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

namespace octavo {

namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Buckets of weights by their leading bits, 64 to a power of two; the lightest weight is 2^-52, the heaviest 1.
constexpr uint64_t kLowest = uint64_t(1023 - 52) << 6, kBuckets = 54 << 6;

size_t bucket_of(double weight) {
    uint64_t bits;
    std::memcpy(&bits, &weight, sizeof bits);
    return size_t(std::min((bits >> 46) - kLowest, kBuckets - 1));
}

// Philox-4x32-10; see octavo.runner.philox.
double uniform(uint64_t seed, int32_t sample_index, int32_t position) {
    uint32_t c[4] = {uint32_t(position), 0, uint32_t(sample_index), 0}, k[2] = {uint32_t(seed), uint32_t(seed >> 32)};
    for (int round = 0; round < 10; ++round) {
        const uint64_t p0 = uint64_t(c[0]) * 0xD2511F53u, p1 = uint64_t(c[2]) * 0xCD9E8D57u;
        const uint32_t next[4] = {uint32_t(p1 >> 32) ^ c[1] ^ k[0], uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k[1], uint32_t(p0)};
        std::copy(next, next + 4, c);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    return (double(c[0] >> 5) * 67108864.0 + double(c[1] >> 6)) / 9007199254740992.0;
}

// Of octavo.runner.weights.
double spread(int vocab) {
    double s = 1.0;
    while (s < double(vocab)) s *= 2.0;
    return s;
}

// The sum of what value(i) gives for 0 <= i < count, in four chains of additions. Sums of weights are exact in any order.
template <typename F>
double add_up(size_t count, F&& value) {
    double sums[4] = {};
    size_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (size_t lane = 0; lane < 4; ++lane) sums[lane] += value(i + lane);
    for (; i < count; ++i) sums[0] += value(i);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

bool within(const int32_t* values, size_t count, int size) {  // no early end: the compiler makes vectors of it
    uint32_t outside = 0;
    for (size_t i = 0; i < count; ++i) outside |= uint32_t(uint32_t(values[i]) >= uint32_t(size));
    return outside == 0;
}

void require(const int32_t* values, size_t count, int size, const char* what) {
    if (!within(values, count, size)) throw std::out_of_range("a sampling batch names a " + std::string(what) + " outside 0 … " + std::to_string(size - 1));
}

}  // namespace

// A row of logits, in stretches of kStretch.
struct Sampler::Row {
    const float* logits;
    int vocab, stretches;
    const float* maxima;  // [stretches]
    float peak;           // NaN if a logit is

    bool sound() const { return std::isfinite(peak); }
    int first(int stretch) const { return stretch * kStretch; }
    int size(int stretch) const { return std::min(kStretch, vocab - first(stretch)); }

    // Call what(id) for every logit of at least `least`, in the order of ids.
    template <typename F>
    void each_from(float least, F&& what) const {
        for (int s = 0; s < stretches; ++s)
            if (maxima[s] >= least)
                for (int id = first(s); id < first(s) + size(s); ++id)
                    if (logits[id] >= least) what(id);
    }

    int count_above(float value) const {
        int count = 0;
        for (int s = 0; s < stretches; ++s)
            if (maxima[s] > value)
                for (int i = 0; i < size(s); ++i) count += logits[first(s) + i] > value;
        return count;
    }

    int first_peak() const {
        const int s = int(std::find(maxima, maxima + stretches, peak) - maxima);
        return int(std::find(logits + first(s), logits + vocab, peak) - logits);
    }

    // The k-th largest logit, 1 <= k <= vocab. `scratch` is [vocab].
    float largest(int k, float* scratch) const {
        // Every stretch has a logit of at least the smallest of the maxima that are counted here. Should more logits be asked for than
        // there are of those, all are looked at.
        const int counted = std::min(k, stretches);
        std::copy(maxima, maxima + stretches, scratch);
        std::nth_element(scratch, scratch + counted - 1, scratch + stretches, std::greater<float>());
        float* end = scratch;
        for (float bound = scratch[counted - 1]; end - scratch < k; bound = kNothing) {
            end = scratch;
            for (int s = 0; s < stretches; ++s) {
                if (maxima[s] < bound) continue;
                for (int i = 0; i < size(s); ++i) {  // no branch: which are large cannot be foreseen
                    *end = logits[first(s) + i];
                    end += *end >= bound;
                }
            }
        }
        std::nth_element(scratch, scratch + k - 1, end, std::greater<float>());
        return scratch[k - 1];
    }
};

// How logits become weights, and which of them count.
struct Sampler::Terms {
    Weighing how;
    float least_logit = kNothing;  // what is below falls to 0
    double least_weight = 0.0;     // what is below falls to 0

    Terms(const Row& row, float temperature) : how{double(row.peak), kLog2E / double(temperature), spread(row.vocab)} {}

    bool all() const { return least_logit == kNothing && least_weight == 0.0; }

    // A logit below which every weight is 0 or falls to 0: where half the least weight lies, or less than half of what is rounded to 0.
    double floor() const {
        const double least = std::max(least_weight, how.spread * 0x1p-53);
        return std::max(double(least_logit), how.peak + (std::log2(least) - 1.0) / how.rate);
    }
};

Sampler::Sampler(std::shared_ptr<Pool> pool, const Kernels* kernels) : pool_(std::move(pool)), kernels_(kernels) {}

void Sampler::sample(const float* logits, int rows, int vocab, const SamplingBatch& batch, const Samples& samples) {
    const size_t draws = size_t(batch.draws), biases = size_t(batch.biases), masks = size_t(batch.masks);
    require(batch.row, draws, rows, "row");
    require(batch.bias_draw, biases, batch.draws, "draw");
    require(batch.bias_token, biases, vocab, "token");
    require(batch.mask_draw, masks, batch.draws, "draw");
    for (size_t d = 0; d < draws; ++d) {
        if (!(batch.temperature[d] >= 0.0f) || !(batch.min_p[d] <= 1.0f) || !(batch.top_p[d] > 0.0f))
            throw std::out_of_range("a sampling batch has a temperature below 0, a min_p above 1 or a top_p that is not above 0");
        if (batch.target[d] >= 0) require(batch.target + d, 1, vocab, "token");
        const int first = batch.history_starts[d], last = batch.history_starts[d + 1];
        require(&batch.history_prompts[d], 1, last - first + 1, "prompt's end");
        require(batch.history + first, size_t(last - first), vocab, "token");
    }
    sort_biases(batch);
    sort_masks(batch, vocab);
    fit(vocab);
    std::atomic<int> next{0};
    const auto work = [&](int worker) {
        for (int d = next.fetch_add(1); d < batch.draws; d = next.fetch_add(1))
            draw(d, logits + size_t(batch.row[d]) * size_t(vocab), vocab, batch, samples, scratch_[size_t(worker)]);
    };
    if (batch.draws == 1) work(0);  // nobody need wake up
    else pool_->run(work);
}

void Sampler::sort_biases(const SamplingBatch& batch) {
    bias_order_.resize(size_t(batch.biases));
    std::iota(bias_order_.begin(), bias_order_.end(), 0);
    std::sort(bias_order_.begin(), bias_order_.end(), [&](int a, int b) {  // a token may have several, which are added in their order
        return batch.bias_draw[a] != batch.bias_draw[b] ? batch.bias_draw[a] < batch.bias_draw[b] : a < b;
    });
    bias_starts_.assign(size_t(batch.draws) + 1, 0);
    for (int b = 0; b < batch.biases; ++b) ++bias_starts_[size_t(batch.bias_draw[b]) + 1];
    std::partial_sum(bias_starts_.begin(), bias_starts_.end(), bias_starts_.begin());
}

void Sampler::sort_masks(const SamplingBatch& batch, int vocab) {
    const size_t words = (size_t(vocab) + 31) / 32;
    masks_.assign(size_t(batch.draws), nullptr);
    for (int m = 0; m < batch.masks; ++m) masks_[size_t(batch.mask_draw[m])] = batch.mask_words + size_t(m) * words;
}

// Memory for every worker: none is asked for while they run.
void Sampler::fit(int vocab) {
    const size_t tokens = size_t(vocab), stretches = (tokens + kStretch - 1) / kStretch;
    scratch_.resize(size_t(pool_->threads()));
    for (Scratch& s : scratch_) {
        s.maxima.resize(stretches);
        s.shaped_maxima.resize(stretches);
        s.sums.resize(stretches);
        s.shaped.resize(tokens);
        s.counts.resize(tokens);
        s.logits.resize(tokens);
        s.ids.reserve(tokens);
        s.edge.reserve(tokens);
        s.weights.resize(tokens);
        s.kept.resize(tokens);
        s.buckets.resize(kBuckets);
    }
}

void Sampler::draw(int d, const float* raw, int vocab, const SamplingBatch& batch, const Samples& samples, Scratch& scratch) const {
    int token = batch.target[d];
    samples.tokens[d] = std::max(token, 0);
    samples.failed[d] = true;
    const Row row = look(raw, vocab, scratch.maxima);
    if (!row.sound()) return;
    if (token < 0) {
        const bool added = bias_starts_[size_t(d)] < bias_starts_[size_t(d) + 1] || batch.history_starts[d] < batch.history_starts[d + 1];
        const bool shaped = added || masks_[size_t(d)] != nullptr;
        if (shaped) shape(d, raw, vocab, batch, scratch);
        const Row from = shaped ? look(scratch.shaped.data(), vocab, scratch.shaped_maxima) : row;
        if (!from.sound()) return;
        token = choose(d, from, batch, scratch);
        samples.tokens[d] = token;
    }
    samples.failed[d] = false;
    if (batch.logprobs[d] >= 0) score(d, row, token, std::min(batch.logprobs[d], samples.most), samples, scratch);
}

// Steps 1 and 2.
void Sampler::shape(int d, const float* raw, int vocab, const SamplingBatch& batch, Scratch& scratch) const {
    float* const shaped = scratch.shaped.data();
    int32_t* const counts = scratch.counts.data();  // 0 before and after
    if (masks_[size_t(d)]) kernels_->mask(raw, vocab, masks_[size_t(d)], shaped);
    else std::memcpy(shaped, raw, size_t(vocab) * sizeof(float));
    for (int n = bias_starts_[size_t(d)]; n < bias_starts_[size_t(d) + 1]; ++n) {
        const int bias = bias_order_[size_t(n)];
        shaped[batch.bias_token[bias]] += batch.bias_value[bias];
    }
    const int32_t* const begin = batch.history + batch.history_starts[d];
    const int32_t* const made = begin + batch.history_prompts[d];
    const int32_t* const end = batch.history + batch.history_starts[d + 1];
    const float penalty = batch.repetition[d];
    for (const int32_t* t = begin; t < end; ++t)
        if (counts[*t]++ == 0) shaped[*t] = shaped[*t] > 0.0f ? shaped[*t] / penalty : shaped[*t] * penalty;
    for (const int32_t* t = begin; t < end; ++t) counts[*t] = 0;
    for (const int32_t* t = made; t < end; ++t) ++counts[*t];
    for (const int32_t* t = made; t < end; ++t) {
        if (counts[*t] == 0) continue;
        shaped[*t] -= batch.frequency[d] * float(counts[*t]) + batch.presence[d];
        counts[*t] = 0;
    }
}

Sampler::Row Sampler::look(const float* logits, int vocab, std::vector<float>& maxima) const {
    kernels_->maxima(logits, vocab, maxima.data());
    float peak = maxima[0];
    for (float largest : maxima)
        if (!(largest <= peak)) {  // larger, or NaN
            peak = largest;
            if (std::isnan(peak)) break;
        }
    return {logits, vocab, int(maxima.size()), maxima.data(), peak};
}

// Steps 3 to 5.
int Sampler::choose(int d, const Row& row, const SamplingBatch& batch, Scratch& scratch) const {
    if (batch.temperature[d] == 0.0f) return row.first_peak();
    Terms terms(row, batch.temperature[d]);
    if (batch.top_k[d] > 0 && batch.top_k[d] < row.vocab) terms.least_logit = row.largest(batch.top_k[d], scratch.logits.data());
    terms.least_weight = double(batch.min_p[d]);
    const double share = uniform(batch.seed[d], batch.sample_index[d], batch.position[d]);
    const double total = weigh(row, terms, scratch);
    if (batch.top_p[d] < 1.0f) return draw_from_nucleus(row, total, double(batch.top_p[d]), share, scratch);
    return draw_from_all(row, share * total, scratch);
}

// The weights of a row, 0 where they do not count; returns their sum.
double Sampler::weigh(const Row& row, const Terms& terms, Scratch& scratch) const {
    const double floor = terms.floor();
    double total = 0.0;
    for (int s = 0; s < row.stretches; ++s) {
        double& sum = scratch.sums[size_t(s)];
        sum = 0.0;
        if (double(row.maxima[s]) < floor) continue;
        const float* const logits = row.logits + row.first(s);
        double* const weights = scratch.weights.data() + row.first(s);
        sum = kernels_->weigh(logits, row.size(s), terms.how, weights);
        if (!terms.all()) {
            for (int i = 0; i < row.size(s); ++i) {
                const double heavy = weights[i] >= terms.least_weight ? weights[i] : 0.0;
                weights[i] = logits[i] >= terms.least_logit ? heavy : 0.0;
            }
            sum = add_up(size_t(row.size(s)), [&](size_t i) { return weights[i]; });
        }
        total += sum;
    }
    return total;
}

int Sampler::draw_from_all(const Row& row, double target, const Scratch& scratch) const {
    int stretch = 0;
    double running = 0.0;
    while (stretch < row.stretches - 1 && running + scratch.sums[size_t(stretch)] <= target) running += scratch.sums[size_t(stretch++)];
    const int last = row.first(stretch) + row.size(stretch) - 1;
    int id = row.first(stretch);
    while (id < last && (running += scratch.weights[size_t(id)]) <= target) ++id;
    return id;
}

int Sampler::draw_from_nucleus(const Row& row, double total, double top_p, double uniform, Scratch& scratch) const {
    const double need = top_p * total;
    // Few tokens hold most of the weight: the heavy ones are often enough. All that are lighter than a vocabulary's share of what is not
    // needed, together, are not needed.
    Kept* const kept = scratch.kept.data();
    Kept* end = kept;
    for (const double share : {64.0, double(row.vocab)}) {
        const double least = (1.0 - top_p) * total / share;
        end = kept;
        for (int s = 0; s < row.stretches; ++s) {
            if (scratch.sums[size_t(s)] < least) continue;
            for (int id = row.first(s); id < row.first(s) + row.size(s); ++id) {
                *end = {id, scratch.weights[size_t(id)]};
                end += end->weight >= least;  // no branch: which are heavy cannot be foreseen
            }
        }
        if (add_up(size_t(end - kept), [&](size_t i) { return kept[i].weight; }) >= need) break;
    }
    const double edge = reach(kept, end, need, scratch);
    const double target = uniform * add_up(size_t(end - kept), [&](size_t i) { return kept[i].weight >= edge ? kept[i].weight : 0.0; });
    double running = 0.0;
    for (const Kept* k = kept; k < end; ++k)
        if (k->weight >= edge && (running += k->weight) > target) return k->id;
    return end[-1].id;
}

// The weight at which the running sum, from the heaviest down, reaches what is needed. All are positive.
double Sampler::reach(const Kept* begin, const Kept* end, double need, Scratch& scratch) {
    std::vector<double>& buckets = scratch.buckets;
    std::fill(buckets.begin(), buckets.end(), 0.0);
    for (const Kept* k = begin; k < end; ++k) buckets[bucket_of(k->weight)] += k->weight;
    size_t bucket = kBuckets - 1;
    double above = 0.0;
    while (bucket > 0 && above + buckets[bucket] < need) above += buckets[bucket--];
    std::vector<double>& edge = scratch.edge;
    edge.clear();
    for (const Kept* k = begin; k < end; ++k)
        if (bucket_of(k->weight) == bucket) edge.push_back(k->weight);
    std::sort(edge.begin(), edge.end(), std::greater<double>());
    size_t last = 0;
    while (last + 1 < edge.size() && (above += edge[last]) < need) ++last;
    return edge[last];
}

// Logprobs of the raw logits: of the token, with its rank, and of the `count` best.
void Sampler::score(int d, const Row& row, int token, int count, const Samples& samples, Scratch& scratch) const {
    const double shift = double(row.peak) + std::log(weigh(row, Terms(row, 1.0f), scratch));
    const auto logprob = [&](int id) { return float(double(row.logits[id]) - shift); };
    samples.logprobs[d] = logprob(token);
    samples.ranks[d] = row.count_above(row.logits[token]) + 1;
    if (count == 0) return;
    std::vector<int32_t>& ids = scratch.ids;
    ids.clear();
    row.each_from(row.largest(count, scratch.logits.data()), [&](int id) { ids.push_back(id); });
    const auto better = [&](int a, int b) { return row.logits[a] != row.logits[b] ? row.logits[a] > row.logits[b] : a < b; };
    std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), better);
    for (int n = 0; n < count; ++n) {
        const size_t at = size_t(d) * size_t(samples.most) + size_t(n);
        samples.top_ids[at] = ids[size_t(n)];
        samples.top_logprobs[at] = logprob(ids[size_t(n)]);
    }
}

}  // namespace octavo
