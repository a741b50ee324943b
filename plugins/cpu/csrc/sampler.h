// Chooses tokens from logits as octavo.runner.sampler says, whose docstring has the semantics, in native code and on all threads. It gives
// the same tokens, always: what is drawn by is defined to the last bit (octavo.runner.weights), and sums of it have no rounding error.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels.h"
#include "pool.h"

namespace octavo {

// octavo.platform.SamplingBatch: arrays are [draws] where nothing else is said.
struct SamplingBatch {
    int draws, biases, masks;
    const int32_t *row, *target;
    const float* temperature;
    const int32_t* top_k;
    const float *top_p, *min_p, *repetition, *presence, *frequency;
    const uint64_t* seed;
    const int32_t *sample_index, *position, *logprobs;
    const int32_t *bias_draw, *bias_token;  // [biases]
    const float* bias_value;                // [biases]
    const int32_t *history_starts, *history_prompts, *history;  // [draws + 1], [draws], [history_starts[draws]]
    const int32_t* mask_draw;                                   // [masks]
    const uint32_t* mask_words;                                 // [masks][ceil(vocab / 32)]
};

// octavo.platform.Samples: arrays are [draws]. The last four are null if no draw asks for logprobs; of the best alternatives there are
// [draws][most], and nothing is written where a draw has fewer.
struct Samples {
    int most;
    int32_t* tokens;
    uint8_t* failed;
    float* logprobs;
    int32_t *ranks, *top_ids;
    float* top_logprobs;
};

class Sampler {
public:
    Sampler(std::shared_ptr<Pool> pool, const Kernels* kernels);

    // Fill `samples` from logits [rows][vocab]. std::out_of_range if the batch names a row, draw or token that there is not, or has
    // parameters that nothing can be drawn by.
    void sample(const float* logits, int rows, int vocab, const SamplingBatch& batch, const Samples& samples);

private:
    struct Row;
    struct Terms;
    struct Kept { int32_t id; double weight; };
    struct Scratch {  // of one worker
        std::vector<float> shaped, maxima, shaped_maxima, logits;
        std::vector<int32_t> counts, ids;
        std::vector<double> weights, sums, buckets, edge;  // weights are there for stretches whose sum is not 0
        std::vector<Kept> kept;
    };

    void sort_biases(const SamplingBatch& batch);
    void sort_masks(const SamplingBatch& batch, int vocab);
    void fit(int vocab);
    void draw(int d, const float* raw, int vocab, const SamplingBatch& batch, const Samples& samples, Scratch& scratch) const;
    void shape(int d, const float* raw, int vocab, const SamplingBatch& batch, Scratch& scratch) const;
    Row look(const float* logits, int vocab, std::vector<float>& maxima) const;
    int choose(int d, const Row& row, const SamplingBatch& batch, Scratch& scratch) const;
    double weigh(const Row& row, const Terms& terms, Scratch& scratch) const;
    int draw_from_all(const Row& row, double target, const Scratch& scratch) const;
    int draw_from_nucleus(const Row& row, double total, double top_p, double uniform, Scratch& scratch) const;
    static double reach(const Kept* begin, const Kept* end, double need, Scratch& scratch);
    void score(int d, const Row& row, int token, int count, const Samples& samples, Scratch& scratch) const;

    std::shared_ptr<Pool> pool_;
    const Kernels* kernels_;
    std::vector<Scratch> scratch_;                // per worker
    std::vector<int> bias_starts_, bias_order_;   // of draw d: the biases bias_order_[bias_starts_[d] … bias_starts_[d + 1] - 1]
    std::vector<const uint32_t*> masks_;          // of each draw, null for none
};

}  // namespace octavo
