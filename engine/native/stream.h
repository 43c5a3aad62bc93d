// Noise stream 1: the noise as a pure function of (seed, phase, input, draw, dimension).
//
//   key      (seed low, seed high)
//   counter  (block, draw low 32, input, phase | draw high 24 << 8)
//   block b  holds the dimensions 4b, 4b+1, 4b+2, 4b+3
//   values   two from the words (0, 1) of a block and two from its words (2, 3): distributions.h
//   stretch  of exponential noise, in float32, multiplies every value of the draw; its words have counters of their own,
//            with phase | 0x40 and phase | 0xC0
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

// The factor by which all values of a draw are multiplied, in double precision and in float32. It is 1 for most families.
struct Stretch {
  double exact;
  float rounded;
};

// One trial at the stretch of exponential noise in d dimensions, from three numbers of 64 bits; 0 if it is rejected.
//
// d times the stretch is a Gamma variable of shape d + 1. The method is that of Marsaglia and Tsang ("A simple method for
// generating gamma variables", ACM TOMS 26, 2000), in double precision. docs/soundness.md bounds its error.
ARS_FN double try_stretch(uint64_t u_word, uint64_t v_word, uint64_t w_word, double d) {
  const double mode = add(d, 2.0 / 3), width = divide(1.0, multiply(3.0, square_root(mode)));
  const double x = gaussian::precise(u_word, v_word, false), root = fma(width, x, 1.0);
  if (!(root > 0)) return 0;
  const double v = multiply(multiply(root, root), root);
  // The trial is accepted if log(w) < x^2 / 2 + mode (1 - v + log(v)); here both sides are multiplied by -2.
  const double limit = fma(mode, add(multiply(2.0, add(v, -1.0)), precise_minus_two_log(v)), -multiply(x, x));
  return precise_minus_two_log(w_word, 64) > limit ? divide(multiply(mode, v), d) : 0;
}

// The stretch of exponential noise. Trial k has the words of block k in two sequences of blocks that no value uses. At
// least 98 trials in 100 are accepted.
ARS_RARE double exponential_stretch(DrawKey key, uint64_t dimensions) {
  const DrawKey first = {key.seed, key.draw, key.input, key.phase | 0x40u};
  const DrawKey second = {key.seed, key.draw, key.input, key.phase | 0xC0u};
  double stretch = 0;
  for (uint32_t trial = 0; stretch == 0; ++trial) {
    const Block<uint32_t> high = stream_words(first, trial), low = stream_words(second, trial);
    stretch = try_stretch((uint64_t)high.w0 << 32 | low.w0, (uint64_t)high.w1 << 32 | low.w1,
                          (uint64_t)high.w2 << 32 | low.w2, to_double(dimensions));
  }
  return stretch;
}

// The stretch of a draw, for an input of this many dimensions.
ARS_FN Stretch stretch_of(Family family, const DrawKey& key, uint64_t dimensions) {
  if (family != Family::exponential) return {1, 1};
  const double exact = exponential_stretch(key, dimensions);
  return {exact, (float)exact};
}

// Standard noise from a family's values.
template <class family, class F> ARS_FN F apply_stretch(float stretch, F z) {
  if constexpr (is_stretched<family>) return multiply(Constant<F>::of(stretch), z);
  return z;
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
template <Among among = Among::all_families>
ARS_FN void stream_block(Family family, const DrawKey& key, uint32_t block, const Stretch& stretch, float z[4]) {
  const Block<uint32_t> w = stream_words(key, block);
  switch (family) {
#define ARS_CASE(name, code)                                                         \
  case Family::name:                                                                 \
    if constexpr (is_among<among, name>) {                                           \
      name::values(w.w0, w.w1, z[0], z[1]);                                          \
      name::values(w.w2, w.w3, z[2], z[3]);                                          \
      for (int k = 0; k < 4; ++k) z[k] = apply_stretch<name>(stretch.rounded, z[k]); \
    }                                                                                \
    break;
    ARS_FAMILIES(ARS_CASE)
#undef ARS_CASE
  }
}

}  // namespace ars
