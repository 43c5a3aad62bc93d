// Logarithm and cosine in double precision, for the few values of noise stream 2 that float32 cannot decide.
//
// They are power series with an error that can be proved by hand (docs/soundness.md) and, like all of the noise, have
// the same bits everywhere. Their arguments are random words of 63 or 64 bits, so that nothing is lost where u is near 1
// or v near a quarter of a turn.
#pragma once

#include "arithmetic.h"

namespace ars {

// -2 log(2^e (1 + f)) for 1 + f in [sqrt(1/2), sqrt(2)).
// With s = f / (2 + f), log(1 + f) = 2 (s + s^3 / 3 + s^5 / 5 + ...), and |s| <= 0.1716.
ARS_FN double minus_two_log_series(double e, double f) {
  const double s = divide(f, add(f, 2.0)), w = multiply(s, s);
  double p = 1.0 / 25;
  p = fma(p, w, 1.0 / 23);
  p = fma(p, w, 1.0 / 21);
  p = fma(p, w, 1.0 / 19);
  p = fma(p, w, 1.0 / 17);
  p = fma(p, w, 1.0 / 15);
  p = fma(p, w, 1.0 / 13);
  p = fma(p, w, 1.0 / 11);
  p = fma(p, w, 1.0 / 9);
  p = fma(p, w, 1.0 / 7);
  p = fma(p, w, 1.0 / 5);
  p = fma(p, w, 1.0 / 3);
  p = fma(p, w, 1.0);
  return fma(e, -0x1.62e42fefa39efp+0, multiply(multiply(s, -4.0), p));  // -2 log(2) e - 4 s P(s^2)
}

// -2 log(u) for a positive double that is not subnormal.
ARS_FN double precise_minus_two_log(double u) {
  const uint64_t sqrt_half = 0x3FE6A09E667F3BCDu, exponent = shift_right_signed(bits_of(u) - sqrt_half, 52);
  return minus_two_log_series(signed_to_double(exponent), add(double_of(bits_of(u) - (exponent << 52)), -1.0));
}

// -2 log(u) for u = (word + 1/2) / 2^bits, where the word is below 2^bits and `bits` is 63 or 64.
ARS_FN double precise_minus_two_log(uint64_t word, int bits) {
  const uint64_t most = ~(uint64_t)0 >> (64 - bits);
  const double unit = bits == 64 ? 0x1p-64 : 0x1p-63;
  if (word > most / 4 * 3)  // f = u - 1, from the word's distance to 2^bits, which is exact
    return minus_two_log_series(0, multiply(add(to_double(most - word), 0.5), -unit));
  return precise_minus_two_log(multiply(add(to_double(word), 0.5), unit));
}

// cos(2 pi v), or sin(2 pi v), for v = (word + 1/2) / 2^64.
// v is a whole number of quarter turns plus r in [-1/8, 1/8]; the series are those of cos and sin at 2 pi r.
ARS_FN double precise_cosine(uint64_t word, bool sine) {
  const uint64_t quarters = (word + ((uint64_t)1 << 61)) >> 62;
  const double r = multiply(add(signed_to_double(word - (quarters << 62)), 0.5), 0x1p-64);
  const double a = multiply(r, 0x1.921fb54442d18p+2), q = multiply(a, a);
  const uint64_t turned = quarters - (sine ? 1 : 0);  // sin(a) = cos(a - 1/4 turn)
  double value;
  if (turned & 1) {                          // cos(a + 1/4 turn) = -sin(a)
    double p = -1.0 / 121645100408832000.0;  // 19!
    p = fma(p, q, 1.0 / 355687428096000.0);  // 17!
    p = fma(p, q, -1.0 / 1307674368000.0);
    p = fma(p, q, 1.0 / 6227020800.0);
    p = fma(p, q, -1.0 / 39916800.0);
    p = fma(p, q, 1.0 / 362880.0);
    p = fma(p, q, -1.0 / 5040.0);
    p = fma(p, q, 1.0 / 120.0);
    p = fma(p, q, -1.0 / 6.0);
    p = fma(p, q, 1.0);
    value = -multiply(p, a);
  } else {
    double p = -1.0 / 6402373705728000.0;   // 18!
    p = fma(p, q, 1.0 / 20922789888000.0);  // 16!
    p = fma(p, q, -1.0 / 87178291200.0);
    p = fma(p, q, 1.0 / 479001600.0);
    p = fma(p, q, -1.0 / 3628800.0);
    p = fma(p, q, 1.0 / 40320.0);
    p = fma(p, q, -1.0 / 720.0);
    p = fma(p, q, 1.0 / 24.0);
    p = fma(p, q, -1.0 / 2.0);
    value = fma(p, q, 1.0);
  }
  return turned & 2 ? -value : value;
}

}  // namespace ars
