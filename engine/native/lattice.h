// Noise stream 2: noisy values on a lattice, with the distribution of ideal noise up to a proven error.
//
// A noisy value is the multiple of `step` that is nearest to x + mean + scale Z, where Z is ideal noise: a function of
// two uniform numbers U and V with infinitely many bits. The words of noise stream 1 are their first 32 bits. Let
// t = (x + mean + scale Z) / step. The value is decided in two ways, and docs/soundness.md proves that they agree:
//
//   fast   t is computed in float32. Its error is at most 1/2 - margin, so if t is within `margin` of a whole number,
//          that number is the right one, whatever the other bits of U and V are.
//   slow   Otherwise 32 more bits of each word are taken, from the same counter with phase | 0x80, and t is computed in
//          double precision. The nearest whole number is then wrong with a probability that the certificate accounts for.
//
// A slot has center = (x + mean) / step in float32, exact_center the same in double precision, and scale / step.
// tests/known_answers.txt holds the bits of this stream too.
#pragma once

#include "stream.h"

namespace ars {

// The nearest whole number, of a number below 2^22 (float) or 2^51 (double) in absolute value.
ARS_FN float nearest_whole(float t) { return add(add(t, 0x1.8p23f), -0x1.8p23f); }
ARS_FN double nearest_whole(double t) { return add(add(t, 0x1.8p52), -0x1.8p52); }

// Standard noise, in float32, and NaN where the words are so extreme that its error is not bounded.
template <class family, class F, class W> ARS_FN void bounded_noise(W first_word, W second_word, F& first, F& second) {
  W first_unbounded, second_unbounded;
  family::values(first_word, second_word, first, second);
  family::unbounded(first_word, second_word, first_unbounded, second_unbounded);
  first = float_of(W(bits_of(first) | first_unbounded)), second = float_of(W(bits_of(second) | second_unbounded));
}

// The furthest cells: a value beyond them becomes theirs. Only Pareto noise goes so far. This is a function of the cell,
// like the classifier that sees it, so certificates hold (docs/soundness.md); and every value is an exact, finite float.
static constexpr double furthest_cell = 0x1p22;

// The stretch of a draw as the fast path takes it, which is for values up to 8.
ARS_FN float bounded_stretch(const Stretch& stretch) {
  return stretch.rounded <= 8 ? stretch.rounded : float_of(0x7FC00000u);
}

// The scale of a value as the slow path takes it: in double precision if it is multiplied by the stretch of the draw.
template <class family> ARS_FN auto precise_scale(float scale, const Stretch& stretch) {
  if constexpr (is_stretched<family>)
    return multiply((double)scale, stretch.exact);
  else
    return scale;
}

// The slow path: value k (0 to 3) of a block. About one value in a thousand takes it.
template <class family, class Scale>
ARS_RARE float precise_value(DrawKey key, uint32_t block, int k, Scale scale, double exact_center, float step) {
  const DrawKey more = {key.seed, key.draw, key.input, key.phase | 0x80u};
  const Block<uint32_t> high = stream_words(key, block), low = stream_words(more, block);
  const uint64_t first = (uint64_t)(k < 2 ? high.w0 : high.w2) << 32 | (k < 2 ? low.w0 : low.w2);
  const uint64_t second = (uint64_t)(k < 2 ? high.w1 : high.w3) << 32 | (k < 2 ? low.w1 : low.w3);
  const double t = fma((double)scale, family::precise(first, second, k % 2), exact_center);
  const double cell = nearest_whole(t), most = furthest_cell;
  return multiply((float)(cell > most ? most : cell < -most ? -most : cell), step);
}

// Value k of a block, from its noise in float32. The pointers of `at` point to the value's own dimension.
template <class family>
ARS_FN float lattice_value(float z, const DrawKey& key, uint32_t block, int k, const Stretch& stretch, const Slot& at) {
  const float t = fma(*at.scale, z, *at.center), cell = nearest_whole(t), apart = add(t, -cell);
  const float distance = float_of(bits_of(apart) & 0x7FFFFFFFu);
  if (distance <= *at.margin) return multiply(cell, at.step);  // not so if z is NaN
  return precise_value<family>(key, block, k, precise_scale<family>(*at.scale, stretch), *at.exact_center, at.step);
}

// The first `count` (1 to 4) values of a block.
template <class family>
ARS_FN void lattice_block(const DrawKey& key, uint32_t block, const Stretch& stretch, const Slot& at, int count,
                          float y[4]) {
  const Block<uint32_t> w = stream_words(key, block);
  float z[4];
  bounded_noise<family>(w.w0, w.w1, z[0], z[1]);
  bounded_noise<family>(w.w2, w.w3, z[2], z[3]);
  ARS_UNROLL
  for (int k = 0; k < 4; ++k)
    if (k < count) {
      const float noise = apply_stretch<family>(bounded_stretch(stretch), z[k]);
      y[k] = lattice_value<family>(noise, key, block, k, stretch, from_dimension(at, k));
    }
}

template <Among among = Among::all_families>
ARS_FN void lattice_block(Family family, const DrawKey& key, uint32_t block, const Stretch& stretch, const Slot& at,
                          int count, float y[4]) {
  switch (family) {
#define ARS_CASE(name, code)                                                                     \
  case Family::name:                                                                             \
    if constexpr (is_among<among, name>) lattice_block<name>(key, block, stretch, at, count, y); \
    break;
    ARS_FAMILIES(ARS_CASE)
#undef ARS_CASE
  }
}

// One value by the slow path, whatever float32 says.
ARS_FN float precise_value(Family family, const DrawKey& key, uint32_t block, int k, const Stretch& stretch,
                           const Slot& at) {
  switch (family) {
#define ARS_CASE(name, code) \
  case Family::name:         \
    return precise_value<name>(key, block, k, precise_scale<name>(*at.scale, stretch), *at.exact_center, at.step);
    ARS_FAMILIES(ARS_CASE)
#undef ARS_CASE
  }
  return float_of(0x7FC00000u);
}

}  // namespace ars
