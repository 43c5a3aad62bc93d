// The noise families: how two random words become two values of standard noise. Gaussian noise has standard deviation 1,
// Laplace noise scale 1, uniform noise lies in [-1, 1], and Pareto noise has the density 2 / (1 + |z|)^5. Exponential
// noise is uniform noise times a factor that all values of a draw share, its stretch (stream.h).
//
// A family is a struct with three functions:
//   values     two values in float32 from exactly two words, so that the place of a value in the stream never depends on
//              other values. This is why Gaussian noise is made by Box-Muller and not by a method that rejects. A word w
//              stands for the middle of its cell, u = (w + 1/2) / 2^32.
//   unbounded  all bits where a value may be further than 2^-19 from the noise of the ideal numbers that begin with
//              these words, and none elsewhere (docs/soundness.md; tests/engine/native/fast_path.cpp tries every word)
//   precise    one of the two values, from 64 bits of each number, with an error below 2^-46 (Pareto: times 1 + |z|)
//
// The logarithm, sine and cosine are our own polynomials (fit_polynomials.py computes the coefficients) and not a math
// library's, so that the scalar code, the vector code and the CUDA kernels give the same bits.
// F is float or a vector of floats (vectors.h); W is the matching type of words.
#pragma once

#include "arithmetic.h"
#include "precise.h"

namespace ars {

// -2 log(u) for u in (0, 1], where u = 2^e (1 + f) and 1 + f lies in [sqrt(1/2), sqrt(2)).
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

// Gaussian: sqrt(-2 log u) times the cosine and the sine of 2 pi v, where u and v are the numbers of the two words.
struct gaussian {
  template <class F, class W> ARS_FN void values(W u_word, W v_word, F& first, F& second) {
    const F u = fma(to_float(u_word), Constant<F>::of(0x1p-32f), Constant<F>::of(0x1p-33f));
    F radius = square_root(minus_two_log(u));
    // v is r, or r plus half a turn, for an r in [-1/4, 1/4): the low 31 bits of the word, read as a signed number, give
    // r. Half a turn changes the sign of both values, so it is applied to the radius.
    const W low_bits = v_word << 1;
    const F r = fma(signed_to_float(low_bits), Constant<F>::of(0x1p-33f), Constant<F>::of(0x1p-33f));
    radius = float_of(W(bits_of(radius) ^ ((v_word ^ low_bits) & Constant<W>::of(0x80000000u))));
    F sine, cosine;
    sine_and_cosine(r, sine, cosine);
    first = multiply(radius, cosine);
    second = multiply(radius, sine);
  }
  template <class W> ARS_FN void unbounded(W u_word, W, W& first, W& second) {
    first = second = outside(u_word, 0x00040000u, 0xFFF3FFFFu);
  }
  ARS_FN double precise(uint64_t u_word, uint64_t v_word, bool second) {
    return multiply(square_root(precise_minus_two_log(u_word, 64)), precise_cosine(v_word, second));
  }
};

// Laplace: the top bit of a word is the sign, and the other bits give the size -log(u). Both tails therefore have the
// same values; the largest size in float32 is 32 log 2 = 22.2.
struct laplace {
  template <class F, class W> ARS_FN F value(W word) {
    const W sign = word & Constant<W>::of(0x80000000u);
    const F u = fma(signed_to_float(W(word ^ sign)), Constant<F>::of(0x1p-31f), Constant<F>::of(0x1p-32f));
    const F size = multiply(minus_two_log(u), Constant<F>::of(0.5f));
    return float_of(W(bits_of(size) ^ sign));
  }
  template <class F, class W> ARS_FN void values(W first_word, W second_word, F& first, F& second) {
    first = value<F>(first_word), second = value<F>(second_word);
  }
  template <class W> ARS_FN void unbounded(W first_word, W second_word, W& first, W& second) {
    const W size_bits = Constant<W>::of(0x7FFFFFFFu);
    first = outside(W(first_word & size_bits), 0x00080000u, 0x7FFFFFFFu);
    second = outside(W(second_word & size_bits), 0x00080000u, 0x7FFFFFFFu);
  }
  ARS_FN double precise(uint64_t first_word, uint64_t second_word, bool second) {
    const uint64_t word = second ? second_word : first_word, sign = word & 0x8000000000000000u;
    const double size = multiply(precise_minus_two_log(word ^ sign, 63), 0.5);
    return sign ? -size : size;
  }
};

// Uniform: 2u - 1, computed from the word as a signed number, so that the resolution is the same on both sides of 0.
struct uniform {
  template <class F, class W> ARS_FN F value(W word) {
    const W centered = word ^ Constant<W>::of(0x80000000u);
    return fma(signed_to_float(centered), Constant<F>::of(0x1p-31f), Constant<F>::of(0x1p-32f));
  }
  template <class F, class W> ARS_FN void values(W first_word, W second_word, F& first, F& second) {
    first = value<F>(first_word), second = value<F>(second_word);
  }
  template <class W> ARS_FN void unbounded(W, W, W& first, W& second) { first = second = Constant<W>::of(0); }
  ARS_FN double precise(uint64_t first_word, uint64_t second_word, bool second) {
    const uint64_t centered = (second ? second_word : first_word) ^ 0x8000000000000000u;
    return multiply(add(signed_to_double(centered), 0.5), 0x1p-63);
  }
};

// Pareto, with index 4: the top bit of a word is the sign, and the other bits give the size u^(-1/4) - 1. Square roots
// and divisions are rounded correctly everywhere, so no polynomial is needed. The size is at most 2^8 - 1 in float32 and
// 2^16 - 1 in double precision.
struct pareto {
  template <class F, class W> ARS_FN F value(W word) {
    const W sign = word & Constant<W>::of(0x80000000u);
    const F u = fma(signed_to_float(W(word ^ sign)), Constant<F>::of(0x1p-31f), Constant<F>::of(0x1p-32f));
    const F root = square_root(square_root(divide(Constant<F>::of(1.0f), u)));
    return float_of(W(bits_of(add(root, Constant<F>::of(-1.0f))) ^ sign));
  }
  template <class F, class W> ARS_FN void values(W first_word, W second_word, F& first, F& second) {
    first = value<F>(first_word), second = value<F>(second_word);
  }
  template <class W> ARS_FN void unbounded(W first_word, W second_word, W& first, W& second) {
    const W size_bits = Constant<W>::of(0x7FFFFFFFu);
    first = outside(W(first_word & size_bits), 0x00100000u, 0x7FFFFFFFu);
    second = outside(W(second_word & size_bits), 0x00100000u, 0x7FFFFFFFu);
  }
  ARS_FN double precise(uint64_t first_word, uint64_t second_word, bool second) {
    const uint64_t word = second ? second_word : first_word, sign = word & 0x8000000000000000u;
    const double u = multiply(add(to_double(word ^ sign), 0.5), 0x1p-63);
    const double size = add(square_root(square_root(divide(1.0, u))), -1.0);
    return sign ? -size : size;
  }
};

// Exponential: the density in d dimensions is proportional to exp(-d max |z_i|). Divided by the stretch of its draw, it
// is uniform noise.
struct exponential : uniform {};

// Whether the values of a family are multiplied by the stretch of their draw.
template <class family> inline constexpr bool is_stretched = false;
template <> inline constexpr bool is_stretched<exponential> = true;

// The families that a function is compiled for. The CUDA kernels are compiled for a part of them, because a kernel for all
// families would need more registers.
enum class Among { all_families, stretched, not_stretched };
template <Among among, class family>
inline constexpr bool is_among = among == Among::all_families || is_stretched<family> == (among == Among::stretched);

// Every family, by the name of its struct, with its code in the noise stream. Whatever depends on the family follows from
// this list, so a new family needs a struct, a line here, and a file in ars/noise/.
#define ARS_FAMILIES(FAMILY) \
  FAMILY(gaussian, 0)        \
  FAMILY(laplace, 1)         \
  FAMILY(uniform, 2)         \
  FAMILY(pareto, 3)          \
  FAMILY(exponential, 4)

enum class Family : uint32_t {
#define ARS_ENUMERATOR(name, code) name = code,
  ARS_FAMILIES(ARS_ENUMERATOR)
#undef ARS_ENUMERATOR
};

struct NamedFamily {
  const char* name;
  Family family;
};

static constexpr NamedFamily families[] = {
#define ARS_NAMED(name, code) {#name, Family::name},
    ARS_FAMILIES(ARS_NAMED)
#undef ARS_NAMED
};

}  // namespace ars
