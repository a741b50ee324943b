// The kernels of a named set, one by one, through a C interface, for tests. The engine does not come here.
//
// Every integer is an int64_t and every real a double, so that a caller needs no table of signatures. Arrays are the caller's, in the
// shapes that kernels.h gives. A set is what octavo_kernel_set returned; formats are numbered as in blocks.h, gates as in kernels.h.
#pragma once
#include <cstdint>

extern "C" {

// The set of that name (empty: the best), or null where this library does not have it or this processor cannot run it.
const void* octavo_kernel_set(const char* name);

// -- weights -------------------------------------------------------------------------------------------------------------------

int64_t octavo_kernel_tile_bytes(int64_t format, int64_t inputs);

// Tiles first … last-1 into `out`, tile `first` at its start.
void octavo_kernel_pack(int64_t format, const uint8_t* rows, int64_t row_bytes, int64_t outputs, int64_t inputs, int64_t first, int64_t last,
                        uint8_t* out);

void octavo_kernel_dequantise(int64_t format, const uint8_t* row, int64_t columns, float* out);

// -- matrices ------------------------------------------------------------------------------------------------------------------

// codes, scales, sums, half_sums for quantized formats, bf16 for bf16: the others may be null, and low, low_half_sums, refined together. `k` is
// the stride of the rows.
void octavo_kernel_matmul(const void* set, int64_t format, const uint8_t* packed, int64_t outputs, int64_t inputs, int64_t first, int64_t last,
                          int8_t* codes, float* scales, float* sums, int32_t* half_sums, uint16_t* bf16, int64_t k, int8_t* low,
                          int32_t* low_half_sums, uint8_t* refined, int64_t rows, float* y, int64_t ld);

void octavo_kernel_matmul_float(const void* set, int64_t format, const uint8_t* packed, int64_t outputs, int64_t inputs, int64_t first,
                                int64_t last, const float* x, int64_t x_ld, int64_t rows, float* y, int64_t ld);

// -- rows of activations -------------------------------------------------------------------------------------------------------

// `values` has `count` elements; the arrays hold rows of `k`.
void octavo_kernel_quantise(const void* set, const float* values, int64_t count, int8_t* codes, float* scales, float* sums, int32_t* half_sums,
                            int64_t k, int64_t row);

// The row's groups above the threshold; see refine.h. The same for every set.
void octavo_kernel_refine(const float* values, int64_t count, double threshold, int8_t* codes, float* scales, float* sums, int32_t* half_sums,
                          int64_t k, int8_t* low, int32_t* low_half_sums, uint8_t* refined, int64_t row);

void octavo_kernel_to_bf16(const void* set, const float* values, int64_t count, uint16_t* out);

void octavo_kernel_rms_norm(const void* set, const float* x, const float* residual, float* sum, const float* weight, int64_t size, int64_t width,
                            double eps, float* y);

void octavo_kernel_gated(const void* set, const float* a, const float* b, int64_t size, int64_t kind, float* out);

void octavo_kernel_rope(const void* set, float* x, int64_t heads, int64_t head_dim, int64_t turned, int64_t interleaved, const float* cos,
                        const float* sin);

// value, index and nan hold the best so far, and take the new one.
void octavo_kernel_argmax(const void* set, const float* values, int64_t count, int64_t base, float* value, int32_t* index, uint8_t* nan);

// `codes` [dim] and `scales` [dim / group], as bf16, of a key or value.
void octavo_kernel_kv_codes(const void* set, const float* values, int64_t dim, int64_t group, int8_t* codes, uint16_t* scales);

// -- sampling ------------------------------------------------------------------------------------------------------------------

// out has one element for each 64 of `count` logits.
void octavo_kernel_maxima(const void* set, const float* logits, int64_t count, float* out);

// `out` [count]: logits, -inf where their bit of `words` [ceil(count / 32)] is 0.
void octavo_kernel_mask(const void* set, const float* logits, int64_t count, const uint32_t* words, float* out);

// weights [count], and their sum.
void octavo_kernel_weigh(const void* set, const float* logits, int64_t count, double peak, double rate, double spread, double* weights,
                         double* sum);

// The whole sampler, on threads of its own; the arrays are those of SamplingBatch and Samples (sampler.h) in their order. `wrong` becomes 1
// where the batch names what there is not, else 0.
void octavo_kernel_sample(const void* set, int64_t threads, const float* logits, int64_t rows, int64_t vocab, int64_t draws, int64_t biases,
                          int64_t most, int64_t masks, const int32_t* row, const int32_t* target, const float* temperature, const int32_t* top_k,
                          const float* top_p, const float* min_p, const float* repetition, const float* presence, const float* frequency,
                          const uint64_t* seed, const int32_t* sample_index, const int32_t* position, const int32_t* logprobs,
                          const int32_t* bias_draw, const int32_t* bias_token, const float* bias_value, const int32_t* history_starts,
                          const int32_t* history_prompts, const int32_t* history, const int32_t* mask_draw, const uint32_t* mask_words,
                          int32_t* tokens, uint8_t* failed, float* token_logprobs, int32_t* ranks, int32_t* top_ids, float* top_logprobs,
                          uint8_t* wrong);

// -- attention -----------------------------------------------------------------------------------------------------------------

int64_t octavo_kernel_attention_scratch(int64_t head_dim);

// One unit, over positions begin … end-1: queries and outputs are [vectors][head_dim] and may be the same memory; sinks and partial may be
// null; formats of keys and values are numbered as in kv_format.h, block_stride is in bytes; scratch has octavo_kernel_attention_scratch floats.
void octavo_kernel_attention(const void* set, const float* queries, float* outputs, const int32_t* positions, const int32_t* first,
                             const float* sinks, int64_t vectors, int64_t head_dim, int64_t block_size, double scale, double softcap,
                             int64_t begin, int64_t end, float* partial, const int32_t* table, int64_t format, const uint8_t* keys,
                             const uint8_t* values, int64_t block_stride, float* scratch);

}  // extern "C"
