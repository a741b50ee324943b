// Keys and values as codes of eight bits, which every set of kernels compiles for its own instruction set: loops that compilers make vectors
// of. All sets give the same bits.
//
// All static and without a template of the library's, as in numbers.h and for the same reason.
#pragma once
#include <cstdint>

#include "kernels.h"
#include "numbers.h"

namespace octavo {

// A scale is a bf16 number, rounded up so that no code exceeds 127; NaN, and codes of 1, where a number is not finite.
template <int group>
static inline uint16_t kv_group_codes(const float* values, int8_t* codes) {
    uint32_t sizes = 0;  // as bits: they are in the order of the sizes, and NaN above all
    for (int i = 0; i < group; ++i) {
        const uint32_t size = float_to_bits(values[i]) & 0x7fffffff;
        sizes = size > sizes ? size : sizes;
    }
    const bool finite = sizes < 0x7f800000;
    const float largest = bits_to_float(sizes);
    const uint16_t scale = !finite ? 0x7fc0 : largest < kQuantiseFloor ? 0 : uint16_t((float_to_bits(largest / 127.0f) + 0xffff) >> 16);
    const float inverse = scale == 0 || !finite ? 0.0f : 1.0f / from_bf16(scale);
    for (int i = 0; i < group; ++i) {
        // To the nearest by adding 1.5 * 2^23: the low bits are then the integer's.
        const uint32_t code = float_to_bits(values[i] * inverse + 12582912.0f);
        codes[i] = finite ? int8_t(uint8_t(code)) : int8_t(1);
    }
    return scale;
}

static void kv_codes(const float* values, int dim, int group, int8_t* codes, uint16_t* scales) {
    if (group == kKeyGroup)
        for (int d = 0; d < dim; d += kKeyGroup) *scales++ = kv_group_codes<kKeyGroup>(values + d, codes + d);
    else
        for (int d = 0; d < dim; d += kValueGroup) *scales++ = kv_group_codes<kValueGroup>(values + d, codes + d);
}

}  // namespace octavo
