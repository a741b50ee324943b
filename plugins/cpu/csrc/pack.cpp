#include "pack.h"

#include <cstring>

#include "numbers.h"

namespace octavo {

namespace {

constexpr size_t kHeader = 320;

size_t code_bytes(Packing packing) { return nibbles(packing) ? 256 : 512; }

bool super(Packing packing) {
    return packing == Packing::U4Super || packing == Packing::U8Super || packing == Packing::U8Super16;
}

void put_code(Packing packing, uint8_t* codes, int column, int k, uint8_t code) {
    const int plane = k / 4, byte = column * 4 + k % 4;
    if (code_bytes(packing) == 512) codes[plane * 64 + byte] = code;
    else if (plane < 4) codes[plane * 64 + byte] = uint8_t(codes[plane * 64 + byte] | code);
    else codes[(plane - 4) * 64 + byte] = uint8_t(codes[(plane - 4) * 64 + byte] | (code << 4));
}

void put_half(uint8_t* at, int column, uint16_t half) { std::memcpy(at + column * 2, &half, 2); }

void pack_column(Format format, Packing packing, const uint8_t* row, int inputs, int column, uint8_t* tile) {
    Group group;
    for (int g = 0; g < inputs / kGroup; ++g) {
        read_group(format, row, g, group);
        uint8_t* codes;
        if (super(packing)) {
            uint8_t* header = tile + size_t(g / 8) * (kHeader + 8 * code_bytes(packing));
            codes = header + kHeader + size_t(g % 8) * code_bytes(packing);
            put_half(header, column, group.scale);
            put_half(header + 32, column, group.minimum);
            uint8_t* own = header + 64 + (g % 8) * 32;
            own[column] = uint8_t(group.sub_scale[0]);
            own[16 + column] = packing == Packing::U8Super16 ? uint8_t(group.sub_scale[1]) : group.sub_minimum;
        } else {
            codes = tile + size_t(g) * (code_bytes(packing) + 64);
            put_half(codes + code_bytes(packing), column, group.scale);
            put_half(codes + code_bytes(packing) + 32, column, group.minimum);
        }
        for (int k = 0; k < kGroup; ++k) put_code(packing, codes, column, k, group.codes[k]);
    }
}

// Groups of 32 that share a scale.
int span_for(Format format, int inputs) {
    if (format == Format::INT8) return inputs / kGroup;
    if (format == Format::Q4_0) return 1;
    return integers(format) ? format_info(format).block_elements / kGroup : 0;
}

void pack_spans(Format format, const Matrix& matrix, const uint8_t* row, int column, uint8_t* tile) {
    const int size = matrix.span * kGroup, count = matrix.inputs / size;
    uint8_t* const zeros = tile + size_t(count) * 64;
    uint8_t* const codes = tile + spans_bytes(matrix.packing, matrix.half_scales, count);
    const int centre = format == Format::INT8 ? 128 : 0;  // of codes that are stored signed
    for (int s = 0; s < count; ++s) {
        if (format == Format::Q4_0) {
            Group group;
            read_group(format, row, s, group);
            put_half(tile + size_t(s) * 32, column, group.scale);
            for (int k = 0; k < kGroup; ++k) put_code(matrix.packing, codes + size_t(s) * code_bytes(matrix.packing), column, k, group.codes[k]);
            continue;
        }
        const Run run = read_run(format, row, s);
        std::memcpy(tile + (size_t(s) * 16 + size_t(column)) * 4, &run.scale, 4);
        if (matrix.packing == Packing::U4Zero) zeros[size_t(s) * 16 + size_t(column)] = uint8_t(run.zero);
        for (int i = 0; i < size; ++i) {
            const int k = s * size + i;
            put_code(matrix.packing, codes + size_t(k / kGroup) * code_bytes(matrix.packing), column, k % kGroup,
                     uint8_t(run_code(format, run, i) + centre));
        }
    }
}

void pack_plain(Packing packing, const uint8_t* row, int inputs, int column, uint8_t* tile) {
    for (int k = 0; k < inputs; ++k) {
        if (packing == Packing::Bf16) std::memcpy(tile + (size_t(k / 2) * 16 + size_t(column)) * 4 + size_t(k % 2) * 2, row + size_t(k) * 2, 2);
        else if (packing == Packing::F16) std::memcpy(tile + (size_t(k) * 16 + size_t(column)) * 2, row + size_t(k) * 2, 2);
        else std::memcpy(tile + (size_t(k) * 16 + size_t(column)) * 4, row + size_t(k) * 4, 4);
    }
}

}  // namespace

bool quantized(Packing packing) { return packing < Packing::Bf16; }

Packing packing_for(Format format) {
    switch (format) {
        case Format::Q4_1: return Packing::U4Half;
        case Format::Q5_0:
        case Format::Q5_1:
        case Format::Q8_0: return Packing::U8Half;
        case Format::Q4_K: return Packing::U4Super;
        case Format::Q5_K: return Packing::U8Super;
        case Format::Q6_K: return Packing::U8Super16;
        case Format::INT8: return Packing::U8Centred;
        case Format::Q4_0:
        case Format::INT4_G128:
        case Format::INT4_G64:
        case Format::INT4_G32: return Packing::U4Centred;
        case Format::UINT4_G128:
        case Format::UINT4_G64:
        case Format::UINT4_G32: return Packing::U4Zero;
        case Format::BF16: return Packing::Bf16;
        case Format::F16: return Packing::F16;
        case Format::F32: return Packing::F32;
    }
    return Packing::F32;
}

size_t tile_bytes(Format format, int inputs) {
    const Packing packing = packing_for(format);
    const size_t k = size_t(inputs);
    switch (packing) {
        case Packing::Bf16: return (k + 1) / 2 * 64;
        case Packing::F16: return (k * 32 + 63) / 64 * 64;
        case Packing::F32: return k * 64;
        default: break;
    }
    const size_t codes = code_bytes(packing);
    if (spans(packing)) return spans_bytes(packing, format == Format::Q4_0, inputs / kGroup / span_for(format, inputs)) + k / kGroup * codes;
    return super(packing) ? k / 256 * (kHeader + 8 * codes) : k / kGroup * (codes + 64);
}

Matrix matrix_for(Format format, int outputs, int inputs, const uint8_t* data) {
    return {packing_for(format), outputs, inputs, (outputs + kTile - 1) / kTile, tile_bytes(format, inputs), data, span_for(format, inputs),
            format == Format::Q4_0};
}

void pack_tiles(Format format, const uint8_t* rows, size_t row_bytes, int outputs, int inputs, int first, int last, uint8_t* out) {
    const Matrix matrix = matrix_for(format, outputs, inputs, out);
    const Packing packing = matrix.packing;
    const size_t bytes = matrix.tile_bytes;
    std::memset(out, 0, bytes * size_t(last - first));
    for (int tile = first; tile < last; ++tile, out += bytes) {
        for (int column = 0; column < kTile && tile * kTile + column < outputs; ++column) {
            const uint8_t* row = rows + size_t(tile * kTile + column) * row_bytes;
            if (spans(packing)) pack_spans(format, matrix, row, column, out);
            else if (quantized(packing)) pack_column(format, packing, row, inputs, column, out);
            else pack_plain(packing, row, inputs, column, out);
        }
    }
}

}  // namespace octavo
