#include "blocks.h"

#include <cstring>

#include "numbers.h"

namespace octavo {

namespace {

uint16_t half_at(const uint8_t* at) {
    uint16_t half;
    std::memcpy(&half, at, sizeof half);
    return half;
}

// 6-bit scales and minimums of Q4_K and Q5_K, eight of each in twelve bytes.
void scale_and_minimum(const uint8_t* packed, int group, uint8_t& scale, uint8_t& minimum) {
    if (group < 4) {
        scale = packed[group] & 63;
        minimum = packed[group + 4] & 63;
    } else {
        scale = uint8_t((packed[group + 4] & 15) | ((packed[group - 4] >> 6) << 4));
        minimum = uint8_t((packed[group + 4] >> 4) | ((packed[group] >> 6) << 4));
    }
}

// weight = d * (code - offset) as scale and minimum. A power of two times d is exact in f16 unless it overflows, and a
// scale that large would be no weight.
void centred(Group& group, uint16_t d, float offset) {
    group.scale = d;
    group.minimum = to_f16(-offset * from_f16(d));
}

void read_k4(const uint8_t* block, int index, Group& group) {
    group.scale = half_at(block);
    group.minimum = half_at(block + 2);
    uint8_t scale;
    scale_and_minimum(block + 4, index, scale, group.sub_minimum);
    group.sub_scale[0] = int8_t(scale);
    const uint8_t* codes = block + 16 + (index / 2) * 32;  // two groups share 32 bytes: low nibbles, high nibbles
    for (int i = 0; i < 32; ++i) group.codes[i] = index % 2 ? codes[i] >> 4 : codes[i] & 15;
}

void read_k5(const uint8_t* block, int index, Group& group) {
    group.scale = half_at(block);
    group.minimum = half_at(block + 2);
    uint8_t scale;
    scale_and_minimum(block + 4, index, scale, group.sub_minimum);
    group.sub_scale[0] = int8_t(scale);
    const uint8_t* high = block + 16;  // bit `index` of byte i is code i's fifth bit
    const uint8_t* low = block + 48 + (index / 2) * 32;
    for (int i = 0; i < 32; ++i) {
        const int nibble = index % 2 ? low[i] >> 4 : low[i] & 15;
        group.codes[i] = uint8_t(nibble | (((high[i] >> index) & 1) << 4));
    }
}

void read_k6(const uint8_t* block, int index, Group& group) {
    // Halves of 128 weights: 64 bytes of low nibbles, 32 of high bit pairs. Quarter q of a half is 32 weights.
    const int half = index / 4, quarter = index % 4;
    const uint8_t* low = block + half * 64 + (quarter % 2) * 32;
    const uint8_t* high = block + 128 + half * 32;
    for (int i = 0; i < 32; ++i) {
        const int nibble = quarter / 2 ? low[i] >> 4 : low[i] & 15;
        group.codes[i] = uint8_t(nibble | (((high[i] >> (2 * quarter)) & 3) << 4));
    }
    std::memcpy(group.sub_scale, block + 192 + index * 2, 2);
    group.scale = half_at(block + 208);
}

}  // namespace

FormatInfo format_info(Format format) {
    switch (format) {
        case Format::F32: return {1, 4};
        case Format::F16:
        case Format::BF16: return {1, 2};
        case Format::Q4_0: return {32, 18};
        case Format::Q4_1: return {32, 20};
        case Format::Q5_0: return {32, 22};
        case Format::Q5_1: return {32, 24};
        case Format::Q8_0: return {32, 34};
        case Format::Q4_K: return {256, 144};
        case Format::Q5_K: return {256, 176};
        case Format::Q6_K: return {256, 210};
        case Format::INT8: return {32, 32, 4};
        case Format::INT4_G128: return {128, 68};
        case Format::INT4_G64: return {64, 36};
        case Format::INT4_G32: return {32, 20};
        case Format::UINT4_G128: return {128, 69};
        case Format::UINT4_G64: return {64, 37};
        case Format::UINT4_G32: return {32, 21};
    }
    return {0, 0};
}

bool integers(Format format) { return format >= Format::INT8; }

Run read_run(Format format, const uint8_t* row, int index) {
    const uint8_t* at = format == Format::INT8 ? row : row + size_t(index) * size_t(format_info(format).block_bytes);
    Run run;
    std::memcpy(&run.scale, at, sizeof run.scale);
    run.codes = at + sizeof run.scale;
    run.zero = format == Format::INT8 ? 0 : format < Format::UINT4_G128 ? 8 : *run.codes++;
    return run;
}

int run_code(Format format, const Run& run, int i) {
    if (format == Format::INT8) return int8_t(run.codes[i]);
    return i % 2 ? run.codes[i / 2] >> 4 : run.codes[i / 2] & 15;
}

void read_group(Format format, const uint8_t* row, int index, Group& group) {
    const FormatInfo info = format_info(format);
    group = Group{};
    if (info.block_elements == 256) {
        const uint8_t* block = row + size_t(index / 8) * size_t(info.block_bytes);
        if (format == Format::Q4_K) read_k4(block, index % 8, group);
        else if (format == Format::Q5_K) read_k5(block, index % 8, group);
        else read_k6(block, index % 8, group);
        return;
    }
    const uint8_t* block = row + size_t(index) * size_t(info.block_bytes);
    const uint16_t d = half_at(block);
    const bool has_minimum = format == Format::Q4_1 || format == Format::Q5_1;
    const uint8_t* data = block + (has_minimum ? 4 : 2);
    if (format == Format::Q8_0) {
        for (int i = 0; i < 32; ++i) group.codes[i] = uint8_t(data[i] ^ 0x80);  // int8 + 128
        centred(group, d, 128.0f);
        return;
    }
    uint32_t fifth = 0;
    if (format == Format::Q5_0 || format == Format::Q5_1) {
        std::memcpy(&fifth, data, sizeof fifth);
        data += 4;
    }
    for (int i = 0; i < 32; ++i) {
        const int nibble = i < 16 ? data[i] & 15 : data[i - 16] >> 4;
        group.codes[i] = uint8_t(nibble | int(((fifth >> i) & 1) << 4));
    }
    if (has_minimum) {
        group.scale = d;
        group.minimum = half_at(block + 2);
    } else {
        centred(group, d, format == Format::Q4_0 ? 8.0f : 16.0f);
    }
}

void dequantise_row(Format format, const uint8_t* row, int columns, float* out) {
    if (format == Format::F32) {
        std::memcpy(out, row, size_t(columns) * 4);
        return;
    }
    if (format == Format::F16 || format == Format::BF16) {
        for (int i = 0; i < columns; ++i) {
            const uint16_t half = half_at(row + size_t(i) * 2);
            out[i] = format == Format::F16 ? from_f16(half) : from_bf16(half);
        }
        return;
    }
    if (integers(format)) {
        const int size = format == Format::INT8 ? columns : format_info(format).block_elements;
        for (int i = 0; i < columns; ++i) {
            const Run run = read_run(format, row, i / size);
            out[i] = run.scale * float(run_code(format, run, i % size) - run.zero);
        }
        return;
    }
    Group group;
    for (int g = 0; g < columns / 32; ++g, out += 32) {
        read_group(format, row, g, group);
        const float scale = from_f16(group.scale), minimum = from_f16(group.minimum);
        for (int i = 0; i < 32; ++i) {
            const float code = group.codes[i];
            if (format == Format::Q6_K) out[i] = scale * group.sub_scale[i / 16] * (code - 32.0f);
            else if (format == Format::Q4_K || format == Format::Q5_K)
                out[i] = scale * group.sub_scale[0] * code - minimum * group.sub_minimum;
            else if (format == Format::Q8_0) out[i] = scale * (code - 128.0f);
            else if (format == Format::Q4_0) out[i] = scale * (code - 8.0f);
            else if (format == Format::Q5_0) out[i] = scale * (code - 16.0f);
            else out[i] = scale * code + minimum;
        }
    }
}

}  // namespace octavo
