// 16-bit floats in software: what the vector kernels' conversions must equal.
//
// All static: a shared inline function could be taken, by the linker, from a file compiled for a newer processor than the one at hand.
#pragma once
#include <cstdint>
#include <cstring>

namespace octavo {

static inline float bits_to_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t float_to_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float from_bf16(uint16_t half) { return bits_to_float(uint32_t(half) << 16); }

// Round to nearest, ties to even; NaN stays NaN (quiet).
static inline uint16_t to_bf16(float value) {
    uint32_t bits = float_to_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t((bits >> 16) | 0x40);
    return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static inline float from_f16(uint16_t half) {
    const uint32_t sign = uint32_t(half & 0x8000) << 16;
    const uint32_t exponent = (half >> 10) & 31, mantissa = half & 1023;
    if (exponent == 31) return bits_to_float(sign | 0x7f800000 | (mantissa << 13));
    if (exponent != 0) return bits_to_float(sign | ((exponent + 112) << 23) | (mantissa << 13));
    const float subnormal = float(mantissa) * 5.9604644775390625e-8f;  // 2^-24
    return sign ? -subnormal : subnormal;
}

// Exact for values that f16 can hold, which is all that packing needs; others round to nearest even.
static inline uint16_t to_f16(float value) {
    const uint32_t bits = float_to_bits(value);
    const uint16_t sign = uint16_t((bits >> 16) & 0x8000);
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00);
    if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);  // rounds to infinity
    if (magnitude < 0x38800000) {                                  // subnormal in f16: count units of 2^-24
        const float units = bits_to_float(magnitude) * 16777216.0f;
        uint32_t whole = uint32_t(units);
        const float rest = units - float(whole);
        if (rest > 0.5f || (rest == 0.5f && (whole & 1))) ++whole;
        return uint16_t(sign | whole);
    }
    const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
    return uint16_t(sign | ((rounded - 0x38000000) >> 13));
}

}  // namespace octavo
