// The NEON kernels with the integer dot product (Cortex-A75, Neoverse N1, Apple M1 and later): one instruction where kernels_neon.cpp
// has four.
#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#define OCTAVO_NEON_DOTPROD
#include "kernels_neon.cpp"
#else
#include "kernels.h"

namespace octavo {
const Kernels* neon_dotprod_kernels() { return nullptr; }
}  // namespace octavo
#endif
