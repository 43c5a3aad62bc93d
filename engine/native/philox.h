// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// A stateless function from four counter words and two key words to four random words.
#pragma once

#include "arithmetic.h"

namespace ars {

template <class W> struct Block { W w0, w1, w2, w3; };

// W is uint32_t or a vector of words (vectors.h). All words of a vector have the same key.
template <class W> ARS_FN Block<W> philox4x32_10(Block<W> c, uint32_t key0, uint32_t key1) {
  ARS_UNROLL
  for (int round = 0; round < 10; ++round) {
    const W high0 = multiply_high(c.w0, 0xD2511F53u), low0 = multiply_low(c.w0, 0xD2511F53u);
    const W high1 = multiply_high(c.w2, 0xCD9E8D57u), low1 = multiply_low(c.w2, 0xCD9E8D57u);
    c = Block<W>{high1 ^ c.w1 ^ key0, low1, high0 ^ c.w3 ^ key1, low0};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

}  // namespace ars
