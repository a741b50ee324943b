// The NEON kernels with products of 2 by 2 outputs (Neoverse V1 and N2, Cortex-A510 and A710, Apple M2 and later): USMMLA for quantized
// matrices, BFMMLA for bf16 ones and attention.
//
// Both take two outputs and two rows. An odd row is paired with itself, and what that makes twice is stored once: it gives the bits it
// would give in company. The integers are exact, and one row of a quantized matrix stays with the dot product; BFMMLA rounds in a way of
// its own, so that bf16 rows go through it always.
#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD) && defined(__ARM_FEATURE_MATMUL_INT8) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define OCTAVO_NEON_I8MM
#include "kernels_neon.cpp"

namespace octavo {

namespace {

// Register blocks are up to four pairs of rows by eight outputs, or two by sixteen: 16 accumulators, 4 or 8 registers of weights, and
// what is left for rows. A register of results is outputs 2j and 2j+1, each for both rows: o0r0 o0r1 o1r0 o1r1.
constexpr int kPairs = 4;
constexpr int kResults = kTile / 2;
template <int P>
constexpr int kColumns = P <= 2 ? kResults : kResults / 2;  // results of a block, per pair

template <int P>
struct Totals {
    float32x4_t of[P][kResults];
};

template <int P>
inline Totals<P> no_totals() {
    Totals<P> out;
    for (int p = 0; p < P; ++p)
        for (int j = 0; j < kResults; ++j) out.of[p][j] = zero();
    return out;
}

// 16 outputs of the first `count` of 2 P rows that lie `ld` apart; no total is -0. A row that is not there takes the last one's place.
template <int P>
inline Totals<P> load_rows(const float* y, int ld, int count) {
    Totals<P> out;
    for (int p = 0; p < P; ++p) {
        const float *one = y + size_t(2 * p) * size_t(ld), *other = 2 * p + 1 < count ? one + ld : one;
        for (int q = 0; q < kParts; ++q) {
            const float32x4_t a = vaddq_f32(vld1q_f32(one + q * 4), zero()), b = vaddq_f32(vld1q_f32(other + q * 4), zero());
            out.of[p][2 * q] = vzip1q_f32(a, b);
            out.of[p][2 * q + 1] = vzip2q_f32(a, b);
        }
    }
    return out;
}

template <int P>
inline void store_rows(const Totals<P>& totals, float* y, int ld, int count) {
    for (int p = 0; p < P; ++p) {
        float* const one = y + size_t(2 * p) * size_t(ld);
        for (int q = 0; q < kParts; ++q) {
            const float32x4_t a = totals.of[p][2 * q], b = totals.of[p][2 * q + 1];
            vst1q_f32(one + q * 4, vuzp1q_f32(a, b));
            if (2 * p + 1 < count) vst1q_f32(one + ld + q * 4, vuzp2q_f32(a, b));
        }
    }
}

// -- quantized matrices --------------------------------------------------------------------------------------------------------

// r0 r1 r0 r1 of two rows.
inline float32x4_t both(const float& one, const float& other) {
    const float32x2_t two = vld1_lane_f32(&other, vdup_n_f32(one), 1);
    return vcombine_f32(two, two);
}

inline int32x4_t both(int32_t one, int32_t other) {
    const int32x2_t two = vset_lane_s32(other, vdup_n_s32(one), 1);
    return vcombine_s32(two, two);
}

// Each output's number twice, as results lie.
inline void doubled(const Tile& tile, float32x4_t (&out)[kResults]) {
    for (int q = 0; q < kParts; ++q) {
        out[2 * q] = vzip1q_f32(tile.part[q], tile.part[q]);
        out[2 * q + 1] = vzip2q_f32(tile.part[q], tile.part[q]);
    }
}

// The codes of planes p and p + 1 beside each other: 8 k of two outputs in each register, of results `column` and on.
template <int N>
inline void load_eights(const uint8_t* codes, int plane, int column, uint8x16_t (&out)[N]) {
    for (int j = 0; j < N; j += 2) {
        const uint8_t* const at = codes + plane * 64 + (column + j) * 8;
        const uint32x4_t a = load_pairs(at), b = load_pairs(at + 64);
        out[j] = vreinterpretq_u8_u32(vzip1q_u32(a, b));
        out[j + 1] = vreinterpretq_u8_u32(vzip2q_u32(a, b));
    }
}

template <int P, int N>
inline void add_eight(int32x4_t (&dot)[P][N], const uint8x16_t (&codes)[N], const int8x16_t (&own)[P][4], int eight) {
    for (int p = 0; p < P; ++p)
        for (int j = 0; j < N; ++j) dot[p][j] = vusmmlaq_s32(dot[p][j], codes[j], own[p][eight]);
}

// The products of eights first … last-1 (of 8 k) of a group's codes. Nibbles come all at once: eights e and e + 2 share their bytes.
template <Packing packing, int P, int N>
inline void add_eights(const uint8_t* codes, const int8x16_t (&own)[P][4], int column, int first, int last, int32x4_t (&dot)[P][N]) {
    constexpr bool nibbles = packing == Packing::U4Half || packing == Packing::U4Super || packing == Packing::U4Centred;
    for (int e = first; e < (nibbles ? 2 : last); ++e) {
        uint8x16_t both_halves[N];
        load_eights(codes, 2 * e, column, both_halves);
        if constexpr (nibbles) {
            uint8x16_t part[N];
            for (int j = 0; j < N; ++j) part[j] = vandq_u8(both_halves[j], vdupq_n_u8(15));
            add_eight(dot, part, own, e);
            for (int j = 0; j < N; ++j) part[j] = vshrq_n_u8(both_halves[j], 4);
            add_eight(dot, part, own, e + 2);
        } else {
            add_eight(dot, both_halves, own, e);
        }
    }
}

// Up to 2 P rows, of which `count` are there, by one tile. Every float operation is that of tile_rows, on other lanes.
template <Packing packing, int P>
void tile_pairs(const Matrix& matrix, const uint8_t* tile, const Activations& x, int row, int count, float* y, int ld) {
    constexpr bool nibbles = packing == Packing::U4Half || packing == Packing::U4Super || packing == Packing::U4Centred;
    constexpr bool centred = packing == Packing::U4Centred;
    constexpr bool super = !centred && packing != Packing::U4Half && packing != Packing::U8Half;
    constexpr bool halved = packing == Packing::U8Super16;  // a scale for each 16 k
    const int groups = matrix.inputs / kGroup;
    const Spans parts = centred ? spans_of(matrix, tile) : Spans{};
    constexpr size_t bytes = nibbles ? 256 : 512;
    constexpr int N = kColumns<P>;
    BlockRows rows(x, row);
    const auto taken = [&](int m) { return std::min(m, count - 1); };  // the last row stands in for one that is not there
    // What a dot product begins with, from two rows' sums of 16 codes: all that a code's centre or offset adds.
    const auto taken_away = [](const auto& half_sums, int half) {
        if constexpr (centred) return vnegq_s32(vshlq_n_s32(vaddq_s32(half_sums(0), half_sums(1)), 3));
        else if constexpr (halved) return vnegq_s32(vshlq_n_s32(half_sums(half), 5));
        else return vdupq_n_s32(0);
    };
    Totals<P> totals = no_totals<P>();
    const uint8_t* codes = centred ? parts.codes : tile;
    const uint8_t* header = tile;
    for (int g = 0; g < groups; ++g, codes += super || centred ? bytes : bytes + 64, rows.next()) {
        if constexpr (super) {
            if (g % 8 == 0) {
                header = codes;
                codes = header + 320;
            }
        }
        int8x16_t own[P][4], low[P][4];  // 8 k of two rows
        const bool refined = rows.any_refined(count);
        const float unit = refined ? kLowUnit : 1.0f;
        float32x4_t own_scale[P], own_sum[P];
        for (int p = 0; p < P; ++p) {
            for (int half = 0; half < 2; ++half) {
                const int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(rows.codes(taken(2 * p)) + half * 16));
                const int64x2_t b = vreinterpretq_s64_s8(vld1q_s8(rows.codes(taken(2 * p + 1)) + half * 16));
                own[p][half * 2] = vreinterpretq_s8_s64(vzip1q_s64(a, b));
                own[p][half * 2 + 1] = vreinterpretq_s8_s64(vzip2q_s64(a, b));
            }
            for (int half = 0; refined && half < 2; ++half) {
                const int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(rows.low(taken(2 * p)) + half * 16));
                const int64x2_t b = vreinterpretq_s64_s8(vld1q_s8(rows.low(taken(2 * p + 1)) + half * 16));
                low[p][half * 2] = vreinterpretq_s8_s64(vzip1q_s64(a, b));
                low[p][half * 2 + 1] = vreinterpretq_s8_s64(vzip2q_s64(a, b));
            }
            own_scale[p] = vmulq_n_f32(both(rows[taken(2 * p)].scale, rows[taken(2 * p + 1)].scale), unit);
            own_sum[p] = both(rows[taken(2 * p)].sum, rows[taken(2 * p + 1)].sum);
        }
        float32x4_t scale[kResults], minimum[kResults];
        const uint8_t* const sub_scales = header + 64 + (g % 8) * 32;
        if constexpr (super && !halved) {
            doubled(product(halves(header), unsigned_bytes(sub_scales)), scale);
            doubled(product(halves(header + 32), unsigned_bytes(sub_scales + 16)), minimum);
            for (int j = 0; j < kResults; ++j) minimum[j] = vsubq_f32(zero(), minimum[j]);
        } else if constexpr (centred) {
            doubled(span_scales(matrix, parts, g / matrix.span), scale);
        } else if constexpr (!super) {
            doubled(halves(codes + bytes), scale);
            doubled(halves(codes + bytes + 32), minimum);
        }
        for (int half = 0; half < (halved ? 2 : 1); ++half) {
            if constexpr (halved) doubled(product(halves(header), signed_bytes(sub_scales + half * 16)), scale);
            for (int column = 0; column < kResults; column += N) {
                int32x4_t dot[P][N];
                for (int p = 0; p < P; ++p) {
                    const int32x4_t start = taken_away([&](int h) { return both(rows[taken(2 * p)].half_sums[h], rows[taken(2 * p + 1)].half_sums[h]); }, half);
                    for (int j = 0; j < N; ++j) dot[p][j] = start;
                }
                add_eights<packing, P, N>(codes, own, column, halved ? half * 2 : 0, halved ? half * 2 + 2 : 4, dot);
                if (refined) {
                    int32x4_t low_dot[P][N];
                    for (int p = 0; p < P; ++p) {
                        const int32x4_t start = taken_away([&](int h) { return both(rows[taken(2 * p)].low_half_sums[h], rows[taken(2 * p + 1)].low_half_sums[h]); }, half);
                        for (int j = 0; j < N; ++j) low_dot[p][j] = start;
                    }
                    add_eights<packing, P, N>(codes, low, column, halved ? half * 2 : 0, halved ? half * 2 + 2 : 4, low_dot);
                    for (int p = 0; p < P; ++p)
                        for (int j = 0; j < N; ++j) dot[p][j] = vaddq_s32(vshlq_n_s32(dot[p][j], 8), low_dot[p][j]);
                }
                for (int p = 0; p < P; ++p)
                    for (int j = 0; j < N; ++j) {
                        float32x4_t& total = totals.of[p][column + j];
                        total = vfmaq_f32(total, vcvtq_f32_s32(dot[p][j]), vmulq_f32(scale[column + j], own_scale[p]));
                        if constexpr (!halved && !centred) total = vfmaq_f32(total, minimum[column + j], own_sum[p]);
                    }
            }
        }
    }
    store_rows<P>(totals, y + size_t(row) * size_t(ld), ld, count);
}

// -- bf16 products -------------------------------------------------------------------------------------------------------------

// Inputs whose products BFMMLA adds up by itself, with its own rounding, before float32 takes them. Runs begin at multiples of it.
constexpr int kRun = 32;

// Four inputs of two outputs in each register, from pairs of inputs (a: the first two, b: the others) of 16 outputs. With `left` below
// four the inputs beyond are zeros, whatever is there.
template <int N>
inline void load_fours(const void* a, const void* b, int column, int left, bfloat16x8_t (&out)[N]) {
    for (int j = 0; j < N; j += 2) {
        const int at = (column + j) * 8;
        uint32x4_t low = load_pairs(static_cast<const uint8_t*>(a) + at), high = vdupq_n_u32(0);
        if (left > 2) high = load_pairs(static_cast<const uint8_t*>(b) + at);
        if (left == 1) low = vandq_u32(low, vdupq_n_u32(0xffff));
        if (left == 3) high = vandq_u32(high, vdupq_n_u32(0xffff));
        out[j] = vreinterpretq_bf16_u32(vzip1q_u32(low, high));
        out[j + 1] = vreinterpretq_bf16_u32(vzip2q_u32(low, high));
    }
}

// totals += products of inputs first … last-1, first a multiple of four. planes(k) is where inputs k and k + 1 of the 16 outputs lie;
// rows(p, k, left) is inputs k … k + 3 of pair p, zeros from k + left on. Inputs whose products are zero, before or behind others, do
// not change a bit of the totals, none of which is -0.
template <int P, typename Planes, typename Rows>
inline void add_products(const Planes& planes, const Rows& rows, int first, int last, Totals<P>& totals) {
    constexpr int N = kColumns<P>;
    for (int k = first, end; k < last; k = end) {
        end = std::min(last, (k / kRun + 1) * kRun);
        const int whole = k + (end - k) / 4 * 4;
        for (int column = 0; column < kResults; column += N) {
            float32x4_t sum[P][N];
            for (int p = 0; p < P; ++p)
                for (int j = 0; j < N; ++j) sum[p][j] = zero();
            const auto add_four = [&](int at, int left) {
                bfloat16x8_t weights[N];
                load_fours(planes(at), left > 2 ? planes(at + 2) : nullptr, column, left, weights);
                for (int p = 0; p < P; ++p) {
                    const bfloat16x8_t own = rows(p, at, left);
                    for (int j = 0; j < N; ++j) sum[p][j] = vbfmmlaq_f32(sum[p][j], weights[j], own);
                }
            };
            for (int at = k; at < whole; at += 4) add_four(at, 4);
            if (whole < end) add_four(whole, end - whole);
            for (int p = 0; p < P; ++p)
                for (int j = 0; j < N; ++j) totals.of[p][column + j] = vaddq_f32(totals.of[p][column + j], sum[p][j]);
        }
    }
}

template <int P>
void bf16_pairs(const uint8_t* tile, int inputs, const Activations& x, int row, int count, float* y, int ld) {
    const uint16_t* of[2 * P];
    for (int m = 0; m < 2 * P; ++m) of[m] = x.bf16 + size_t(row + std::min(m, count - 1)) * size_t(x.k);
    const auto four = [](const uint16_t* at, int left) {
        if (left == 4) return vld1_u16(at);
        uint16_t some[4] = {};
        for (int i = 0; i < left; ++i) some[i] = at[i];
        return vld1_u16(some);
    };
    Totals<P> totals = no_totals<P>();
    add_products<P>([&](int k) { return tile + size_t(k) * 32; },
                    [&](int p, int k, int left) { return vreinterpretq_bf16_u16(vcombine_u16(four(of[2 * p] + k, left), four(of[2 * p + 1] + k, left))); },
                    0, inputs, totals);
    store_rows<P>(totals, y + size_t(row) * size_t(ld), ld, count);
}

// -- any number of rows from blocks of up to four pairs ------------------------------------------------------------------------

template <Packing packing, int P>
void pairs(const Matrix& matrix, const uint8_t* tile, const Activations& x, int row, int count, float* y, int ld) {
    if constexpr (packing == Packing::Bf16) bf16_pairs<P>(tile, matrix.inputs, x, row, count, y, ld);
    else tile_pairs<packing, P>(matrix, tile, x, row, count, y, ld);
}

template <Packing packing>
constexpr bool kInPairs = packing == Packing::U4Half || packing == Packing::U8Half || packing == Packing::U4Super ||
                          packing == Packing::U8Super || packing == Packing::U8Super16 || packing == Packing::U4Centred || packing == Packing::Bf16;

template <Packing packing>
int rows_in_pairs(const Matrix& matrix, const uint8_t* tile, const Activations& x, int rows, float* y, int ld) {
    if constexpr (!kInPairs<packing>) return 0;
    const int taken = packing != Packing::Bf16 && rows % (2 * kPairs) == 1 ? rows - 1 : rows;  // a row by itself: the dot product's
    for (int row = 0; row < taken; row += 2 * kPairs) {
        const int count = std::min(taken - row, 2 * kPairs);
        switch ((count + 1) / 2) {
            case 1: pairs<packing, 1>(matrix, tile, x, row, count, y, ld); break;
            case 2: pairs<packing, 2>(matrix, tile, x, row, count, y, ld); break;
            case 3: pairs<packing, 3>(matrix, tile, x, row, count, y, ld); break;
            default: pairs<packing, 4>(matrix, tile, x, row, count, y, ld); break;
        }
    }
    return taken;
}

// -- attention -----------------------------------------------------------------------------------------------------------------

// Numbers k … k + 3 of rows 2p and 2p + 1 of V rows, `ld` apart, whose floats are bf16 already.
template <int V>
inline bfloat16x8_t four_of_two(const float* rows, int ld, int p, int k) {
    const float *one = rows + 2 * p * ld + k, *other = 2 * p + 1 < V ? one + ld : one;
    return vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(vld1q_f32(one)), vld1q_f32(other));
}

// Scores of V queries against 16 positions.
template <int V>
void Fours::scores16(const uint16_t* keys, const float* queries, int dim, float* scores) {
    constexpr int P = (V + 1) / 2;
    Totals<P> totals = no_totals<P>();
    add_products<P>([&](int k) { return keys + k * 16; }, [&](int p, int k, int) { return four_of_two<V>(queries, dim, p, k); }, 0, dim, totals);
    store_rows<P>(totals, scores, kSpan, V);
}

// out[V][16] of one slice of the head += weights x values, for positions first … end-1 of the span; first is a multiple of 16. Weights
// beyond the last position are zeros; values there are not written yet.
template <int V>
void Fours::mix(const uint16_t* const* parts, int dim, int first, int end, const float* weights, int slice, float* out) {
    constexpr int P = (V + 1) / 2;
    const auto pair = [&](int i) { return parts[i / kPart] + size_t(i % kPart) * size_t(dim) + slice * 2; };
    Totals<P> totals = load_rows<P>(out + slice, dim, V);
    add_products<P>(pair, [&](int p, int i, int) { return four_of_two<V>(weights, kSpan, p, i); }, first, end, totals);
    store_rows<P>(totals, out + slice, dim, V);
}

}  // namespace

}  // namespace octavo

#else

#include "kernels.h"

namespace octavo {
const Kernels* neon_i8mm_kernels() { return nullptr; }
}  // namespace octavo

#endif
