// The C interface that Python calls through ctypes, which lets go of the interpreter lock for each call.
//
// Functions that can fail return null or a negative number and leave a message for octavo_error().
#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include "plan.h"
#include "sampler.h"

using namespace octavo;

namespace {

thread_local std::string last_error;

template <typename F>
auto guarded(F&& function, decltype(function()) failure) -> decltype(function()) {
    try {
        return function();
    } catch (const std::exception& error) {
        last_error = error.what();
        return failure;
    }
}

struct Handle {  // a model with the pool it runs on
    std::shared_ptr<Pool> pool;
    Model model;
};

}  // namespace

extern "C" {

const char* octavo_error() { return last_error.c_str(); }

// Name of the kernels that `wanted` (empty: the best) selects, or null.
const char* octavo_kernels(const char* wanted) {
    const Kernels* kernels = choose_kernels(wanted);
    return kernels ? kernels->name : nullptr;
}

void* octavo_pool_new(int threads, const int* cores, int core_count) {
    return guarded([&]() -> void* { return new std::shared_ptr<Pool>(std::make_shared<Pool>(threads, std::vector<int>(cores, cores + core_count))); }, nullptr);
}

void octavo_pool_free(void* pool) { delete static_cast<std::shared_ptr<Pool>*>(pool); }

// -- packing -------------------------------------------------------------------------------------------------------------------

int64_t octavo_packed_bytes(int format, int outputs, int inputs) {
    return int64_t(tile_bytes(Format(format), inputs)) * ((outputs + kTile - 1) / kTile);
}

// Pack a whole matrix with all threads. `out` is 64-byte aligned.
void octavo_pack(void* pool, int format, const uint8_t* rows, int64_t row_bytes, int outputs, int inputs, uint8_t* out) {
    Pool& workers = **static_cast<std::shared_ptr<Pool>*>(pool);
    const int tiles = (outputs + kTile - 1) / kTile;
    const size_t bytes = tile_bytes(Format(format), inputs);
    workers.run([&](int worker) {
        const int first = int(int64_t(tiles) * worker / workers.threads()), last = int(int64_t(tiles) * (worker + 1) / workers.threads());
        pack_tiles(Format(format), rows, size_t(row_bytes), outputs, inputs, first, last, out + size_t(first) * bytes);
    });
}

void octavo_dequantise(int format, const uint8_t* row, int columns, float* out) { dequantise_row(Format(format), row, columns, out); }

// -- models --------------------------------------------------------------------------------------------------------------------

void* octavo_model_new(void* pool, const char* kernels, int vocab) {
    return guarded([&]() -> void* {
        const std::shared_ptr<Pool>& shared = *static_cast<std::shared_ptr<Pool>*>(pool);
        Handle* handle = new Handle{shared, Model(shared, choose_kernels(kernels))};
        handle->model.vocab = vocab;
        return handle;
    }, nullptr);
}

void octavo_model_free(void* handle) { delete static_cast<Handle*>(handle); }

int octavo_add_matrix(void* handle, int format, int outputs, int inputs, const uint8_t* packed) {
    Model& model = static_cast<Handle*>(handle)->model;
    model.matrices.push_back(matrix_for(Format(format), outputs, inputs, packed));
    return int(model.matrices.size()) - 1;
}

int octavo_add_vector(void* handle, const float* values, int count) {
    Model& model = static_cast<Handle*>(handle)->model;
    model.vectors.emplace_back(values, values + count);
    return int(model.vectors.size()) - 1;
}

int octavo_add_table(void* handle, int format, const uint8_t* rows, int64_t row_bytes, int columns) {
    Model& model = static_cast<Handle*>(handle)->model;
    model.tables.push_back({Format(format), rows, size_t(row_bytes), columns});
    return int(model.tables.size()) - 1;
}

int octavo_add_rope(void* handle, const double* frequencies, int half, int head_dim, int interleaved) {
    Model& model = static_cast<Handle*>(handle)->model;
    model.ropes.push_back({std::vector<double>(frequencies, frequencies + half), head_dim, half * 2, interleaved != 0});
    return int(model.ropes.size()) - 1;
}

int octavo_add_buffer(void* handle, int width) {
    Model& model = static_cast<Handle*>(handle)->model;
    model.buffer_widths.push_back(width);
    return int(model.buffer_widths.size()) - 1;
}

// Integers in the order of Step's fields: op, domain, in[3], out[4], matrices[4], count, vector, rope, width, heads, kv_heads, head_dim,
// group, slot, window, run, gate, feed, logits, bias, bidirectional, pooling, and the four of its table row (34 of them); floats: eps, scale,
// softcap, refine.
void octavo_add_step(void* handle, const int* i, const float* f) {
    Step step;
    step.op = Op(i[0]);
    step.domain = Domain(i[1]);
    std::memcpy(step.in, i + 2, sizeof step.in);
    std::memcpy(step.out, i + 5, sizeof step.out);
    std::memcpy(step.matrices, i + 9, sizeof step.matrices);
    int* const fields[] = {&step.count, &step.vector, &step.rope, &step.width, &step.heads, &step.kv_heads, &step.head_dim, &step.group, &step.slot, &step.window, &step.run};
    for (int n = 0; n < 11; ++n) *fields[n] = i[13 + n];
    step.gate = Gate(i[24]);
    step.feed = Feed(i[25]);
    step.logits = i[26] != 0;
    step.bias = i[27];
    step.bidirectional = i[28] != 0;
    step.pooling = Pooling(i[29]);
    step.table = {i[30], i[31], i[32], i[33]};
    step.eps = f[0];
    step.scale = f[1];
    step.softcap = f[2];
    step.refine = f[3];
    static_cast<Handle*>(handle)->model.steps.push_back(step);
}

// Called once, when all steps are there.
void octavo_finish(void* handle) { static_cast<Handle*>(handle)->model.finish(); }

// sizes: tokens, rows, samples, groups, table width, copies. arrays: tokens, positions, query starts, context lengths, slots, tables, sample rows,
// copies. With logits null, best_value, best_index and best_nan [samples] are filled. A model that pools fills pooled [rows][width].
int octavo_run(void* handle, void* kv, const int* sizes, const int32_t* const* arrays, float* logits, float* best_value, int32_t* best_index, uint8_t* best_nan,
               float* pooled) {
    return guarded([&] {
        const StepArrays step = {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[0], sizes[1], arrays[0], arrays[1], arrays[2], arrays[3], arrays[4], arrays[5], arrays[6], arrays[7]};
        std::vector<Best> best(logits || pooled ? 0 : size_t(step.samples));
        static_cast<Handle*>(handle)->model.run(step, *static_cast<KVStore*>(kv), {logits, best.data(), pooled});
        for (size_t s = 0; s < best.size(); ++s) {
            best_value[s] = best[s].value;
            best_index[s] = best[s].index;
            best_nan[s] = best[s].nan;
        }
        return 0;
    }, -1);
}

// Clock the model's steps from now on, from zero, or no more.
int octavo_clock(void* handle, int on) {
    return guarded([&] { static_cast<Handle*>(handle)->model.clock(on != 0); return 0; }, -1);
}

// Seconds since the clock was switched on: [steps + 1][working, waiting], means over the threads; the last is what is prepared
// before the first step. The clock is on.
void octavo_clock_read(void* handle, double* seconds) { static_cast<Handle*>(handle)->model.clock()->read(seconds); }

// -- sampling ------------------------------------------------------------------------------------------------------------------

void* octavo_sampler_new(void* pool, const char* kernels) {
    return guarded([&]() -> void* { return new Sampler(*static_cast<std::shared_ptr<Pool>*>(pool), choose_kernels(kernels)); }, nullptr);
}

void octavo_sampler_free(void* sampler) { delete static_cast<Sampler*>(sampler); }

// sizes: rows, vocab, draws, biases, most, masks. batch and samples: the arrays of SamplingBatch and Samples (sampler.h) in their order.
int octavo_sample(void* sampler, const float* logits, const int* sizes, const void* const* batch, void* const* samples) {
    return guarded([&] {
        const void* const* from = batch;
        const auto ints = [&] { return static_cast<const int32_t*>(*from++); };
        const auto floats = [&] { return static_cast<const float*>(*from++); };
        SamplingBatch b{};
        b.draws = sizes[2];
        b.biases = sizes[3];
        b.masks = sizes[5];
        for (const int32_t** array : {&b.row, &b.target}) *array = ints();
        b.temperature = floats();
        b.top_k = ints();
        for (const float** array : {&b.top_p, &b.min_p, &b.repetition, &b.presence, &b.frequency}) *array = floats();
        b.seed = static_cast<const uint64_t*>(*from++);
        for (const int32_t** array : {&b.sample_index, &b.position, &b.logprobs, &b.bias_draw, &b.bias_token}) *array = ints();
        b.bias_value = floats();
        for (const int32_t** array : {&b.history_starts, &b.history_prompts, &b.history, &b.mask_draw}) *array = ints();
        b.mask_words = static_cast<const uint32_t*>(*from++);
        const Samples to = {sizes[4], static_cast<int32_t*>(samples[0]), static_cast<uint8_t*>(samples[1]), static_cast<float*>(samples[2]),
                            static_cast<int32_t*>(samples[3]), static_cast<int32_t*>(samples[4]), static_cast<float*>(samples[5])};
        static_cast<Sampler*>(sampler)->sample(logits, sizes[0], sizes[1], b, to);
        return 0;
    }, -1);
}

// -- the block pool ------------------------------------------------------------------------------------------------------------

// format: as numbered in kv_format.h
void* octavo_kv_new(int format, int slots, int blocks, int block_size, int kv_heads, int head_dim) {
    return guarded([&]() -> void* { return new KVStore(KVFormat(format), slots, blocks, block_size, kv_heads, head_dim); }, nullptr);
}

void octavo_kv_free(void* kv) { delete static_cast<KVStore*>(kv); }

// data: [2][slots][block_size][kv_heads][head_dim], keys first.
void octavo_kv_block(void* kv, int block, float* data, int write) {
    KVStore& store = *static_cast<KVStore*>(kv);
    std::vector<uint16_t> scratch(size_t(store.head_dim));
    const size_t token = size_t(store.kv_heads) * size_t(store.head_dim);
    for (int slot = 0; slot < store.slots; ++slot)
        for (int offset = 0; offset < store.block_size; ++offset) {
            float* key = data + (size_t(slot) * size_t(store.block_size) + size_t(offset)) * token;
            float* value = key + size_t(store.slots) * size_t(store.block_size) * token;
            const int64_t at = int64_t(block) * store.block_size + offset;
            if (write) store.write(*generic_kernels(), slot, at, key, value, scratch.data());
            else store.read(slot, at, key, value);
        }
}

}  // extern "C"
