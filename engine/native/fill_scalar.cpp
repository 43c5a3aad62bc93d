// One block at a time: the plainest implementation of the noise streams, against which all others are checked.
#include "sampler.h"

namespace ars {

void fill_scalar(Family family, const DrawKey& key, const CopyPart& part) {
  for (size_t start = 0; start < part.values; start += 4) {
    const uint32_t block = part.first_block + (uint32_t)(start / 4);
    const int count = part.values - start < 4 ? (int)(part.values - start) : 4;
    const Slot slot = from_dimension(part.slot, start);
    float values[4];
    if (slot.step == 0) {
      stream_block(family, key, block, part.stretch, values);
      for (int k = 0; k < count; ++k) values[k] = fma(slot.scale[k], values[k], slot.center[k]);
    } else {
      lattice_block(family, key, block, part.stretch, slot, count, values);
    }
    __builtin_memcpy(part.out + start, values, (size_t)count * sizeof(float));
  }
}

void fill_precise(Family family, const DrawKey& key, const CopyPart& part) {
  for (size_t i = 0; i < part.values; ++i)
    part.out[i] = precise_value(family, key, part.first_block + (uint32_t)(i / 4), (int)(i % 4), part.stretch,
                                from_dimension(part.slot, i));
}

}  // namespace ars
