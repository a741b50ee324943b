// Quantized activations, laid out for the kernels that multiply them.
//
// All static or inlined: a shared inline function could be taken, by the linker, from a file compiled for a newer processor than the one at
// hand.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace octavo {

// Per 32 elements one scale: x = scale * code, code in -127 … 127. A group with a NaN or an infinity has codes of 0 and a scale (hence a
// sum) of NaN: every output that reads it is NaN.
//
// Where a group is refined, x = scale * (code + low / 256), and its sum counts the finer codes too. Rows that are refined together have
// finer codes of 0 where they need none.
//
// Rows lie in blocks. What a block's rows have of one group is together, so that a kernel reaches all of it from one pointer with constant
// offsets, and goes through memory in order.
struct Activations {
    uint8_t* blocks;  // [rows / height][k / 32] groups of group_bytes(height); 64-byte aligned
    uint16_t* bf16;   // [rows][k]; for bf16 weights
    int k;            // row stride, in elements; a multiple of 32
    int height;       // rows of a block
};

// Few rows are in one block of their own size, which keeps them close together.
constexpr int kFewRows = 4;
constexpr int kBlockRows = 16;
constexpr int height_for(int rows) { return rows <= kFewRows ? kFewRows : kBlockRows; }

// Where a group has what, in bytes. Each is an array with an element, or a pair or 32 of them, for every row of the block.
constexpr size_t scales_at(int height) { return size_t(height) * 32; }         // after the codes
constexpr size_t sums_at(int height) { return size_t(height) * 36; }           // scale * sum(codes): what a weight's minimum multiplies
constexpr size_t half_sums_at(int height) { return size_t(height) * 40; }      // two of 32 * sum of 16 codes: what Q6_K's offset of 32 takes away
constexpr size_t low_at(int height) { return size_t(height) * 48; }            // -127 … 127
constexpr size_t low_half_sums_at(int height) { return size_t(height) * 80; }
constexpr size_t refined_at(int height) { return size_t(height) * 88; }        // bytes, 0 or 1
constexpr size_t group_bytes(int height) { return (size_t(height) * 89 + 63) / 64 * 64; }

// Bytes of blocks for so many rows.
constexpr size_t blocks_bytes(int k, int rows) {
    return size_t((rows + height_for(rows) - 1) / height_for(rows)) * size_t(k / 32) * group_bytes(height_for(rows));
}

constexpr float kLowUnit = 1.0f / 256;

// A few rows of one block in one group; `next` goes on to the next group.
class BlockRows {
public:
    [[gnu::always_inline]] BlockRows(const Activations& x, int row, int g = 0)
        : at_(x.blocks + (size_t(row / x.height) * size_t(x.k / 32) + size_t(g)) * group_bytes(x.height)), height_(x.height), lane_(row % x.height) {}

    [[gnu::always_inline]] int8_t* codes(int m) const { return reinterpret_cast<int8_t*>(at_) + (lane_ + m) * 32; }
    [[gnu::always_inline]] float& scale(int m) const { return reinterpret_cast<float*>(at_ + scales_at(height_))[lane_ + m]; }
    [[gnu::always_inline]] float& sum(int m) const { return reinterpret_cast<float*>(at_ + sums_at(height_))[lane_ + m]; }
    [[gnu::always_inline]] int32_t* half_sums(int m) const { return reinterpret_cast<int32_t*>(at_ + half_sums_at(height_)) + (lane_ + m) * 2; }
    [[gnu::always_inline]] int8_t* low(int m) const { return reinterpret_cast<int8_t*>(at_ + low_at(height_)) + (lane_ + m) * 32; }
    [[gnu::always_inline]] int32_t* low_half_sums(int m) const { return reinterpret_cast<int32_t*>(at_ + low_half_sums_at(height_)) + (lane_ + m) * 2; }
    [[gnu::always_inline]] uint8_t& refined(int m) const { return at_[refined_at(height_) + size_t(lane_ + m)]; }

    // Whether any of the first `rows` rows has finer codes here.
    [[gnu::always_inline]] bool any_refined(int rows) const {
        bool any = false;
        for (int m = 0; m < rows; ++m) any = any || refined(m) != 0;
        return any;
    }

    [[gnu::always_inline]] void next() { at_ += group_bytes(height_); }

private:
    uint8_t* at_;
    int height_, lane_;
};

}  // namespace octavo
