// The block pool's memory.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels.h"

namespace octavo {

// Zeroed memory that takes space only where it is touched, in huge pages where the system has them: what an activation or a token writes
// lies scattered over many small ones otherwise.
class Pages {
public:
    Pages() = default;
    explicit Pages(size_t bytes);  // std::bad_alloc if there is no address space
    ~Pages();
    Pages(Pages&& other) noexcept : data_(other.data_), bytes_(other.bytes_) { other.data_ = nullptr; }
    Pages& operator=(Pages&& other) noexcept;
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    template <typename T>
    T* as() const { return static_cast<T*>(data_); }

private:
    void* data_ = nullptr;
    size_t bytes_ = 0;
};

// The block pool. A block lies in one piece: for each layer slot its keys, then its values, one KV head after the other in the layouts of
// kv_format.h.
class KVStore {
public:
    KVStore(KVFormat format, int slots, int blocks, int block_size, int kv_heads, int head_dim);

    // Of block 0 and the first head; those of block b lie b * block_stride() bytes further, those of head h h times its bytes.
    uint8_t* keys(int slot) const { return pages_.as<uint8_t>() + size_t(slot) * slot_bytes_; }
    uint8_t* values(int slot) const { return keys(slot) + size_t(kv_heads) * key_bytes(); }
    size_t block_stride() const { return size_t(slots) * slot_bytes_; }
    size_t key_bytes() const { return size_t(block_size / kPart) * key_part_bytes(format, head_dim); }
    size_t value_bytes() const { return size_t(block_size / kPart) * value_part_bytes(format, head_dim); }

    // Write one token's keys and values, [kv_heads][head_dim] each; `scratch` has head_dim elements.
    void write(const Kernels& kernels, int slot, int64_t at, const float* key, const float* value, uint16_t* scratch);
    void read(int slot, int64_t at, float* key, float* value) const;
    void copy_block(int source, int destination);

    const KVFormat format;
    const int slots, blocks, block_size, kv_heads, head_dim;

private:
    size_t slot_bytes_;  // of one block's keys and values
    Pages pages_;
};

}  // namespace octavo
