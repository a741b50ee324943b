// The AVX2 kernels with VPDPBUSD (Alder Lake and later, Zen 5 and later): one instruction where kernels_avx2.cpp has three.
#if defined(__AVXVNNI__) && defined(__FMA__) && defined(__F16C__)
#include "kernels_avx2.cpp"
#else
#include "kernels.h"

namespace octavo {
const Kernels* avx_vnni_kernels() { return nullptr; }
}  // namespace octavo
#endif
