// Standard noise from random words: Gaussian (deviation 1), Laplace (scale 1), uniform on [-1, 1].
//
// A word w stands for the middle of its cell, u = (w + 1/2) / 2^32. Box-Muller, because it takes exactly two words
// and gives exactly two values, with no rejection: a value's place in the stream never depends on other values.
// The functions are ours, not a math library's, so that the scalar code, the vector code and the CUDA kernel give
// the same bits. fit_polynomials.py made the coefficients.
// F is float or a vector of floats (lanes.h); W is the matching type of words.
#pragma once

#include "arithmetic.h"

namespace ars {

// -2 log(u) for u in (0, 1], u = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).
template <class F> ARS_FN F minus_two_log(F u) {
  typedef typename Words<F>::type W;
  const uint32_t sqrt_half = 0x3F3504F3u;
  const W e = shift_right_signed(W(bits_of(u) - sqrt_half), 23);
  const F f = add(float_of(W(bits_of(u) - (e << 23))), Constant<F>::of(-1.0f));
  F p = Constant<F>::of(-0x1.67ed28p-3f);
  p = fma(p, f, Constant<F>::of(0x1.21fd54p-2f));
  p = fma(p, f, Constant<F>::of(-0x1.2fd102p-2f));
  p = fma(p, f, Constant<F>::of(0x1.53bb74p-2f));
  p = fma(p, f, Constant<F>::of(-0x1.990710p-2f));
  p = fma(p, f, Constant<F>::of(0x1.000302p-1f));
  p = fma(p, f, Constant<F>::of(-0x1.555638p-1f));
  p = fma(p, f, Constant<F>::of(0x1.fffffep-1f));
  p = fma(p, f, Constant<F>::of(-2.0f));  // -2 log(1 + f) = f (f P(f) - 2)
  return fma(signed_to_float(e), Constant<F>::of(-0x1.62e43p+0f), multiply(p, f));
}

// sin(2 pi r) and cos(2 pi r) for r in [-1/4, 1/4].
template <class F> ARS_FN void sine_and_cosine(F r, F& sine, F& cosine) {
  const F s = multiply(r, r);
  sine = Constant<F>::of(0x1.3e1420p+5f);
  sine = fma(sine, s, Constant<F>::of(-0x1.32531ep+6f));
  sine = fma(sine, s, Constant<F>::of(0x1.4668f0p+6f));
  sine = fma(sine, s, Constant<F>::of(-0x1.4abbc4p+5f));
  sine = fma(sine, s, Constant<F>::of(0x1.921fb6p+2f));
  sine = multiply(sine, r);
  cosine = Constant<F>::of(-0x1.937d98p+4f);
  cosine = fma(cosine, s, Constant<F>::of(0x1.e16eacp+5f));
  cosine = fma(cosine, s, Constant<F>::of(-0x1.55d24ap+6f));
  cosine = fma(cosine, s, Constant<F>::of(0x1.03c1eep+6f));
  cosine = fma(cosine, s, Constant<F>::of(-0x1.3bd3ccp+4f));
  cosine = fma(cosine, s, Constant<F>::of(1.0f));
}

// Two independent Gaussian values, sqrt(-2 log u) times (cos, sin)(2 pi v), from the words of u and v.
template <class F, class W> ARS_FN void gaussian_pair(W u_word, W v_word, F& first, F& second) {
  const F u = fma(to_float(u_word), Constant<F>::of(0x1p-32f), Constant<F>::of(0x1p-33f));
  F radius = square_root(minus_two_log(u));
  // v is half a turn, or none, plus r in [-1/4, 1/4): the word's low 31 bits, read as a signed number, give r.
  // Half a turn changes both signs, so it goes to the radius.
  const W low_bits = v_word << 1;
  const F r = fma(signed_to_float(low_bits), Constant<F>::of(0x1p-33f), Constant<F>::of(0x1p-33f));
  radius = float_of(W(bits_of(radius) ^ ((v_word ^ low_bits) & Constant<W>::of(0x80000000u))));
  F sine, cosine;
  sine_and_cosine(r, sine, cosine);
  first = multiply(radius, cosine);
  second = multiply(radius, sine);
}

// The top bit is the sign; the other 31 give the size -log(u). So both tails are alike and reach 32 log 2 = 22.2.
template <class F, class W> ARS_FN F laplace(W word) {
  const W sign = word & Constant<W>::of(0x80000000u);
  const F u = fma(signed_to_float(W(word ^ sign)), Constant<F>::of(0x1p-31f), Constant<F>::of(0x1p-32f));
  const F size = multiply(minus_two_log(u), Constant<F>::of(0.5f));
  return float_of(W(bits_of(size) ^ sign));
}

// 2u - 1, from the word as a signed number: the resolution is then the same on both sides of 0.
template <class F, class W> ARS_FN F uniform(W word) {
  const W centered = word ^ Constant<W>::of(0x80000000u);
  return fma(signed_to_float(centered), Constant<F>::of(0x1p-31f), Constant<F>::of(0x1p-32f));
}

}  // namespace ars
