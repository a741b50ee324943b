// A second plane of activation codes, for the groups where the first loses most.
//
// Int8 codes for 32 activations lose what their largest makes them lose, and few groups have the large ones: in language models a tenth of
// the groups makes four fifths of the error. Those get codes for what the first ones left, 256 times finer.
#pragma once
#include "kernels.h"

namespace octavo {

// After quantise(values, k, x, row): refine the groups of the row whose scale is above `threshold` times the root of the row's mean square
// scale; 0 refines all.
void refine(const float* values, int k, float threshold, const Activations& x, int row);

}  // namespace octavo
