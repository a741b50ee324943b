#include <cstring>

#include "kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace octavo {

namespace {

#if defined(__x86_64__)

bool runs_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
}

// Bits of CPUID that not every compiler has a name for. That the system saves the registers is known from AVX2 itself.
bool runs_avx2() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && ((c >> 29) & 1) != 0;
    return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool runs_avx_vnni() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return runs_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && ((a >> 4) & 1) != 0;
}

bool runs_neon() { return false; }

#else

bool runs_avx512() { return false; }
bool runs_avx2() { return false; }
bool runs_avx_vnni() { return false; }

bool runs_neon() {
#if defined(__aarch64__) && defined(__linux__)
    return ((getauxval(AT_HWCAP) >> 20) & 1) != 0;  // HWCAP_ASIMDDP: the integer dot product
#elif defined(__aarch64__) && defined(__APPLE__)
    return true;  // every Apple processor for Macs has it
#else
    return false;
#endif
}

#endif

struct Choice {
    const char* name;
    const Kernels* (*kernels)();
    bool (*runs)();
};

constexpr Choice kBestFirst[] = {
    {"avx512", avx512_kernels, runs_avx512}, {"avx_vnni", avx_vnni_kernels, runs_avx_vnni}, {"avx2", avx2_kernels, runs_avx2},
    {"neon", neon_kernels, runs_neon},       {"generic", generic_kernels, [] { return true; }},
};

}  // namespace

const Kernels* choose_kernels(const char* name) {
    const bool any = name == nullptr || *name == '\0';
    for (const Choice& choice : kBestFirst) {
        if (!any && std::strcmp(name, choice.name) != 0) continue;
        if (choice.kernels() != nullptr && choice.runs()) return choice.kernels();
    }
    return nullptr;
}

}  // namespace octavo
