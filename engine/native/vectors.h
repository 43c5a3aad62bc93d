// The operations of arithmetic.h for vectors, written with the vector extensions of GCC and Clang. Each file that
// includes this one is compiled for the instructions in its name: AVX-512, AVX2 or NEON.
//
// A vector is two registers, a and b. The noise is one long chain of dependent operations, so a processor that works on
// one register would mostly wait for it; a second chain fills these gaps. The sizes of the types differ between the
// files that include this one, so the types are in an unnamed namespace.
#pragma once

#include "arithmetic.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace ars {

namespace {

#if defined(__AVX512F__)
enum : int { register_bytes = 64 };
#elif defined(__AVX2__)
enum : int { register_bytes = 32 };
#else
enum : int { register_bytes = 16 };
#endif

typedef uint64_t CounterRegister __attribute__((vector_size(register_bytes)));
typedef uint32_t WordRegister __attribute__((vector_size(register_bytes)));
typedef int32_t SignedRegister __attribute__((vector_size(register_bytes)));
typedef float FloatRegister __attribute__((vector_size(register_bytes)));

// The operations on one register for which there is no vector extension:
//   widening_multiply  the product of the low 32 bits of each 64-bit element, with all its 64 bits
//   join               the words (a0, b0, a1, b1, ...): the low halves of a's elements and the high halves of b's
//   interleave_low     (a0, b0, a1, b1) within each 128 bits
//   interleave_high    (a2, b2, a3, b3) within each 128 bits
//   not_within         a bit for each element: set unless |a| <= limit, so also where a is NaN
#if defined(__AVX512F__)
ARS_FN CounterRegister widening_multiply(CounterRegister a, CounterRegister b) {
  return (CounterRegister)_mm512_mul_epu32((__m512i)a, (__m512i)b);
}
ARS_FN WordRegister join(CounterRegister a, CounterRegister b) {
  return (WordRegister)_mm512_mask_blend_epi32(0xAAAA, (__m512i)a, (__m512i)b);
}
ARS_FN FloatRegister fma(FloatRegister a, FloatRegister b, FloatRegister c) { return _mm512_fmadd_ps(a, b, c); }
ARS_FN FloatRegister square_root(FloatRegister a) { return _mm512_sqrt_ps(a); }
ARS_FN FloatRegister interleave_low(FloatRegister a, FloatRegister b) { return _mm512_unpacklo_ps(a, b); }
ARS_FN FloatRegister interleave_high(FloatRegister a, FloatRegister b) { return _mm512_unpackhi_ps(a, b); }
ARS_FN uint64_t not_within(FloatRegister a, FloatRegister limit) {
  return _mm512_cmp_ps_mask(_mm512_abs_ps(a), limit, _CMP_NLE_UQ);
}
#elif defined(__AVX2__)
ARS_FN CounterRegister widening_multiply(CounterRegister a, CounterRegister b) {
  return (CounterRegister)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}
ARS_FN WordRegister join(CounterRegister a, CounterRegister b) {
  return (WordRegister)_mm256_blend_epi32((__m256i)a, (__m256i)b, 0xAA);
}
ARS_FN FloatRegister fma(FloatRegister a, FloatRegister b, FloatRegister c) { return _mm256_fmadd_ps(a, b, c); }
ARS_FN FloatRegister square_root(FloatRegister a) { return _mm256_sqrt_ps(a); }
ARS_FN FloatRegister interleave_low(FloatRegister a, FloatRegister b) { return _mm256_unpacklo_ps(a, b); }
ARS_FN FloatRegister interleave_high(FloatRegister a, FloatRegister b) { return _mm256_unpackhi_ps(a, b); }
ARS_FN uint64_t not_within(FloatRegister a, FloatRegister limit) {
  const FloatRegister sign = _mm256_set1_ps(-0.0f);
  return (uint64_t)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_andnot_ps(sign, a), limit, _CMP_NLE_UQ));
}
#elif defined(__aarch64__)
ARS_FN CounterRegister widening_multiply(CounterRegister a, CounterRegister b) {
  return (CounterRegister)vmull_u32(vmovn_u64((uint64x2_t)a), vmovn_u64((uint64x2_t)b));
}
ARS_FN WordRegister join(CounterRegister a, CounterRegister b) {
  return (WordRegister)vbslq_u64(vdupq_n_u64(0xFFFFFFFFu), (uint64x2_t)a, (uint64x2_t)b);
}
ARS_FN FloatRegister fma(FloatRegister a, FloatRegister b, FloatRegister c) { return vfmaq_f32(c, a, b); }
ARS_FN FloatRegister square_root(FloatRegister a) { return vsqrtq_f32(a); }
ARS_FN FloatRegister interleave_low(FloatRegister a, FloatRegister b) { return vzip1q_f32(a, b); }
ARS_FN FloatRegister interleave_high(FloatRegister a, FloatRegister b) { return vzip2q_f32(a, b); }
ARS_FN uint64_t not_within(FloatRegister a, FloatRegister limit) {
  const uint32x4_t bits = {1, 2, 4, 8}, within = vcleq_f32(vabsq_f32(a), limit);
  return vaddvq_u32(vbicq_u32(bits, within));
}
#endif

// Philox works on Counters, with one word in the low half of each 64-bit element, because every instruction set has a
// widening multiplication for those. What is left in the high halves is never used.
struct Counters { CounterRegister a, b; };
struct Words32 { WordRegister a, b; };
struct Floats { FloatRegister a, b; };
enum : int { blocks_per_vector = 2 * register_bytes / 8 };

}  // namespace

template <> struct Words<Floats> { typedef Words32 type; };
template <> struct Constant<Floats> {
  ARS_FN Floats of(float x) { return {x - FloatRegister{}, x - FloatRegister{}}; }
};
template <> struct Constant<Words32> {
  ARS_FN Words32 of(uint32_t x) { return {x - WordRegister{}, x - WordRegister{}}; }
};
template <> struct Constant<Counters> {
  ARS_FN Counters of(uint32_t x) { return {(uint64_t)x - CounterRegister{}, (uint64_t)x - CounterRegister{}}; }
};

namespace {

ARS_FN Counters operator^(Counters x, Counters y) { return {x.a ^ y.a, x.b ^ y.b}; }
ARS_FN Counters operator^(Counters x, uint32_t y) { return x ^ Constant<Counters>::of(y); }
ARS_FN Counters operator+(Counters x, uint32_t y) { return {x.a + y, x.b + y}; }
ARS_FN Counters multiply_low(Counters x, uint32_t y) {
  const Counters factor = Constant<Counters>::of(y);
  return {widening_multiply(x.a, factor.a), widening_multiply(x.b, factor.b)};
}
ARS_FN Counters multiply_high(Counters x, uint32_t y) {
  const Counters product = multiply_low(x, y);
  return {product.a >> 32, product.b >> 32};
}
ARS_FN Words32 join(Counters x, Counters y) { return {join(x.a, y.a << 32), join(x.b, y.b << 32)}; }

ARS_FN Words32 operator^(Words32 x, Words32 y) { return {x.a ^ y.a, x.b ^ y.b}; }
ARS_FN Words32 operator&(Words32 x, Words32 y) { return {x.a & y.a, x.b & y.b}; }
ARS_FN Words32 operator|(Words32 x, Words32 y) { return {x.a | y.a, x.b | y.b}; }
ARS_FN Words32 operator-(Words32 x, Words32 y) { return {x.a - y.a, x.b - y.b}; }
ARS_FN Words32 operator-(Words32 x, uint32_t y) { return {x.a - y, x.b - y}; }
ARS_FN Words32 operator<<(Words32 x, int n) { return {x.a << n, x.b << n}; }
ARS_FN Words32 operator>>(Words32 x, int n) { return {x.a >> n, x.b >> n}; }
ARS_FN Words32 shift_right_signed(Words32 x, int n) {
  return {(WordRegister)((SignedRegister)x.a >> n), (WordRegister)((SignedRegister)x.b >> n)};
}
ARS_FN Words32 outside(Words32 x, uint32_t least, uint32_t most) {
  return {(WordRegister)(x.a - least > most - least), (WordRegister)(x.b - least > most - least)};
}
ARS_FN Words32 bits_of(Floats x) { return {(WordRegister)x.a, (WordRegister)x.b}; }
ARS_FN Floats float_of(Words32 x) { return {(FloatRegister)x.a, (FloatRegister)x.b}; }

ARS_FN Floats add(Floats x, Floats y) { return {x.a + y.a, x.b + y.b}; }
ARS_FN Floats multiply(Floats x, Floats y) { return {x.a * y.a, x.b * y.b}; }
ARS_FN Floats divide(Floats x, Floats y) { return {x.a / y.a, x.b / y.b}; }
ARS_FN Floats fma(Floats x, Floats y, Floats z) { return {fma(x.a, y.a, z.a), fma(x.b, y.b, z.b)}; }
ARS_FN Floats square_root(Floats x) { return {square_root(x.a), square_root(x.b)}; }
ARS_FN Floats signed_to_float(Words32 x) {
  return {__builtin_convertvector((SignedRegister)x.a, FloatRegister),
          __builtin_convertvector((SignedRegister)x.b, FloatRegister)};
}
// AVX2 converts signed words only, so the two halves of a word are converted, exactly, and added with one rounding. The
// scalar conversion rounds once too.
ARS_FN Floats to_float(Words32 x) {
  const Floats high = signed_to_float(x >> 16), low = signed_to_float(x & Constant<Words32>::of(0xFFFFu));
  return fma(high, Constant<Floats>::of(0x1p16f), low);
}

// The numbers of the Philox blocks of one vector. Of the blocks of a register, the first half is in the even elements
// and the second half in the odd ones: interleaving (fill.h) then puts the values in the order of their dimensions.
ARS_FN Counters block_numbers(uint32_t first) {
  const uint32_t elements = register_bytes / 8;
  Counters blocks;
  for (uint32_t i = 0; i < elements; ++i) {
    blocks.a[i] = first + i / 2 + i % 2 * (elements / 2);
    blocks.b[i] = blocks.a[i] + elements;
  }
  return blocks;
}

}  // namespace

}  // namespace ars
