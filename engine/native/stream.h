// Noise stream 1: the noise as a pure function of (seed, phase, input, draw, dimension).
//
//   key      (seed low, seed high)
//   counter  (block, draw low 32, input, phase | draw high 24 << 8)
//   block b  holds the dimensions 4b, 4b+1, 4b+2, 4b+3
//   values   two from the words (0, 1) of a block and two from its words (2, 3): distributions.h
//   copy     a noisy value is fma(scale, z, x + mean), in float32
//
// tests/known_answers.txt holds its bits. A change of any bit would make it another stream, with another number.
#pragma once

#include <stddef.h>

#include "distributions.h"
#include "philox.h"

namespace ars {

// What identifies a draw.
struct DrawKey {
  uint64_t seed;
  uint64_t draw;  // below 2^56
  uint32_t input;
  uint32_t phase;  // below 2^8
};

template <class W> ARS_FN Block<W> stream_words(const DrawKey& key, W block) {
  const Block<W> counter = {block, Constant<W>::of((uint32_t)key.draw), Constant<W>::of(key.input),
                            Constant<W>::of(key.phase | (uint32_t)(key.draw >> 32) << 8)};
  return philox4x32_10(counter, (uint32_t)key.seed, (uint32_t)(key.seed >> 32));
}

// An input and its noise, or one of its dimensions. Noise stream 1 reads center, x + mean, and scale, and has no step.
// Noise stream 2 (lattice.h) reads all of them, in units of the step.
struct Slot {
  const float *center, *scale, *margin;
  const double* exact_center;
  float step;
};

ARS_FN Slot from_dimension(const Slot& slot, size_t first) {
  if (slot.step == 0) return {slot.center + first, slot.scale + first, nullptr, nullptr, 0};
  return {slot.center + first, slot.scale + first, slot.margin + first, slot.exact_center + first, slot.step};
}

// The four standard noise values of one block.
ARS_FN void stream_block(Family family, const DrawKey& key, uint32_t block, float z[4]) {
  const Block<uint32_t> w = stream_words(key, block);
  switch (family) {
#define ARS_CASE(name, code)              \
  case Family::name:                      \
    name::values(w.w0, w.w1, z[0], z[1]); \
    name::values(w.w2, w.w3, z[2], z[3]); \
    break;
    ARS_FAMILIES(ARS_CASE)
#undef ARS_CASE
  }
}

}  // namespace ars
