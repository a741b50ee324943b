// Measured ceilings: the most that this machine's memory and arithmetic give, for kernels to be held against.
//
// Every measurement runs on all threads of a pool, in rounds of a few milliseconds for `seconds` in all, and reports its best round:
// whatever else runs on the machine only slows a round down.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>

#include "kernels.h"
#include "pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

using namespace octavo;

namespace {

// Makes the compiler believe that the value is read here and may have changed: a loop over it is neither dropped nor hoisted, and
// chains that begin alike are not taken for one.
template <typename T>
inline void unknown(T& value) {
    asm volatile("" : "+m"(value));
}

// The same for vectors, in registers.
#if defined(__aarch64__)
#define OCTAVO_UNKNOWN(values) for (auto& value : values) asm volatile("" : "+w"(value))
#else
#define OCTAVO_UNKNOWN(values) for (auto& value : values) asm volatile("" : "+v"(value))
#endif

template <typename F>
double seconds_of(Pool& pool, F&& job) {
    const auto start = std::chrono::steady_clock::now();
    pool.run(job);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// -- reading memory ------------------------------------------------------------------------------------------------------------

constexpr int64_t kChunk = 512;  // bytes that one turn of a read loop takes in

// Read `bytes`, a multiple of kChunk, from 64-byte aligned memory, fetching `ahead` bytes before they are due (0: not at all).
using Read = void (*)(const uint8_t* data, int64_t bytes, int64_t ahead);

inline void fetch(const uint8_t* at, int64_t ahead) {
    if (ahead == 0) return;
    for (int64_t line = 0; line < kChunk; line += 64) __builtin_prefetch(at + ahead + line);
}

void read_generic(const uint8_t* data, int64_t bytes, int64_t ahead) {
    uint64_t sums[kChunk / 8] = {};
    for (int64_t at = 0; at < bytes; at += kChunk) {
        fetch(data + at, ahead);
        uint64_t words[kChunk / 8];
        std::memcpy(words, data + at, kChunk);
        for (int i = 0; i < kChunk / 8; ++i) sums[i] |= words[i];
    }
    unknown(sums);
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) void read_avx512(const uint8_t* data, int64_t bytes, int64_t ahead) {
    __m512i sums[8] = {};
    for (int64_t at = 0; at < bytes; at += kChunk) {
        fetch(data + at, ahead);
        for (int i = 0; i < 8; ++i) sums[i] = _mm512_or_si512(sums[i], _mm512_load_si512(data + at + 64 * i));
    }
    OCTAVO_UNKNOWN(sums);
}

__attribute__((target("avx2"))) void read_avx2(const uint8_t* data, int64_t bytes, int64_t ahead) {
    __m256i sums[8] = {};
    for (int64_t at = 0; at < bytes; at += kChunk) {
        fetch(data + at, ahead);
        for (int i = 0; i < 16; ++i)
            sums[i % 8] = _mm256_or_si256(sums[i % 8], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + at + 32 * i)));
    }
    OCTAVO_UNKNOWN(sums);
}
#endif

Read best_read() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return read_avx512;
    if (__builtin_cpu_supports("avx2")) return read_avx2;
#endif
    return read_generic;
}

// Memory for a measurement, in large pages where the system gives them; null if there is too little.
class Buffer {
public:
    explicit Buffer(int64_t bytes) : bytes_(size_t(bytes)) {
        void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        data_ = memory == MAP_FAILED ? nullptr : static_cast<uint8_t*>(memory);
#if defined(MADV_HUGEPAGE)
        if (data_) madvise(data_, bytes_, MADV_HUGEPAGE);
#endif
    }
    ~Buffer() {
        if (data_) munmap(data_, bytes_);
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    uint8_t* data() const { return data_; }

private:
    size_t bytes_;
    uint8_t* data_;
};

struct Part { int64_t first, bytes; };

Part part_of(int64_t bytes, int worker, int threads) {
    const int64_t chunks = bytes / kChunk, first = chunks * worker / threads;
    return {first * kChunk, (chunks * (worker + 1) / threads - first) * kChunk};
}

// -- arithmetic ----------------------------------------------------------------------------------------------------------------

// A loop of independent multiply-adds on registers alone, and the operations (two per multiply-add) of one round.
struct Burst {
    void (*run)(int64_t rounds);
    double operations;
};

constexpr int kChains = 16;  // accumulators: more than latency times units of any core so far, and they fit 32 registers

void int8_generic(int64_t rounds) {
    uint8_t a[64];
    int8_t b[64];
    int32_t sums[16] = {};
    for (int i = 0; i < 64; ++i) a[i] = uint8_t(i), b[i] = int8_t(i);
    for (int64_t round = 0; round < rounds; ++round) {
        unknown(a);
        for (int i = 0; i < 16; ++i)
            for (int k = 0; k < 4; ++k) sums[i] += a[4 * i + k] * b[4 * i + k];
    }
    unknown(sums);
}

void float_generic(int64_t rounds) {
    float a[64], sums[64] = {};
    for (int i = 0; i < 64; ++i) a[i] = 1.0f / float(i + 1);
    for (int64_t round = 0; round < rounds; ++round) {
        unknown(a);
        for (int i = 0; i < 64; ++i) sums[i] += a[i] * 0.5f;
    }
    unknown(sums);
}

#if defined(__x86_64__)
constexpr int kHalfChains = 10;  // for the 16 registers below AVX-512

__attribute__((target("avx512f,avx512vnni"))) void int8_avx512(int64_t rounds) {
    const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
    __m512i sums[kChains] = {};
    OCTAVO_UNKNOWN(sums);
    for (int64_t round = 0; round < rounds; ++round)
        for (auto& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, b);
    OCTAVO_UNKNOWN(sums);
}

__attribute__((target("avx512f,avx512bf16"))) void bf16_avx512(int64_t rounds) {
    const __m512bh a = __m512bh(_mm512_set1_epi16(0x3f80));
    __m512 sums[kChains] = {};
    OCTAVO_UNKNOWN(sums);
    for (int64_t round = 0; round < rounds; ++round)
        for (auto& sum : sums) sum = _mm512_dpbf16_ps(sum, a, a);
    OCTAVO_UNKNOWN(sums);
}

__attribute__((target("avx512f"))) void float_avx512(int64_t rounds) {
    const __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
    __m512 sums[kChains] = {};
    OCTAVO_UNKNOWN(sums);
    for (int64_t round = 0; round < rounds; ++round)
        for (auto& sum : sums) sum = _mm512_fmadd_ps(a, b, sum);
    OCTAVO_UNKNOWN(sums);
}

__attribute__((target("avx2,avxvnni"))) void int8_avxvnni(int64_t rounds) {
    const __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
    __m256i sums[kHalfChains] = {};
    OCTAVO_UNKNOWN(sums);
    for (int64_t round = 0; round < rounds; ++round)
        for (auto& sum : sums) sum = _mm256_dpbusd_avx_epi32(sum, a, b);
    OCTAVO_UNKNOWN(sums);
}

__attribute__((target("avx2"))) void int8_avx2(int64_t rounds) {  // three instructions where VNNI has one
    const __m256i b = _mm256_set1_epi8(5), ones = _mm256_set1_epi16(1);
    __m256i a[1] = {_mm256_set1_epi8(3)}, sums[kHalfChains] = {};
    OCTAVO_UNKNOWN(sums);
    for (int64_t round = 0; round < rounds; ++round)
        for (auto& sum : sums) {
            OCTAVO_UNKNOWN(a);
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a[0], b), ones));
        }
    OCTAVO_UNKNOWN(sums);
}

__attribute__((target("avx2,fma"))) void float_avx2(int64_t rounds) {
    const __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
    __m256 sums[kHalfChains] = {};
    OCTAVO_UNKNOWN(sums);
    for (int64_t round = 0; round < rounds; ++round)
        for (auto& sum : sums) sum = _mm256_fmadd_ps(a, b, sum);
    OCTAVO_UNKNOWN(sums);
}
#endif

#if defined(__aarch64__)
void int8_neon(int64_t rounds) {  // four instructions where the others have one
    const int8x16_t b = vdupq_n_s8(5);
    int8x16_t a[1] = {vdupq_n_s8(3)};
    int32x4_t sums[kChains] = {};
    OCTAVO_UNKNOWN(sums);
    for (int64_t round = 0; round < rounds; ++round)
        for (auto& sum : sums) {
            OCTAVO_UNKNOWN(a);
            const int16x8_t low = vmull_s8(vget_low_s8(a[0]), vget_low_s8(b)), high = vmull_high_s8(a[0], b);
            sum = vpadalq_s16(sum, vpaddq_s16(low, high));
        }
    OCTAVO_UNKNOWN(sums);
}

__attribute__((target("arch=armv8.2-a+dotprod"))) void int8_dot(int64_t rounds) {
    const int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(5);
    int32x4_t sums[kChains] = {};
    OCTAVO_UNKNOWN(sums);
    for (int64_t round = 0; round < rounds; ++round)
        for (auto& sum : sums) sum = vdotq_s32(sum, a, b);
    OCTAVO_UNKNOWN(sums);
}

__attribute__((target("arch=armv8.2-a+i8mm"))) void int8_mmla(int64_t rounds) {
    const int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(5);
    int32x4_t sums[kChains] = {};
    OCTAVO_UNKNOWN(sums);
    for (int64_t round = 0; round < rounds; ++round)
        for (auto& sum : sums) sum = vmmlaq_s32(sum, a, b);
    OCTAVO_UNKNOWN(sums);
}

__attribute__((target("arch=armv8.2-a+bf16"))) void bf16_mmla(int64_t rounds) {
    uint16_t one = 0x3f80;
    unknown(one);  // GCC 12 writes a constant bf16 down as an f16
    const bfloat16x8_t a = vreinterpretq_bf16_u16(vdupq_n_u16(one));
    float32x4_t sums[kChains] = {};
    OCTAVO_UNKNOWN(sums);
    for (int64_t round = 0; round < rounds; ++round)
        for (auto& sum : sums) sum = vbfmmlaq_f32(sum, a, a);
    OCTAVO_UNKNOWN(sums);
}

void float_neon(int64_t rounds) {
    const float32x4_t a = vdupq_n_f32(0.5f), b = vdupq_n_f32(0.25f);
    float32x4_t sums[kChains] = {};
    OCTAVO_UNKNOWN(sums);
    for (int64_t round = 0; round < rounds; ++round)
        for (auto& sum : sums) sum = vfmaq_f32(sum, a, b);
    OCTAVO_UNKNOWN(sums);
}
#endif

// The fastest way to multiply int8 that a set of kernels may use.
Burst int8_burst(const char* set) {
#if defined(__x86_64__)
    if (std::strcmp(set, "avx512") == 0) return {int8_avx512, kChains * 64 * 2};
    if (std::strcmp(set, "avx_vnni") == 0) return {int8_avxvnni, kHalfChains * 32 * 2};
    if (std::strcmp(set, "avx2") == 0) return {int8_avx2, kHalfChains * 32 * 2};
#elif defined(__aarch64__)
    if (std::strcmp(set, "neon_i8mm") == 0) return {int8_mmla, kChains * 32 * 2};
    if (std::strcmp(set, "neon_dotprod") == 0) return {int8_dot, kChains * 16 * 2};
    if (std::strcmp(set, "neon") == 0) return {int8_neon, kChains * 16 * 2};
#endif
    (void)set;
    return {int8_generic, 64 * 2};
}

// The same for float32.
Burst float_burst(const char* set) {
#if defined(__x86_64__)
    if (std::strcmp(set, "avx512") == 0) return {float_avx512, kChains * 16 * 2};
    if (std::strcmp(set, "avx2") == 0 || std::strcmp(set, "avx_vnni") == 0) return {float_avx2, kHalfChains * 8 * 2};
#elif defined(__aarch64__)
    if (std::strncmp(set, "neon", 4) == 0) return {float_neon, kChains * 4 * 2};
#endif
    (void)set;
    return {float_generic, 64 * 2};
}

// The same for bf16; where there are no such instructions, float32 multiply-adds, which is what kernels make of it.
Burst bf16_burst(const char* set) {
#if defined(__x86_64__)
    if (std::strcmp(set, "avx512") == 0) return {bf16_avx512, kChains * 32 * 2};
#elif defined(__aarch64__)
    if (std::strcmp(set, "neon_i8mm") == 0) return {bf16_mmla, kChains * 16 * 2};
#endif
    return float_burst(set);
}

double operations_per_second(Pool& pool, const Burst& burst, double seconds) {
    constexpr double kRound = 0.004;
    double best = 0.0, spent = 0.0;
    int64_t rounds = 1000;
    while (spent < seconds) {
        const double elapsed = seconds_of(pool, [&](int) { burst.run(rounds); });
        spent += elapsed;
        best = std::max(best, double(rounds) * burst.operations * double(pool.threads()) / elapsed);
        if (elapsed < kRound / 2) rounds *= 2;
    }
    return best;
}

Pool& pool_of(void* handle) { return **static_cast<std::shared_ptr<Pool>*>(handle); }

}  // namespace

extern "C" {

// Bytes per second that all threads together read, each a part of its own, from `bytes` at `data` (64-byte aligned), or from fresh
// memory of that size where `data` is null. The size must be well above the last-level cache for this to be memory's speed.
// -1 if there is no memory for it.
double octavo_ceiling_read(void* handle, const uint8_t* data, int64_t bytes, double seconds) {
    Pool& pool = pool_of(handle);
    const int threads = pool.threads();
    const Buffer own(data ? 1 : bytes);
    if (data == nullptr) {
        if (own.data() == nullptr) return -1.0;
        pool.run([&](int worker) {  // first touched by the thread that reads it: memory near its core
            const Part part = part_of(bytes, worker, threads);
            std::memset(own.data() + part.first, 1, size_t(part.bytes));
        });
        data = own.data();
    }
    constexpr int64_t kAhead[] = {0, 1024, 4096};  // with the processor's own prefetching alone, and with two kinds of help
    const Read read = best_read();
    double best = 0.0, spent = 0.0;
    for (int round = 0; spent < seconds || round < 3; ++round) {
        const double elapsed = seconds_of(pool, [&](int worker) {
            const Part part = part_of(bytes, worker, threads);
            read(data + part.first, part.bytes, kAhead[round % 3]);
        });
        spent += elapsed;
        best = std::max(best, double(bytes / kChunk * kChunk) / elapsed);
    }
    return best;
}

// int8 operations per second (a multiply-add is two) of all threads, by the best instruction that the set of kernels may use.
// -1 if there is no such set, or it cannot run here.
double octavo_ceiling_int8(void* handle, const char* kernels, double seconds) {
    const Kernels* set = choose_kernels(kernels);
    return set ? operations_per_second(pool_of(handle), int8_burst(set->name), seconds) : -1.0;
}

// The same for bf16.
double octavo_ceiling_bf16(void* handle, const char* kernels, double seconds) {
    const Kernels* set = choose_kernels(kernels);
    return set ? operations_per_second(pool_of(handle), bf16_burst(set->name), seconds) : -1.0;
}

// The same for float32.
double octavo_ceiling_f32(void* handle, const char* kernels, double seconds) {
    const Kernels* set = choose_kernels(kernels);
    return set ? operations_per_second(pool_of(handle), float_burst(set->name), seconds) : -1.0;
}

}  // extern "C"
