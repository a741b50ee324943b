// The kernels of one instruction set, as a table of functions. `generic` is the documentation: the others must agree with it.
//
// Rows of activations are independent: what a kernel computes for a row never depends on which rows come with it, nor on how many.
// That makes tokens equal, bit for bit, in any batch and any chunking.
#pragma once
#include <cstdint>

#include "activations.h"
#include "kv_format.h"
#include "pack.h"

namespace octavo {

// A group whose largest size is below this has a scale and codes of 0: 127 / size would leave the range of a float, and a product of
// scales its normal numbers, where 1 / 256 of it is no longer exact.
constexpr float kQuantiseFloor = 8.271806125530277e-25f;  // 2^-80

// Online softmax of up to kVectors query heads that share one key-value head. Positions are processed in spans of kSpan, aligned to
// absolute positions, so that a query's result depends on its own position only. Long contexts fall into chunks of kContextChunk positions,
// which any worker may do; their results are put together in the chunks' order, whoever did them.
constexpr int kVectors = 12;
constexpr int kSpan = 128;
constexpr int kContextChunk = 1024;

// What a chunk leaves of each query: head_dim weighted sums, the largest score (times log2 e) and the sum of weights.
constexpr int partial_stride(int head_dim) { return head_dim + 16; }

// A head's keys and values of one chunk as bf16, each part of them made of int8 when it is first asked for: the queries of a prompt, unit after
// unit, then read them. Only for one chunk, head and row, and until a position of it is written again.
struct Expanded {
    struct Half {
        uint16_t* parts;             // [kContextChunk][head_dim]
        uint64_t there;              // a bit for each part
    } keys, values;
};
static_assert(kContextChunk / kPart == 64);

struct AttentionUnit {
    const float* queries[kVectors];  // each [head_dim]
    float* outputs[kVectors];        // each [head_dim]; may be the query's own memory
    int positions[kVectors];         // position of each query; it sees first … positions[v]
    int first[kVectors];             // the first position each sees
    float sinks[kVectors];           // extra logit, where has_sinks; it counts in the chunk of the first position
    int vectors;
    bool has_sinks;
    int head_dim;                    // a multiple of 16
    int block_size;                  // a power of two, 16 or more
    float scale;
    float softcap;                   // 0: none
    int begin, end;                  // the chunk: what is seen outside begin … end-1 is another call's; begin is a multiple of kSpan
    float* partial;                  // [vectors][partial_stride]; null: the chunk has all that is seen, and outputs are written
    const int32_t* table;            // the row's block table
    KVFormat format;
    const uint8_t* keys;             // this head's part of block 0; see kv_format.h
    const uint8_t* values;
    int64_t block_stride;            // bytes between blocks, in keys and in values
    Expanded* expanded;              // of the chunk that begins at `begin`; null: what is expanded is for this unit alone
};

enum class Gate : int { Silu, GeluTanh, Gelu, Relu };

// erfc(z) = t e^(p(t) - z^2) for z >= 0, with t = 1 / (1 + z / 2): p's coefficients, from the constant one on. The polynomial of degree 9
// with the least error, 4.5e-8 for z up to 9.5; in floats 1.7e-7.
constexpr float kComplement[] = {-1.2654334f, 0.99834144f, 0.38911715f, 0.022874143f, 0.035467863f, -0.1441735f, -0.6195233f, 1.0994384f, -0.6566158f, 0.14050713f};

struct Best {  // the largest logit of a row so far
    float value;
    int32_t index;
    bool nan;
};

// How logits become the weights that sampling draws by; see octavo.runner.weights.
struct Weighing {
    double peak;    // the largest logit
    double rate;    // log2(e) / temperature
    double spread;  // a power of two, not below the size of the vocabulary
};

// Logits are looked at in stretches, each by its largest, so that most of a vocabulary need not be touched again.
constexpr int kStretch = 64;

struct Kernels {
    const char* name;

    // y[m][ld] (tile t at column 16 t) = activations x tiles first … last-1 of the matrix, for quantized and bf16 packings.
    void (*matmul)(const Matrix& matrix, int first, int last, const Activations& x, int rows, float* y, int ld);
    // The same for f16 and f32 packings, from float activations [rows][x_ld].
    void (*matmul_float)(const Matrix& matrix, int first, int last, const float* x, int x_ld, int rows, float* y, int ld);

    // One row of k elements (a multiple of 32) into row `row` of x, refined nowhere.
    void (*quantise)(const float* values, int k, const Activations& x, int row);
    // To the nearest even; subnormal numbers may become zeros.
    void (*to_bf16)(const float* values, int k, uint16_t* out);

    // y = x / sqrt(mean(x^2) + eps) * w over each run of `width` elements. With a residual, x + residual takes the place of x and is
    // kept in `sum`, which may be x or the residual itself; without one sum is null, and y may be x.
    void (*rms_norm)(const float* x, const float* residual, float* sum, const float* weight, int size, int width, float eps, float* y);
    // out = gate(a) * b; out may be a
    void (*gated)(const float* a, const float* b, int size, Gate kind, float* out);
    // Rotate `heads` heads in place; cos and sin are [turned / 2].
    void (*rope)(float* x, int heads, int head_dim, int turned, bool interleaved, const float* cos, const float* sin);
    // `scratch` has attention_scratch floats.
    void (*attention)(const AttentionUnit& unit, float* scratch);
    // Fold values[0 … count-1], whose first is column `base`, into best.
    void (*argmax)(const float* values, int count, int base, Best& best);
    // The largest of each stretch of `count` logits, or NaN if one is NaN.
    void (*maxima)(const float* logits, int count, float* out);
    // Weights of logits that are neither NaN nor above the peak; returns their sum. The same bits in every set.
    double (*weigh)(const float* logits, int count, const Weighing& how, double* weights);
    // out = logits, with -inf for token t unless bit t % 32, from the least, of words[t / 32] is 1.
    void (*mask)(const float* logits, int count, const uint32_t* words, float* out);
    // Codes of a head's key (groups of kKeyGroup) or value (kValueGroup), and a bf16 scale for each group. The same bits in every set.
    void (*kv_codes)(const float* values, int dim, int group, int8_t* codes, uint16_t* scales);
};

// Floats of scratch that `attention` needs: scores, weights, queries and sums, and room for the keys of 32 positions and the values of a span
// where they are not stored as bf16.
constexpr int attention_scratch(int head_dim) { return kVectors * (2 * kSpan + head_dim * 2 + 64) + head_dim * (32 + kSpan) / 2; }

const Kernels* generic_kernels();
// Null where they were not compiled.
const Kernels* avx512_kernels();
const Kernels* avx_vnni_kernels();
const Kernels* avx2_kernels();
const Kernels* neon_i8mm_kernels();
const Kernels* neon_dotprod_kernels();
const Kernels* neon_kernels();
// The best set this processor runs, or the one named; null if it is unknown or cannot run here.
const Kernels* choose_kernels(const char* name);

}  // namespace octavo
