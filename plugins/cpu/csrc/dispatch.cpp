#include <cstring>

#include "kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
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

#else

bool runs_avx512() { return false; }
bool runs_avx2() { return false; }
bool runs_avx_vnni() { return false; }

#endif

#if defined(__aarch64__)

// Linux tells of instructions in two words of bits, here by number: the headers of old kernels have no names for the later ones.
// macOS tells of each by name. Elsewhere we know of none.
#if defined(__linux__)
bool has_dotprod() { return ((getauxval(AT_HWCAP) >> 20) & 1) != 0; }  // HWCAP_ASIMDDP
bool has_i8mm() { return ((getauxval(AT_HWCAP2) >> 13) & 1) != 0; }    // HWCAP2_I8MM
bool has_bf16() { return ((getauxval(AT_HWCAP2) >> 14) & 1) != 0; }    // HWCAP2_BF16
#elif defined(__APPLE__)
bool told(const char* name) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}
bool has_dotprod() { return told("hw.optional.arm.FEAT_DotProd"); }
bool has_i8mm() { return told("hw.optional.arm.FEAT_I8MM"); }
bool has_bf16() { return told("hw.optional.arm.FEAT_BF16"); }
#else
bool has_dotprod() { return false; }
bool has_i8mm() { return false; }
bool has_bf16() { return false; }
#endif

bool runs_neon() { return true; }  // a part of the architecture
bool runs_neon_dotprod() { return has_dotprod(); }
bool runs_neon_i8mm() { return has_dotprod() && has_i8mm() && has_bf16(); }

#else

bool runs_neon() { return false; }
bool runs_neon_dotprod() { return false; }
bool runs_neon_i8mm() { return false; }

#endif

struct Choice {
    const char* name;
    const Kernels* (*kernels)();
    bool (*runs)();
};

constexpr Choice kBestFirst[] = {
    {"avx512", avx512_kernels, runs_avx512},
    {"avx_vnni", avx_vnni_kernels, runs_avx_vnni},
    {"avx2", avx2_kernels, runs_avx2},
    {"neon_i8mm", neon_i8mm_kernels, runs_neon_i8mm},
    {"neon_dotprod", neon_dotprod_kernels, runs_neon_dotprod},
    {"neon", neon_kernels, runs_neon},
    {"generic", generic_kernels, [] { return true; }},
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
