// Fills a part of one noisy copy with vector instructions. The sampler spends nearly all its time in these loops. Every
// fill_<instructions>.cpp includes this file and is compiled for its own instructions.
#pragma once

#include "sampler.h"
#include "vectors.h"

namespace ars {

ARS_FN FloatRegister load(const float* from) {
  FloatRegister values;
  __builtin_memcpy(&values, from, sizeof values);
  return values;
}

// A register of noisy values from its standard noise. Noise stream 1 settles all of them; of noise stream 2 the values
// whose bits are set in the result must be settled by the slow path (lattice.h).
template <bool lattice> ARS_FN uint64_t add_noise(FloatRegister z, const Slot& at, float* out) {
  FloatRegister noisy = fma(load(at.scale), z, load(at.center));
  uint64_t undecided = 0;
  if (lattice) {
    const FloatRegister shift = 0x1.8p23f - FloatRegister{}, cell = (noisy + shift) - shift;  // nearest_whole
    undecided = not_within(noisy - cell, load(at.margin));
    noisy = cell * at.step;
  }
  __builtin_memcpy(out, &noisy, sizeof noisy);
  return undecided;
}

// Writes the values of one step, 4 * blocks_per_vector of them, in the order of their dimensions.
template <bool lattice> ARS_FN uint64_t add_noise(Floats a, Floats b, const Slot& at, float* out) {
  const int n = register_bytes / 4;
  const FloatRegister z[4] = {interleave_low(a.a, b.a), interleave_high(a.a, b.a), interleave_low(a.b, b.b),
                              interleave_high(a.b, b.b)};
  uint64_t undecided = 0;
  ARS_UNROLL
  for (int i = 0; i < 4; ++i) undecided |= add_noise<lattice>(z[i], from_dimension(at, i * n), out + i * n) << (i * n);
  return undecided;
}

// Settles the values of a step whose bits are set.
template <class family>
ARS_FN void settle(uint64_t undecided, const DrawKey& key, uint32_t first_block, const Stretch& stretch, const Slot& at,
                   float* out) {
  for (; undecided; undecided &= undecided - 1) {
    const uint32_t i = (uint32_t)__builtin_ctzll(undecided);
    const auto scale = precise_scale<family>(at.scale[i], stretch);
    out[i] = precise_value<family>(key, first_block + i / 4, i % 4, scale, at.exact_center[i], at.step);
  }
}

// Works in chunks: first all words of a chunk, then all its values, because two short loops keep more operations in
// flight than one long loop. The key and the part are passed by value, so that the compiler knows that writing the
// noisy copy does not change them.
template <class family, bool lattice> static void fill_family(const DrawKey key, const CopyPart part) {
  const size_t chunk = 32, step = 4 * blocks_per_vector;
  const float stretch = lattice ? bounded_stretch(part.stretch) : part.stretch.rounded;
  Words32 even[chunk], odd[chunk];
  for (size_t start = 0; start < part.values; start += chunk * step) {
    const size_t values = part.values - start < chunk * step ? part.values - start : chunk * step;
    const uint32_t first_block = part.first_block + (uint32_t)(start / 4);

    Counters blocks = block_numbers(first_block);
    for (size_t i = 0; i * step < values; ++i, blocks = blocks + (uint32_t)blocks_per_vector) {
      const Block<Counters> w = stream_words(key, blocks);
      // Words 0 and 2 stand side by side, and so do words 1 and 3: interleaving the values of both restores 0, 1, 2, 3.
      even[i] = join(w.w0, w.w2), odd[i] = join(w.w1, w.w3);
    }
    for (size_t i = 0; i * step < values; ++i) {
      Floats a, b;
      if (lattice)
        bounded_noise<family>(even[i], odd[i], a, b);
      else
        family::values(even[i], odd[i], a, b);
      a = apply_stretch<family>(stretch, a), b = apply_stretch<family>(stretch, b);
      const size_t first = start + i * step, rest = part.values - first;
      const Slot at = from_dimension(part.slot, first);
      float* out = part.out + first;
      uint64_t undecided;
      if (rest >= step) {
        undecided = add_noise<lattice>(a, b, at, out);
      } else {  // the last step is not full
        float padded[4][step] = {};
        const double unread[step] = {};  // add_noise moves along it, and reads nothing
        Slot padded_slot = {padded[0], padded[1], padded[2], unread, at.step};
        __builtin_memcpy(padded[0], at.center, rest * sizeof(float));
        __builtin_memcpy(padded[1], at.scale, rest * sizeof(float));
        if (lattice) __builtin_memcpy(padded[2], at.margin, rest * sizeof(float));
        undecided = add_noise<lattice>(a, b, padded_slot, padded[3]) & (((uint64_t)1 << rest) - 1);
        __builtin_memcpy(out, padded[3], rest * sizeof(float));
      }
      if (lattice) settle<family>(undecided, key, first_block + (uint32_t)(i * step / 4), part.stretch, at, out);
    }
  }
}

static void fill_vector(Family family, const DrawKey& key, const CopyPart& part) {
  switch (family) {
#define ARS_CASE(name, code)                                                                        \
  case Family::name:                                                                                \
    part.slot.step == 0 ? fill_family<name, false>(key, part) : fill_family<name, true>(key, part); \
    break;
    ARS_FAMILIES(ARS_CASE)
#undef ARS_CASE
  }
}

}  // namespace ars
