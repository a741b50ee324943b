// A model as a flat list of native steps over planned buffers, and the loop that runs it: one call per engine step.
#pragma once
#include <cstdint>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "clock.h"
#include "kernels.h"
#include "kv_store.h"
#include "pool.h"

namespace octavo {

enum class Op : int { Embed, RmsNorm, Quantise, Linear, Rope, WriteKV, Attention, Gated, Add, Mul, Scale, Softcap, TakeRows, Bias, LayerNorm, Pool, Pooled };

// What a step leaves in the shared quantized activations beside (or instead of) its float output.
enum class Feed : int { None, Int8, Bf16 };

// What a step goes through: the tokens of the engine's step, those to sample, or its sequences.
enum class Domain : int { Tokens, Samples, Rows };

// How the tokens of a row become one vector.
enum class Pooling : int { Mean, First, Last };

// Which row of its table a token is embedded as: its id or its position, divided, the rest by modulo (0: all), plus add.
struct TableRow {
    int32_t of(int32_t id) const {
        const int32_t part = id / divide;
        return (modulo > 0 ? part % modulo : part) + add;
    }
    int positions = 0, divide = 1, modulo = 0, add = 0;
};

struct Step {
    Op op;
    Domain domain = Domain::Tokens;
    int in[3] = {-1, -1, -1};
    int out[4] = {-1, -1, -1, -1};
    int matrices[4] = {-1, -1, -1, -1};
    int count = 0;   // matrices of Linear
    int vector = -1; // weights of RmsNorm and LayerNorm, sinks of Attention, bias (of Linear that of the logits)
    int bias = -1;   // of LayerNorm
    int rope = -1;
    int width = 0, heads = 0, kv_heads = 0, head_dim = 0, group = 0, slot = 0, window = 0, run = 0;
    float eps = 0, scale = 0, softcap = 0;
    Gate gate = Gate::Silu;
    Feed feed = Feed::None;
    float refine = 0;  // see refine.h
    bool logits = false;  // Linear: the model's output
    bool bidirectional = false;  // Attention: queries see what follows them too
    Pooling pooling = Pooling::Mean;
    TableRow table;  // Embed
    // Set by Model::finish. With few rows a feeding step is done by every worker for itself, which saves the barrier after it.
    bool repeatable = false;   // this step feeds, makes no floats that others need at once, and a linear comes next
    bool private_feed = false; // Linear: what it multiplies was fed by a repeatable step
    int run_end = 0;           // the step after the last of those, from this one on, that take each token by itself
};

struct RopeTable {
    std::vector<double> frequencies;  // radians per position, [turned / 2]
    int head_dim = 0, turned = 0;
    bool interleaved = false;
};

struct Table {  // an embedding table, as its checkpoint stores it
    Format format;
    const uint8_t* rows;
    size_t row_bytes;
    int columns;
};

// The arrays of one engine step; see octavo.platform.StepInput.
struct StepArrays {
    int tokens_count, rows, samples, groups, table_width, copies_count;
    int slot_stride;   // tokens between the groups of `slots`
    int table_stride;  // rows between the groups of `tables`
    const int32_t *tokens, *positions, *query_starts, *context_lens, *slots, *tables, *sample_rows, *copies;
};

// Where a step's results go. Of the first two one is null.
struct Results {
    float* logits;  // [samples][vocab]
    Best* best;     // [samples]
    float* pooled;  // [rows][width], of a model that pools
};

// Tokens that go through the layers together: their activations stay in the caches, where those of a long prompt would go to memory and back
// at every step, and the weights are still read for many.
constexpr int kPieceTokens = 256;

// From this many on, workers take tokens through whole runs of steps, kRunTokens at a time: what a step leaves is still in the core's own cache
// when the next one reads it, and nobody waits for others but at the ends of runs.
constexpr int kManyTokens = 64;
constexpr int kRunTokens = 2 * kBlockRows;
// Bytes of a matrix that such a piece goes through before its next rows do: they stay in the cache between.
constexpr size_t kRunBytes = 256 << 10;

class Model {
public:
    Model(std::shared_ptr<Pool> pool, const Kernels* kernels) : pool_(std::move(pool)), kernels_(kernels) {}

    std::vector<Matrix> matrices;
    std::vector<std::vector<float>> vectors;
    std::vector<Table> tables;
    std::vector<RopeTable> ropes;
    std::vector<Step> steps;
    std::vector<int> buffer_widths;
    int vocab = 0;

    // To be called when all steps are there.
    void finish();

    // Run one step, long ones in pieces of kPieceTokens; where a token may depend on those after it, in pieces of whole rows.
    void run(const StepArrays& arrays, KVStore& kv, const Results& to);

    // From the next run on, clock every step, from zero; or stop, which costs a step one branch that is always foretold.
    void clock(bool on) { clock_ = on ? std::make_unique<StepClock>(pool_->threads(), steps.size() + 1) : nullptr; }
    const StepClock* clock() const { return clock_.get(); }

private:
    struct Share { int first, last; };  // of rows or tiles, for one worker; empty when all are taken

    // Up to kFewRows rows a step's feed is cheaper to repeat than to wait for.
    bool repeats(const Step& step, int rows) const { return step.repeatable && rows <= kFewRows; }
    // What a step on so many rows is fed.
    Activations activations(int rows) { return {blocks_.as<uint8_t>(), bf16_.data(), widest_, height_for(rows)}; }
    // Lay out buffers for pieces of up to `tokens` tokens; called again when one is larger.
    void reserve(int tokens);
    void run_whole_rows(const StepArrays& arrays, KVStore& kv, const Results& to);
    void run_piece(const StepArrays& arrays, KVStore& kv, const Results& to);
    void work(int worker, const StepArrays& arrays, KVStore& kv, const Results& to);
    // Wait for the other workers at the end of a step, or of a part of it.
    void meet(const Step& step, int worker);
    void execute(const Step& step, int worker, const StepArrays& arrays, KVStore& kv, const Results& to);
    void execute_row(const Step& step, int worker, int r, bool repeated, const StepArrays& arrays, KVStore& kv, const Activations& fed, const Results& to);
    // The steps of encoders: LayerNorm, Pool, Pooled.
    void encode_row(const Step& step, int worker, int r, const StepArrays& arrays, const Activations& fed, const Results& to);
    int rows_of(const Step& step, const StepArrays& arrays) const;
    // Take tokens, piece by piece, through steps first … last-1.
    void run_tokens(size_t first, size_t last, int worker, const StepArrays& arrays, KVStore& kv, const Results& to);
    void multiply(const Step& step, int worker, const Matrix& matrix, int first, int last, int rows, float* y, int ld);
    void multiply_rows(const Step& step, const Matrix& matrix, int out, int first_row, int last_row, int rows);
    void linear(const Step& step, int worker, int rows);
    void logits_or_best(const Step& step, int worker, int rows, const Results& to);
    void write_kv(const Step& step, const StepArrays& arrays, KVStore& kv, int token, const float* key, const float* value, float* scratch);
    void attention(const Step& step, int worker, const StepArrays& arrays, KVStore& kv);
    AttentionUnit attention_unit(const Step& step, const StepArrays& arrays, KVStore& kv, int row, int head, int slice, int first_query, int queries);
    void attend_in_chunks(AttentionUnit& unit, int worker);
    // What units of one step, row and head share; one worker's.
    struct Shared {
        const Step* step;
        int row, head, begin;
        Expanded parts;
        std::vector<uint16_t> memory;
    };
    // The worker's, emptied if it was another step's, row's, head's or chunk's.
    Expanded* shared_by(const Step& step, int row, int head, int begin, int worker);
    struct RowUnits {
        int queries;              // of a unit
        int slices;               // of the heads that share a key-value head
        int groups;               // of queries
        int chunks, first_chunk;  // of the context; 1 where a unit does all of it
        int units;
    };
    RowUnits row_units(const Step& step, const StepArrays& arrays, int row) const;
    void reserve_partials(const StepArrays& arrays);
    void reserve_shared(const KVStore& kv);
    void feed(const Step& step, const float* values, int width, int row, const Activations& to);
    // The next piece of a step's `count` rows or tiles. Workers take pieces as they come free: on a shared machine one of them may
    // lose its core for a while, and what it has not taken the others do.
    Share take(const Step& step, int count);
    Share share(int count, int worker) const;
    float* row(int buffer, int index) { return buffers_[size_t(buffer)] + size_t(index) * size_t(stride(buffer)); }
    int stride(int buffer) const { return (buffer_widths[size_t(buffer)] + 15) / 16 * 16; }

    std::shared_ptr<Pool> pool_;
    const Kernels* kernels_;
    bool whole_rows_ = false;            // see run
    Domain scored_ = Domain::Samples;    // what there are logits of
    int pooled_width_ = 0;
    int reserved_ = 0;
    Pages arena_;
    std::vector<float*> buffers_;
    Pages blocks_;
    std::vector<uint16_t> bf16_;
    int widest_ = 0;                      // row stride of the activations
    Pages private_pages_;
    std::vector<std::vector<uint16_t>> private_bf16_;  // per worker
    std::vector<Activations> private_;                 // per worker, for kFewRows rows
    std::vector<std::vector<float>> cosines_, sines_;  // per rope table, [tokens][turned / 2]
    std::vector<std::vector<float>> scratch_;          // per worker
    std::vector<float> ones_;                          // as wide as the widest buffer
    std::vector<std::vector<Best>> bests_;             // per worker
    std::vector<float> partials_;                      // what chunks of long contexts leave; see Model::attention
    std::vector<Shared> shared_;                       // per worker, where the cache has to be expanded
    std::unique_ptr<std::atomic<int>[]> taken_;  // per step, how much of it was taken
    std::unique_ptr<StepClock> clock_;           // null unless somebody profiles
};

}  // namespace octavo
