#include "kernel_api.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "kernels.h"
#include "refine.h"
#include "sampler.h"

using namespace octavo;

namespace {

const Kernels& set_of(const void* set) { return *static_cast<const Kernels*>(set); }

Matrix matrix_of(int64_t format, const uint8_t* packed, int64_t outputs, int64_t inputs) {
    return matrix_for(Format(format), int(outputs), int(inputs), packed);
}

// Room for the activations of a few rows.
class Blocks {
public:
    Blocks(int k, int rows) : bytes_(blocks_bytes(k, rows) + 64), k_(k), height_(height_for(rows)) {}
    Activations view() {
        return {reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(bytes_.data()) + 63) / 64 * 64), nullptr, k_, height_};
    }

private:
    std::vector<uint8_t> bytes_;
    int k_, height_;
};

// A caller's arrays of activations, each of rows of k; the last three may be null.
struct Rows {
    int8_t* codes;
    float *scales, *sums;
    int32_t* half_sums;
    int8_t* low;
    int32_t* low_half_sums;
    uint8_t* refined;
    int k;

    // Copy a row of them to where kernels have it, or back.
    void put(const Activations& x, int row) const { copy(x, row, true); }
    void take(const Activations& x, int row) const { copy(x, row, false); }

private:
    // The caller's are 32 times the sums.
    static void move_sums(int32_t* own, int16_t* block, bool there) {
        for (int h = 0; h < 2; ++h) {
            if (there) block[h] = int16_t(own[h] / 32);
            else own[h] = 32 * block[h];
        }
    }
    void copy(const Activations& x, int row, bool there) const {
        const auto move = [there](auto* own, auto* block, size_t count) {
            if (there) std::copy_n(own, count, block);
            else std::copy_n(block, count, own);
        };
        BlockRows block(x, row);
        for (int g = 0; g < k / 32; ++g, block.next()) {
            const size_t at = size_t(row) * size_t(k / 32) + size_t(g);
            move(codes + at * 32, block.codes(0), 32);
            move(scales + at, &block[0].scale, 1);
            move(sums + at, &block[0].sum, 1);
            move_sums(half_sums + at * 2, block[0].half_sums, there);
            if (!refined) continue;
            move(low + at * 32, block.low(0), 32);
            move_sums(low_half_sums + at * 2, block[0].low_half_sums, there);
            if (there) block.refined(0, refined[at] != 0);
            else refined[at] = block.refined(0);
        }
    }
};

}  // namespace

extern "C" {

const void* octavo_kernel_set(const char* name) { return choose_kernels(name); }

int64_t octavo_kernel_tile_bytes(int64_t format, int64_t inputs) { return int64_t(tile_bytes(Format(format), int(inputs))); }

void octavo_kernel_pack(int64_t format, const uint8_t* rows, int64_t row_bytes, int64_t outputs, int64_t inputs, int64_t first, int64_t last,
                        uint8_t* out) {
    pack_tiles(Format(format), rows, size_t(row_bytes), int(outputs), int(inputs), int(first), int(last), out);
}

void octavo_kernel_dequantise(int64_t format, const uint8_t* row, int64_t columns, float* out) {
    dequantise_row(Format(format), row, int(columns), out);
}

void octavo_kernel_matmul(const void* set, int64_t format, const uint8_t* packed, int64_t outputs, int64_t inputs, int64_t first, int64_t last,
                          int8_t* codes, float* scales, float* sums, int32_t* half_sums, uint16_t* bf16, int64_t k, int8_t* low,
                          int32_t* low_half_sums, uint8_t* refined, int64_t rows, float* y, int64_t ld) {
    const Rows arrays = {codes, scales, sums, half_sums, low, low_half_sums, refined, int(k)};
    Blocks blocks{int(k), int(rows)};
    for (int row = 0; codes && row < int(rows); ++row) arrays.put(blocks.view(), row);
    Activations x = blocks.view();
    x.bf16 = bf16;
    set_of(set).matmul(matrix_of(format, packed, outputs, inputs), int(first), int(last), x, int(rows), y, int(ld));
}

void octavo_kernel_matmul_float(const void* set, int64_t format, const uint8_t* packed, int64_t outputs, int64_t inputs, int64_t first,
                                int64_t last, const float* x, int64_t x_ld, int64_t rows, float* y, int64_t ld) {
    set_of(set).matmul_float(matrix_of(format, packed, outputs, inputs), int(first), int(last), x, int(x_ld), int(rows), y, int(ld));
}

void octavo_kernel_quantise(const void* set, const float* values, int64_t count, int8_t* codes, float* scales, float* sums, int32_t* half_sums,
                            int64_t k, int64_t row) {
    const Rows arrays = {codes, scales, sums, half_sums, nullptr, nullptr, nullptr, int(k)};
    Blocks blocks{int(k), int(row) + 1};
    arrays.put(blocks.view(), int(row));
    set_of(set).quantise(values, int(count), blocks.view(), int(row));
    arrays.take(blocks.view(), int(row));
}

void octavo_kernel_refine(const float* values, int64_t count, double threshold, int8_t* codes, float* scales, float* sums, int32_t* half_sums,
                          int64_t k, int8_t* low, int32_t* low_half_sums, uint8_t* refined, int64_t row) {
    const Rows arrays = {codes, scales, sums, half_sums, low, low_half_sums, refined, int(k)};
    Blocks blocks{int(k), int(row) + 1};
    arrays.put(blocks.view(), int(row));
    refine(values, int(count), float(threshold), blocks.view(), int(row));
    arrays.take(blocks.view(), int(row));
}

void octavo_kernel_to_bf16(const void* set, const float* values, int64_t count, uint16_t* out) { set_of(set).to_bf16(values, int(count), out); }

void octavo_kernel_rms_norm(const void* set, const float* x, const float* residual, float* sum, const float* weight, int64_t size, int64_t width,
                            double eps, float* y) {
    set_of(set).rms_norm(x, residual, sum, weight, int(size), int(width), float(eps), y);
}

void octavo_kernel_gated(const void* set, const float* a, const float* b, int64_t size, int64_t kind, float* out) {
    set_of(set).gated(a, b, int(size), Gate(kind), out);
}

void octavo_kernel_rope(const void* set, float* x, int64_t heads, int64_t head_dim, int64_t turned, int64_t interleaved, const float* cos,
                        const float* sin) {
    set_of(set).rope(x, int(heads), int(head_dim), int(turned), interleaved != 0, cos, sin);
}

void octavo_kernel_argmax(const void* set, const float* values, int64_t count, int64_t base, float* value, int32_t* index, uint8_t* nan) {
    Best best = {*value, *index, *nan != 0};
    set_of(set).argmax(values, int(count), int(base), best);
    *value = best.value;
    *index = best.index;
    *nan = best.nan;
}

void octavo_kernel_maxima(const void* set, const float* logits, int64_t count, float* out) { set_of(set).maxima(logits, int(count), out); }

void octavo_kernel_kv_codes(const void* set, const float* values, int64_t dim, int64_t group, int8_t* codes, uint16_t* scales) {
    set_of(set).kv_codes(values, int(dim), int(group), codes, scales);
}

void octavo_kernel_mask(const void* set, const float* logits, int64_t count, const uint32_t* words, float* out) {
    set_of(set).mask(logits, int(count), words, out);
}

void octavo_kernel_weigh(const void* set, const float* logits, int64_t count, double peak, double rate, double spread, double* weights,
                         double* sum) {
    *sum = set_of(set).weigh(logits, int(count), {peak, rate, spread}, weights);
}

void octavo_kernel_sample(const void* set, int64_t threads, const float* logits, int64_t rows, int64_t vocab, int64_t draws, int64_t biases,
                          int64_t most, int64_t masks, const int32_t* row, const int32_t* target, const float* temperature, const int32_t* top_k,
                          const float* top_p, const float* min_p, const float* repetition, const float* presence, const float* frequency,
                          const uint64_t* seed, const int32_t* sample_index, const int32_t* position, const int32_t* logprobs,
                          const int32_t* bias_draw, const int32_t* bias_token, const float* bias_value, const int32_t* history_starts,
                          const int32_t* history_prompts, const int32_t* history, const int32_t* mask_draw, const uint32_t* mask_words,
                          int32_t* tokens, uint8_t* failed, float* token_logprobs, int32_t* ranks, int32_t* top_ids, float* top_logprobs,
                          uint8_t* wrong) {
    const SamplingBatch batch = {int(draws), int(biases), int(masks), row,        target,         temperature,     top_k,   top_p,
                                 min_p,      repetition,  presence,   frequency,  seed,           sample_index,    position,
                                 logprobs,   bias_draw,   bias_token, bias_value, history_starts, history_prompts, history, mask_draw,
                                 mask_words};
    try {
        Sampler sampler(std::make_shared<Pool>(int(threads), std::vector<int>()), &set_of(set));
        sampler.sample(logits, int(rows), int(vocab), batch, {int(most), tokens, failed, token_logprobs, ranks, top_ids, top_logprobs});
        *wrong = 0;
    } catch (const std::out_of_range&) {
        *wrong = 1;
    }
}

int64_t octavo_kernel_attention_scratch(int64_t head_dim) { return attention_scratch(int(head_dim)); }

void octavo_kernel_attention(const void* set, const float* queries, float* outputs, const int32_t* positions, const int32_t* first,
                             const float* sinks, int64_t vectors, int64_t head_dim, int64_t block_size, double scale, double softcap,
                             int64_t begin, int64_t end, float* partial, const int32_t* table, int64_t format, const uint8_t* keys,
                             const uint8_t* values, int64_t block_stride, float* scratch) {
    AttentionUnit unit{};
    unit.vectors = int(vectors);
    unit.has_sinks = sinks != nullptr;
    unit.head_dim = int(head_dim);
    unit.block_size = int(block_size);
    unit.scale = float(scale);
    unit.softcap = float(softcap);
    unit.begin = int(begin);
    unit.end = int(end);
    unit.partial = partial;
    unit.table = table;
    unit.format = KVFormat(format);
    unit.keys = keys;
    unit.values = values;
    unit.block_stride = block_stride;
    for (int v = 0; v < unit.vectors; ++v) {
        unit.queries[v] = queries + v * head_dim;
        unit.outputs[v] = outputs + v * head_dim;
        unit.positions[v] = positions[v];
        unit.first[v] = first[v];
        unit.sinks[v] = sinks ? sinks[v] : 0.0f;
    }
    set_of(set).attention(unit, scratch);
}

}  // extern "C"
