// One block at a time: the plainest implementation of noise stream 1, against which all others are checked.
#include "sampler.h"

void ars::fill_scalar(Family family, const DrawKey& key, const CopyPart& part) {
  for (size_t start = 0; start < part.values; start += 4) {
    float z[4];
    stream_block(family, key, part.first_block + (uint32_t)(start / 4), z);
    for (size_t i = start; i < start + 4 && i < part.values; ++i)
      part.out[i] = fma(part.scale[i], z[i - start], part.center[i]);
  }
}
