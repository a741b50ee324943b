#include "refine.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace octavo {

namespace {

void refine_group(const float* values, float scale, const int8_t* codes, int8_t* low, float& sum, const int32_t* half_sums, int32_t* low_half_sums) {
    const float inverse = 1.0f / scale;
    for (int half = 0; half < 2; ++half) {
        int32_t total = 0;
        for (int i = half * 16; i < half * 16 + 16; ++i) {
            // To the nearest by adding and taking away 1.5 * 2^23; what is left of a code's rounding is at most half a code.
            const float rest = (values[i] * inverse - float(codes[i])) * 256.0f;
            const float rounded = (std::min(std::max(rest, -127.0f), 127.0f) + 12582912.0f) - 12582912.0f;
            low[i] = int8_t(int32_t(rounded));
            total += low[i];
        }
        low_half_sums[half] = 32 * total;
    }
    sum = scale * kLowUnit * float(256 * ((half_sums[0] + half_sums[1]) / 32) + (low_half_sums[0] + low_half_sums[1]) / 32);
}

}  // namespace

void refine(const float* values, int k, float threshold, const Activations& x, int row) {
    const int groups = k / 32;
    const size_t at = size_t(row) * size_t(x.k / 32);
    const float* scales = x.scales + at;
    float squares = 0.0f;
    for (int g = 0; g < groups; ++g) squares += scales[g] * scales[g];
    const float limit = threshold * threshold * squares / float(groups);
    for (int g = 0; g < groups; ++g) {
        const size_t element = size_t(row) * size_t(x.k) + size_t(g) * 32, half = (at + size_t(g)) * 2;
        const bool refined = scales[g] * scales[g] > limit;  // false where a scale is NaN
        x.refined[at + size_t(g)] = refined;
        if (refined) {
            refine_group(values + g * 32, scales[g], x.codes + element, x.low + element, x.sums[at + size_t(g)], x.half_sums + half, x.low_half_sums + half);
        } else {
            std::memset(x.low + element, 0, 32);
            x.low_half_sums[half] = x.low_half_sums[half + 1] = 0;
        }
    }
}

}  // namespace octavo
