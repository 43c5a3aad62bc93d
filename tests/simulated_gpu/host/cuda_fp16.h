// CUDA's words for a host compiler. It has the name of the one CUDA header that kernels.cu asks for, so that the file
// compiles unchanged. A launch is a loop (kernels.cpp), so an atomic addition is a plain one; threads of a warp take turns.
#pragma once

#include <stdint.h>
#include <string.h>

#include "warp.h"

#define __global__
#define __device__ static

struct Index { unsigned x, y, z; };
static thread_local Index gridDim, blockDim, blockIdx, threadIdx;

static inline int32_t atomicAdd(int32_t* to, int32_t value) {
  const int32_t before = *to;
  *to += value;
  return before;
}

template <class Value> static inline Value __shfl_xor_sync(unsigned, Value value, int across) {
  static_assert(sizeof value == 4, "a shuffle exchanges words");
  uint32_t word;
  memcpy(&word, &value, sizeof word);
  word = Warp::exchange(word, across);
  memcpy(&value, &word, sizeof word);
  return value;
}

struct __half { uint16_t bits; };

static inline __half __float2half_rn(float value) {  // to nearest, ties to even
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
  if (size > 0x7F800000u) return {uint16_t(sign | 0x7E00u)};
  if (size < 0x38800000u) {  // below 2^-14: the addition rounds to multiples of 2^-24, the step of such halves
    float magnitude, half = 0.5f;
    memcpy(&magnitude, &size, sizeof size);
    half += magnitude;
    memcpy(&bits, &half, sizeof bits);
    return {uint16_t(sign | (bits - 0x3F000000u))};
  }
  const uint32_t rounded = (size - 0x38000000u + 0xFFFu + (size >> 13 & 1u)) >> 13;
  return {uint16_t(sign | (size >= 0x47800000u || rounded > 0x7C00u ? 0x7C00u : rounded))};
}

static inline float __half2float(__half value) {
  const uint32_t sign = (value.bits & 0x8000u) << 16, exponent = value.bits >> 10 & 31u, fraction = value.bits & 0x3FFu;
  float result;
  if (exponent == 0) {
    result = (float)fraction * 0x1p-24f;
    return sign ? -result : result;
  }
  const uint32_t bits = sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | fraction << 13;
  memcpy(&result, &bits, sizeof result);
  return result;
}
