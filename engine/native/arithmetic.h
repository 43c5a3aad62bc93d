// The few operations that the noise is made of, for one value at a time, on the host and in CUDA kernels. vectors.h has
// the same operations for vectors, under the same names, so that philox.h and distributions.h are written only once.
//
// Every result has the same bits everywhere: IEEE float32, rounded to nearest, with a multiplication and an addition
// fused exactly where the source says `fma`. Compile with -ffp-contract=off; CUDA's _rn intrinsics are never fused.
#pragma once

#include <stdint.h>

#if defined(__CUDACC__)
#define ARS_FN static __host__ __device__ __forceinline__
#define ARS_RARE static __host__ __device__ __noinline__
#define ARS_UNROLL _Pragma("unroll")
#else
#define ARS_FN static inline __attribute__((always_inline, unused))
#define ARS_RARE static __attribute__((noinline, unused))
#define ARS_UNROLL _Pragma("GCC unroll 16")
#endif

namespace ars {

#if defined(__CUDA_ARCH__)

ARS_FN float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
ARS_FN float multiply(float a, float b) { return __fmul_rn(a, b); }
ARS_FN float add(float a, float b) { return __fadd_rn(a, b); }
ARS_FN float divide(float a, float b) { return __fdiv_rn(a, b); }
ARS_FN float square_root(float a) { return __fsqrt_rn(a); }
ARS_FN float to_float(uint32_t a) { return __uint2float_rn(a); }
ARS_FN float signed_to_float(uint32_t a) { return __int2float_rn((int32_t)a); }
ARS_FN uint32_t multiply_high(uint32_t a, uint32_t b) { return __umulhi(a, b); }
ARS_FN uint32_t bits_of(float a) { return __float_as_uint(a); }
ARS_FN float float_of(uint32_t a) { return __uint_as_float(a); }

ARS_FN double fma(double a, double b, double c) { return __fma_rn(a, b, c); }
ARS_FN double multiply(double a, double b) { return __dmul_rn(a, b); }
ARS_FN double add(double a, double b) { return __dadd_rn(a, b); }
ARS_FN double divide(double a, double b) { return __ddiv_rn(a, b); }
ARS_FN double square_root(double a) { return __dsqrt_rn(a); }
ARS_FN double to_double(uint64_t a) { return __ull2double_rn(a); }
ARS_FN double signed_to_double(uint64_t a) { return __ll2double_rn((int64_t)a); }
ARS_FN uint64_t bits_of(double a) { return (uint64_t)__double_as_longlong(a); }
ARS_FN double double_of(uint64_t a) { return __longlong_as_double((int64_t)a); }

#else

ARS_FN float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
ARS_FN float multiply(float a, float b) { return a * b; }
ARS_FN float add(float a, float b) { return a + b; }
ARS_FN float divide(float a, float b) { return a / b; }
ARS_FN float square_root(float a) { return __builtin_sqrtf(a); }
ARS_FN float to_float(uint32_t a) { return (float)a; }
ARS_FN float signed_to_float(uint32_t a) { return (float)(int32_t)a; }
ARS_FN uint32_t multiply_high(uint32_t a, uint32_t b) { return (uint32_t)(((uint64_t)a * b) >> 32); }
ARS_FN uint32_t bits_of(float a) {
  uint32_t bits;
  __builtin_memcpy(&bits, &a, sizeof bits);
  return bits;
}
ARS_FN float float_of(uint32_t a) {
  float value;
  __builtin_memcpy(&value, &a, sizeof value);
  return value;
}

ARS_FN double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
ARS_FN double multiply(double a, double b) { return a * b; }
ARS_FN double add(double a, double b) { return a + b; }
ARS_FN double divide(double a, double b) { return a / b; }
ARS_FN double square_root(double a) { return __builtin_sqrt(a); }
ARS_FN double to_double(uint64_t a) { return (double)a; }
ARS_FN double signed_to_double(uint64_t a) { return (double)(int64_t)a; }
ARS_FN uint64_t bits_of(double a) {
  uint64_t bits;
  __builtin_memcpy(&bits, &a, sizeof bits);
  return bits;
}
ARS_FN double double_of(uint64_t a) {
  double value;
  __builtin_memcpy(&value, &a, sizeof value);
  return value;
}

#endif

ARS_FN uint32_t multiply_low(uint32_t a, uint32_t b) { return a * b; }
ARS_FN uint32_t shift_right_signed(uint32_t a, int n) { return (uint32_t)((int32_t)a >> n); }
ARS_FN uint64_t shift_right_signed(uint64_t a, int n) { return (uint64_t)((int64_t)a >> n); }
// All bits where the word is below `least` or above `most`, and none elsewhere.
ARS_FN uint32_t outside(uint32_t a, uint32_t least, uint32_t most) { return a - least > most - least ? ~0u : 0u; }

// Words<F>::type is the type of words that matches a type of floats; Constant<T>::of(a) has a in every element.
template <class F> struct Words;
template <> struct Words<float> { typedef uint32_t type; };
template <class T> struct Constant;
template <> struct Constant<float> {
  ARS_FN float of(float a) { return a; }
};
template <> struct Constant<uint32_t> {
  ARS_FN uint32_t of(uint32_t a) { return a; }
};

}  // namespace ars
