// Fills a part of one noisy copy with vector instructions. The sampler spends nearly all its time in these loops. Every
// fill_<instructions>.cpp includes this file and is compiled for its own instructions.
#pragma once

#include "sampler.h"
#include "vectors.h"

namespace ars {

// Two vectors of standard noise from two vectors of words: a family's function (distributions.h).
typedef void (*NoiseFunction)(Words32, Words32, Floats&, Floats&);

ARS_FN void add_noise(FloatRegister z, const float* center, const float* scale, float* out) {
  FloatRegister c, s;
  __builtin_memcpy(&c, center, sizeof c);
  __builtin_memcpy(&s, scale, sizeof s);
  const FloatRegister noisy = fma(s, z, c);
  __builtin_memcpy(out, &noisy, sizeof noisy);
}

// Writes the values of one step, 4 * blocks_per_vector of them, in the order of their dimensions.
ARS_FN void add_noise(Floats a, Floats b, const float* center, const float* scale, float* out) {
  const int n = register_bytes / 4;
  add_noise(interleave_low(a.a, b.a), center, scale, out);
  add_noise(interleave_high(a.a, b.a), center + n, scale + n, out + n);
  add_noise(interleave_low(a.b, b.b), center + 2 * n, scale + 2 * n, out + 2 * n);
  add_noise(interleave_high(a.b, b.b), center + 3 * n, scale + 3 * n, out + 3 * n);
}

// Works in chunks: first all words of a chunk, then all its values, because two short loops keep more operations in
// flight than one long loop. The key and the part are passed by value, so that the compiler knows that writing the
// noisy copy does not change them.
template <NoiseFunction standard_noise> static void fill_family(const DrawKey key, const CopyPart part) {
  const size_t chunk = 32, step = 4 * blocks_per_vector;
  Words32 even[chunk], odd[chunk];
  for (size_t start = 0; start < part.values; start += chunk * step) {
    const size_t values = part.values - start < chunk * step ? part.values - start : chunk * step;
    const size_t steps = (values + step - 1) / step, whole_steps = values / step;
    const float *center = part.center + start, *scale = part.scale + start;
    float* out = part.out + start;

    Counters blocks = block_numbers(part.first_block + (uint32_t)(start / 4));
    for (size_t i = 0; i < steps; ++i, blocks = blocks + (uint32_t)blocks_per_vector) {
      const Block<Counters> w = stream_words(key, blocks);
      // Words 0 and 2 stand side by side, and so do words 1 and 3: interleaving the values of both restores 0, 1, 2, 3.
      even[i] = join(w.w0, w.w2), odd[i] = join(w.w1, w.w3);
    }
    Floats a, b;
    for (size_t i = 0; i < whole_steps; ++i) {
      standard_noise(even[i], odd[i], a, b);
      add_noise(a, b, center + i * step, scale + i * step, out + i * step);
    }
    if (steps > whole_steps) {
      const size_t rest = values - whole_steps * step;
      float padded[3][step] = {};
      __builtin_memcpy(padded[0], center + whole_steps * step, rest * sizeof(float));
      __builtin_memcpy(padded[1], scale + whole_steps * step, rest * sizeof(float));
      standard_noise(even[whole_steps], odd[whole_steps], a, b);
      add_noise(a, b, padded[0], padded[1], padded[2]);
      __builtin_memcpy(out + whole_steps * step, padded[2], rest * sizeof(float));
    }
  }
}

static void fill_vector(Family family, const DrawKey& key, const CopyPart& part) {
  switch (family) {
#define ARS_CASE(name, code)                       \
  case Family::name:                               \
    fill_family<name<Floats, Words32>>(key, part); \
    break;
    ARS_FAMILIES(ARS_CASE)
#undef ARS_CASE
  }
}

}  // namespace ars
