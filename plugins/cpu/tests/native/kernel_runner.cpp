// Calls the kernel interface on behalf of another process, so that the tests reach builds that Python cannot load: for another
// processor (under an emulator) or with sanitizers. Each array of a call is an allocation of its own, of exactly its size: a sanitizer
// sees every step beyond it. Without one, arrays end where a page begins that nobody may touch, and so begin at any address.
//
// A request on standard input: the function's name, the number of arguments, the arguments. A reply on standard output: the result, then
// every array as the call left it. Numbers are little endian; a name is a u32 length and its bytes; an argument is a byte of kind and
//   0  int64     1  double     2  array: u64 length, bytes     3  null     4  the array of an earlier argument: i64 index
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "../../csrc/kernel_api.h"

namespace {

struct Argument {
    int64_t integer = 0;
    double real = 0;
    void* array = nullptr;
    uint64_t bytes = 0;
    bool owned = false;
};

using Arguments = std::vector<Argument>;

// What an argument becomes is decided by the parameter that takes it.
struct Any {
    const Argument& argument;
    operator int64_t() const { return argument.integer; }
    operator double() const { return argument.real; }
    template <typename T>
    operator T*() const { return static_cast<T*>(argument.array); }
    operator const void*() const { return reinterpret_cast<const void*>(argument.integer); }  // a kernel set, as the reply gave it
};

template <typename... Parameters, size_t... I>
void call(void (*function)(Parameters...), const Arguments& given, std::index_sequence<I...>) {
    function(static_cast<Parameters>(Any{given[I]})...);
}

template <typename... Parameters>
int64_t invoke(void (*function)(Parameters...), const Arguments& given) {
    if (given.size() != sizeof...(Parameters)) std::abort();
    call(function, given, std::index_sequence_for<Parameters...>{});
    return 0;
}

#define CALL(name) \
    {#name, [](const Arguments& given) { return invoke(name, given); }}

const std::map<std::string, int64_t (*)(const Arguments&)> kFunctions = {
    {"octavo_kernel_set", [](const Arguments& given) { return reinterpret_cast<int64_t>(octavo_kernel_set(static_cast<const char*>(given[0].array))); }},
    {"octavo_kernel_tile_bytes", [](const Arguments& given) { return octavo_kernel_tile_bytes(given[0].integer, given[1].integer); }},
    {"octavo_kernel_attention_scratch", [](const Arguments& given) { return octavo_kernel_attention_scratch(given[0].integer); }},
    CALL(octavo_kernel_pack), CALL(octavo_kernel_dequantise), CALL(octavo_kernel_matmul), CALL(octavo_kernel_matmul_float),
    CALL(octavo_kernel_quantise), CALL(octavo_kernel_refine), CALL(octavo_kernel_to_bf16), CALL(octavo_kernel_rms_norm), CALL(octavo_kernel_gated),
    CALL(octavo_kernel_rope), CALL(octavo_kernel_argmax), CALL(octavo_kernel_attention),
    CALL(octavo_kernel_maxima), CALL(octavo_kernel_mask), CALL(octavo_kernel_kv_codes), CALL(octavo_kernel_weigh), CALL(octavo_kernel_sample),
};

#if defined(__SANITIZE_ADDRESS__)
void* allocate(uint64_t bytes) {
    void* array = nullptr;
    return posix_memalign(&array, 64, bytes) == 0 ? array : nullptr;
}

void release(void* array, uint64_t) { std::free(array); }
#else
uint64_t pages_for(uint64_t bytes) {
    const uint64_t page = uint64_t(sysconf(_SC_PAGESIZE));
    return (bytes + page - 1) / page * page;
}

void* allocate(uint64_t bytes) {
    const uint64_t room = pages_for(bytes);
    void* start = mmap(nullptr, room + pages_for(1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return nullptr;
    uint8_t* const end = static_cast<uint8_t*>(start) + room;
    return mprotect(end, pages_for(1), PROT_NONE) == 0 ? end - bytes : nullptr;
}

void release(void* array, uint64_t bytes) {
    const uint64_t room = pages_for(bytes);
    munmap(static_cast<uint8_t*>(array) + bytes - room, room + pages_for(1));
}
#endif

bool take(void* to, size_t bytes) { return bytes == 0 || std::fread(to, bytes, 1, stdin) == 1; }

template <typename T>
T take() {
    T value{};
    if (!take(&value, sizeof value)) std::abort();
    return value;
}

Argument take_argument(const Arguments& earlier) {
    Argument argument;
    switch (take<uint8_t>()) {
        case 0: argument.integer = take<int64_t>(); break;
        case 1: argument.real = take<double>(); break;
        case 2:
            argument.bytes = take<uint64_t>();
            argument.owned = true;
            argument.array = allocate(argument.bytes);
            if (argument.array == nullptr || !take(argument.array, argument.bytes)) std::abort();
            break;
        case 3: break;
        case 4: argument.array = earlier.at(size_t(take<int64_t>())).array; break;
        default: std::abort();
    }
    return argument;
}

}  // namespace

int main() {
    uint32_t length;
    while (take(&length, sizeof length)) {
        std::string name(length, '\0');
        if (!take(name.data(), length)) return 1;
        Arguments arguments;
        for (uint32_t left = take<uint32_t>(); left > 0; --left) arguments.push_back(take_argument(arguments));
        const int64_t result = kFunctions.at(name)(arguments);
        std::fwrite(&result, sizeof result, 1, stdout);
        for (const Argument& argument : arguments)
            if (argument.owned) {
                std::fwrite(argument.array, 1, argument.bytes, stdout);
                release(argument.array, argument.bytes);
            }
        std::fflush(stdout);
    }
    return 0;
}
