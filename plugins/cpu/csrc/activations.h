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
// offsets, and goes through memory in order. Runs of kRowsAtOnce rows share no cache line with others (but for flags that seldom change): workers
// write such runs, and do not take the lines out of each other's hands.
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

struct RowGroup {
    float scale;
    float sum;                 // scale * sum(codes): what a weight's minimum multiplies
    int16_t half_sums[2];      // of 16 codes
    int16_t low_half_sums[2];  // of 16 finer codes
};
static_assert(sizeof(RowGroup) == 16);

constexpr int kRowsAtOnce = 4;  // 64 bytes of RowGroup

// A group is, for every row of the block: 32 codes; then a RowGroup; then 32 finer codes, -127 … 127; then a byte that tells whether it is refined.
constexpr size_t row_groups_at(int height) { return size_t(height) * 32; }
constexpr size_t low_at(int height) { return size_t(height) * 48; }
constexpr size_t refined_at(int height) { return size_t(height) * 80; }
constexpr size_t group_bytes(int height) { return (size_t(height) * 81 + 63) / 64 * 64; }

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
    [[gnu::always_inline]] RowGroup& operator[](int m) const { return reinterpret_cast<RowGroup*>(at_ + row_groups_at(height_))[lane_ + m]; }
    [[gnu::always_inline]] int8_t* low(int m) const { return reinterpret_cast<int8_t*>(at_ + low_at(height_)) + (lane_ + m) * 32; }
    [[gnu::always_inline]] bool refined(int m) const { return at_[refined_at(height_) + size_t(lane_ + m)] != 0; }
    // Rows share the line of these flags, and most of them stay as they are: one that is right already is not written.
    [[gnu::always_inline]] void refined(int m, bool value) const {
        if (refined(m) != value) at_[refined_at(height_) + size_t(lane_ + m)] = value;
    }

    // Whether any of the first `rows` rows has finer codes here.
    [[gnu::always_inline]] bool any_refined(int rows) const {
        bool any = false;
        for (int m = 0; m < rows; ++m) any = any || refined(m);
        return any;
    }

    [[gnu::always_inline]] void next() { at_ += group_bytes(height_); }

private:
    uint8_t* at_;
    int height_, lane_;
};

}  // namespace octavo
