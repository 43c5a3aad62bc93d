// Noise stream 1: the noise as a pure function of (seed, phase, input, draw, dimension).
//
//   key      (seed low, seed high)
//   counter  (block, draw low 32, input, phase | draw high 24 << 8)
//   block b  holds the dimensions 4b, 4b+1, 4b+2, 4b+3
//   Gaussian values come in pairs from the words (0, 1) and (2, 3); Laplace and uniform from one word each.
//   A noisy value is fma(scale, z, x + mean), in float32.
//
// tests/known_answers.txt fixes the bits. A change of any bit is a new stream with a new number.
#pragma once

#include "distributions.h"
#include "philox.h"

namespace ars {

enum class Family : uint32_t { gaussian = 0, laplace = 1, uniform = 2 };

struct DrawKey {  // everything that names a draw
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

// The four standard noise values of one block.
ARS_FN void stream_block(Family family, const DrawKey& key, uint32_t block, float z[4]) {
  const Block<uint32_t> w = stream_words(key, block);
  switch (family) {
    case Family::gaussian:
      gaussian_pair(w.w0, w.w1, z[0], z[1]);
      gaussian_pair(w.w2, w.w3, z[2], z[3]);
      break;
    case Family::laplace:
      z[0] = laplace<float>(w.w0), z[1] = laplace<float>(w.w1), z[2] = laplace<float>(w.w2), z[3] = laplace<float>(w.w3);
      break;
    case Family::uniform:
      z[0] = uniform<float>(w.w0), z[1] = uniform<float>(w.w1), z[2] = uniform<float>(w.w2), z[3] = uniform<float>(w.w3);
      break;
  }
}

}  // namespace ars
