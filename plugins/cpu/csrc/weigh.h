// Three loops over logits, which every set of kernels compiles for its own instruction set, in vectors as the compiler's own extension has
// them. No fused operation and no sum that is rounded: all sets give the same bits, and those of octavo.runner.weights.
//
// All static and without a template of the library's, as in numbers.h and for the same reason.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels.h"

namespace octavo {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

// 2^f over [-1/2, 1/2]: octavo.runner.weights has the same numbers and says where they are from.
constexpr double kExp2[] = {0.6931471805412327,    0.2402265069474259,    0.05550410959228811,    0.009618129558838935,
                            0.0013333434157560176, 0.0001540309828656179, 1.5314209223349525e-05, 1.3344183484134179e-06};

static double weigh_logits(const float* logits, int count, const Weighing& how, double* weights) {
    constexpr int kLanes = kVectorBytes / 8, kParts = 4, kBlock = kLanes * kParts;  // vectors side by side hide each other's latency
    typedef float Floats __attribute__((vector_size(kLanes * 4)));
    typedef double Doubles __attribute__((vector_size(kLanes * 8)));
    typedef uint64_t Bits __attribute__((vector_size(kLanes * 8)));
    // 1.5 * 2^52 + 1023: what is added to it is rounded to an integer, and its low bits are then that of a power of two's exponent.
    constexpr double kRound = 6755399441056767.0;
    const double peak = how.peak, rate = how.rate, spread = how.spread;
    Doubles sums[kParts] = {};
    for (int i = 0; i < count; i += kBlock) {
        const int size = count - i < kBlock ? count - i : kBlock;
        float padded[kBlock];
        const float* from = logits + i;
        if (size < kBlock) {
            for (int n = 0; n < kBlock; ++n) padded[n] = n < size ? from[n] : -INFINITY;  // which weighs 0
            from = padded;
        }
#define OCTAVO_EACH _Pragma("GCC unroll 4") for (int v = 0; v < kParts; ++v)
        Doubles f[kParts], power[kParts];
        Bits exponent[kParts];
        OCTAVO_EACH {
            Floats logit;
            std::memcpy(&logit, from + v * kLanes, sizeof logit);
            const Doubles scaled = (__builtin_convertvector(logit, Doubles) - peak) * rate, least = Doubles{} - 64.0;
            const Doubles y = scaled > least ? scaled : least, rounded = y + kRound;
            f[v] = y - (rounded - kRound);
            exponent[v] = Bits(rounded) << 52;
            power[v] = f[v] * kExp2[7];
        }
        _Pragma("GCC unroll 7") for (int degree = 6; degree >= 0; --degree) OCTAVO_EACH power[v] = (power[v] + kExp2[degree]) * f[v];
        OCTAVO_EACH {
            const Doubles weight = (((power[v] + 1.0) * Doubles(exponent[v])) + spread) - spread;
            sums[v] += weight;
            const int left = size - v * kLanes;
            if (left >= kLanes) std::memcpy(weights + i + v * kLanes, &weight, sizeof weight);
            else if (left > 0) std::memcpy(weights + i + v * kLanes, &weight, size_t(left) * sizeof(double));
        }
#undef OCTAVO_EACH
    }
    const Doubles all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    double sum = 0.0;
    for (int lane = 0; lane < kLanes; ++lane) sum += all[lane];
    return sum;
}

static void logit_maxima(const float* logits, int count, float* out) {
    constexpr int kLanes = kVectorBytes / 4;
    typedef float Floats __attribute__((vector_size(kVectorBytes)));
    typedef int32_t Bits __attribute__((vector_size(kVectorBytes)));
    for (int first = 0; first < count; first += kStretch) {
        const int last = count - first < kStretch ? count : first + kStretch;
        Floats largest = Floats{} - INFINITY;
        Bits nan = {};
        for (int i = first; i < last; i += kLanes) {
            Floats x = Floats{} - INFINITY;
            if (last - i >= kLanes) std::memcpy(&x, logits + i, sizeof x);
            else std::memcpy(&x, logits + i, size_t(last - i) * sizeof(float));
            largest = x > largest ? x : largest;
            nan |= x != x;
        }
        float best = largest[0];
        int any = nan[0];
        for (int lane = 1; lane < kLanes; ++lane) {
            best = largest[lane] > best ? largest[lane] : best;
            any |= nan[lane];
        }
        out[first / kStretch] = any ? NAN : best;
    }
}

static void mask_logits(const float* logits, int count, const uint32_t* words, float* out) {
    constexpr int kLanes = kVectorBytes / 4;
    typedef float Floats __attribute__((vector_size(kVectorBytes)));
    typedef uint32_t Bits __attribute__((vector_size(kVectorBytes)));
    Bits own = {};  // a lane's bit
    for (int lane = 0; lane < kLanes; ++lane) own[lane] = uint32_t(1) << lane;
    for (int i = 0; i < count; i += kLanes) {
        const bool whole = count - i >= kLanes;
        const size_t bytes = whole ? sizeof(Floats) : size_t(count - i) * sizeof(float);
        const Bits word = Bits{} + (words[i / 32] >> i % 32);
        Floats x = {};
        if (whole) std::memcpy(&x, logits + i, sizeof x);
        else std::memcpy(&x, logits + i, bytes);
        x = (word & own) != 0 ? x : Floats{} - INFINITY;
        if (whole) std::memcpy(out + i, &x, sizeof x);
        else std::memcpy(out + i, &x, bytes);
    }
}

}  // namespace octavo
