#include "kv_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "numbers.h"

namespace octavo {

Pages::Pages(size_t bytes) : bytes_(std::max<size_t>(bytes, 1)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) {
        data_ = nullptr;
        throw std::bad_alloc();
    }
#ifdef MADV_HUGEPAGE
    madvise(data_, bytes_, MADV_HUGEPAGE);  // a refusal changes nothing but speed
#endif
}

Pages::~Pages() {
    if (data_ != nullptr) munmap(data_, bytes_);
}

Pages& Pages::operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

KVStore::KVStore(KVFormat format_, int slots_, int blocks_, int block_size_, int kv_heads_, int head_dim_)
    : format(format_), slots(slots_), blocks(blocks_), block_size(block_size_), kv_heads(kv_heads_), head_dim(head_dim_),
      slot_bytes_(size_t(kv_heads_) * (key_bytes() + value_bytes())), pages_(size_t(blocks_) * block_stride()) {}

namespace {

// Where dimension d of a key, or of a value, lies in its part, in elements.
size_t key_at(size_t offset, size_t d) { return d / 2 * 2 * kPart + offset * 2 + d % 2; }
size_t value_at(size_t offset, size_t d, size_t dim) { return offset / 2 * 2 * dim + d * 2 + offset % 2; }

// The same where elements are floats.
size_t float_key_at(size_t offset, size_t d) { return d * kPart + offset; }
size_t float_value_at(size_t offset, size_t d, size_t dim) { return offset * dim + d; }

void put(KVFormat format, uint8_t* part, size_t at, float value) {
    if (format == KVFormat::F32) {
        std::memcpy(part + at * 4, &value, 4);
        return;
    }
    const uint16_t half = to_f16(value);
    std::memcpy(part + at * 2, &half, 2);
}

float get(KVFormat format, const uint8_t* part, size_t at) {
    if (format == KVFormat::F32) {
        float value;
        std::memcpy(&value, part + at * 4, 4);
        return value;
    }
    uint16_t half;
    std::memcpy(&half, part + at * 2, 2);
    return from_f16(half);
}

}  // namespace

void KVStore::write(const Kernels& kernels, int slot, int64_t at, const float* key, const float* value, uint16_t* scratch) {
    const size_t block = size_t(at / block_size), part = size_t(at % block_size / kPart), offset = size_t(at % kPart), dim = size_t(head_dim);
    uint8_t* k = keys(slot) + block * block_stride() + part * key_part_bytes(format, head_dim);
    uint8_t* v = values(slot) + block * block_stride() + part * value_part_bytes(format, head_dim);
    for (int head = 0; head < kv_heads; ++head, key += head_dim, value += head_dim, k += key_bytes(), v += value_bytes()) {
        if (kept_as_floats(format)) {
            for (size_t d = 0; d < dim; ++d) put(format, k, float_key_at(offset, d), key[d]);
            for (size_t d = 0; d < dim; ++d) put(format, v, float_value_at(offset, d, dim), value[d]);
            continue;
        }
        if (format == KVFormat::Bf16) {
            uint16_t *const wide_k = reinterpret_cast<uint16_t*>(k), *const wide_v = reinterpret_cast<uint16_t*>(v);
            kernels.to_bf16(key, head_dim, scratch);
            for (size_t d = 0; d < dim; d += 2) std::memcpy(wide_k + key_at(offset, d), scratch + d, 4);
            kernels.to_bf16(value, head_dim, scratch);
            for (size_t d = 0; d < dim; ++d) wide_v[value_at(offset, d, dim)] = scratch[d];
            continue;
        }
        int8_t* const codes = reinterpret_cast<int8_t*>(scratch);
        uint16_t* const scales = scratch + dim / 2;
        uint16_t *const k_scales = reinterpret_cast<uint16_t*>(k + dim * kPart), *const v_scales = reinterpret_cast<uint16_t*>(v + dim * kPart);
        kernels.kv_codes(key, head_dim, kKeyGroup, codes, scales);
        for (size_t d = 0; d < dim; d += 2) std::memcpy(k + key_at(offset, d), codes + d, 2);
        for (size_t g = 0; g < dim / kKeyGroup; ++g) k_scales[g * kPart + offset] = scales[g];
        kernels.kv_codes(value, head_dim, kValueGroup, codes, scales);
        for (size_t d = 0; d < dim; ++d) v[value_at(offset, d, dim)] = uint8_t(codes[d]);
        for (size_t g = 0; g < dim / kValueGroup; ++g) v_scales[g * kPart + offset] = scales[g];
    }
}

void KVStore::read(int slot, int64_t at, float* key, float* value) const {
    const size_t block = size_t(at / block_size), part = size_t(at % block_size / kPart), offset = size_t(at % kPart), dim = size_t(head_dim);
    const uint8_t* k = keys(slot) + block * block_stride() + part * key_part_bytes(format, head_dim);
    const uint8_t* v = values(slot) + block * block_stride() + part * value_part_bytes(format, head_dim);
    for (int head = 0; head < kv_heads; ++head, key += head_dim, value += head_dim, k += key_bytes(), v += value_bytes())
        for (size_t d = 0; d < dim; ++d) {
            if (kept_as_floats(format)) {
                key[d] = get(format, k, float_key_at(offset, d));
                value[d] = get(format, v, float_value_at(offset, d, dim));
                continue;
            }
            if (format == KVFormat::Bf16) {
                key[d] = from_bf16(reinterpret_cast<const uint16_t*>(k)[key_at(offset, d)]);
                value[d] = from_bf16(reinterpret_cast<const uint16_t*>(v)[value_at(offset, d, dim)]);
                continue;
            }
            const float k_scale = from_bf16(reinterpret_cast<const uint16_t*>(k + dim * kPart)[d / kKeyGroup * kPart + offset]);
            const float v_scale = from_bf16(reinterpret_cast<const uint16_t*>(v + dim * kPart)[d / kValueGroup * kPart + offset]);
            key[d] = from_bf16(to_bf16(float(int8_t(k[key_at(offset, d)])) * k_scale));
            value[d] = from_bf16(to_bf16(float(int8_t(v[value_at(offset, d, dim)])) * v_scale));
        }
}

void KVStore::copy_block(int source, int destination) {
    uint8_t* const base = pages_.as<uint8_t>();
    std::memcpy(base + size_t(destination) * block_stride(), base + size_t(source) * block_stride(), block_stride());
}

}  // namespace octavo
