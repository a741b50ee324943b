#include "refine.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace octavo {

namespace {

void refine_group(const float* values, float scale, const int8_t* codes, int8_t* low, float& sum, const int16_t* half_sums, int16_t* low_half_sums) {
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
        low_half_sums[half] = int16_t(total);
    }
    sum = scale * kLowUnit * float(256 * (half_sums[0] + half_sums[1]) + low_half_sums[0] + low_half_sums[1]);
}

}  // namespace

void refine(const float* values, int k, float threshold, const Activations& x, int row) {
    const int groups = k / 32;
    float squares = 0.0f;
    BlockRows own(x, row);
    for (int g = 0; g < groups; ++g, own.next()) squares += own[0].scale * own[0].scale;
    const float limit = threshold * threshold * squares / float(groups);
    own = BlockRows(x, row);
    for (int g = 0; g < groups; ++g, own.next()) {
        own.refined(0, own[0].scale * own[0].scale > limit);  // false where a scale is NaN
        if (own.refined(0)) {
            refine_group(values + g * 32, own[0].scale, own.codes(0), own.low(0), own[0].sum, own[0].half_sums, own[0].low_half_sums);
        } else {
            std::memset(own.low(0), 0, 32);
            own[0].low_half_sums[0] = own[0].low_half_sums[1] = 0;
        }
    }
}

}  // namespace octavo
