// The CUDA kernels. One writes noisy copies straight into a model's input, the other counts votes where the logits are.
// Both handle the requests of many inputs at once, in float32 or float16. The noise is that of stream.h, bit for bit.
//
// tests/simulated_gpu/ also compiles this file as host C++, where it must give the same results as the host sampler.
#include <cuda_fp16.h>

#include "lattice.h"

namespace {

// Draws of one input in one phase. They take the rows of the batch from the end of the request before up to end_row.
struct Request { int64_t slot, input, phase, first_draw, end_row; };

// The request that a row belongs to: the first one that ends after the row. An empty request is never found, because it
// ends where the request before it ends.
__device__ int request_of(int64_t row, const Request* requests, int count) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (requests[middle].end_row > row)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// Four values that are loaded and stored together: 16 bytes of float32, 8 bytes of float16.
template <class Value> struct alignas(4 * sizeof(Value)) Four { Value v[4]; };

__device__ void convert(float value, float& out) { out = value; }
__device__ void convert(float value, __half& out) { out = __float2half_rn(value); }
__device__ float as_float(float value) { return value; }
__device__ float as_float(__half value) { return __half2float(value); }

// The values of one block from a table, or the first `count` of them if it is the last one of a copy.
__device__ void load(const float* from, bool aligned, int count, float values[4]) {
  if (aligned) {
    const Four<float> four = *(const Four<float>*)from;
    ARS_UNROLL
    for (int k = 0; k < 4; ++k) values[k] = four.v[k];
  } else {
    ARS_UNROLL
    for (int k = 0; k < 4; ++k) values[k] = k < count ? from[k] : 0;
  }
}

// A thread makes one Philox block, that is four dimensions, of one copy. Neighbouring threads write neighbouring
// values, and all threads of a thread block work on the same copy, so they read the same request.
//
// The family whose draws have a stretch has kernels of its own, in which every thread computes the stretch.
template <bool lattice, bool stretched, class Value>
__device__ void fill(Value* out, const Request* requests, int count, int64_t rows, const ars::Slot slots,
                     int64_t dimensions, uint32_t family, uint64_t seed) {
  const int64_t block = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, first = 4 * block;
  if (first >= dimensions) return;
  const bool aligned = dimensions % 4 == 0;  // every block then starts at a multiple of its size
  const int values = aligned || dimensions - first > 4 ? 4 : (int)(dimensions - first);
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const int i = request_of(row, requests, count);
    const Request request = requests[i];
    const int64_t first_row = i ? requests[i - 1].end_row : 0, from = request.slot * dimensions + first;
    const ars::DrawKey key = {seed, (uint64_t)(request.first_draw + row - first_row), (uint32_t)request.input,
                              (uint32_t)request.phase};
    const ars::Among among = stretched ? ars::Among::stretched : ars::Among::not_stretched;
    ars::Stretch stretch = {1, 1};
    if (stretched) stretch = ars::stretch_of((ars::Family)family, key, (uint64_t)dimensions);
    float center[4], scale[4], margin[4];
    load(slots.center + from, aligned, values, center);
    load(slots.scale + from, aligned, values, scale);
    // A family that this kernel does not know gives NaN, and such a copy votes for no class.
    const float unknown = ars::float_of(0x7FC00000u);
    float noisy[4] = {unknown, unknown, unknown, unknown};
    if (lattice) {
      load(slots.margin + from, aligned, values, margin);
      const ars::Slot slot = {center, scale, margin, slots.exact_center + from, slots.step};
      ars::lattice_block<among>((ars::Family)family, key, (uint32_t)block, stretch, slot, values, noisy);
    } else {
      ars::stream_block<among>((ars::Family)family, key, (uint32_t)block, stretch, noisy);
      ARS_UNROLL
      for (int k = 0; k < 4; ++k) noisy[k] = ars::fma(scale[k], noisy[k], center[k]);
    }

    Value* to = out + row * dimensions + first;
    Four<Value> four;
    ARS_UNROLL
    for (int k = 0; k < 4; ++k) convert(noisy[k], four.v[k]);
    if (aligned) {
      *(Four<Value>*)to = four;
    } else {
      ARS_UNROLL
      for (int k = 0; k < 4; ++k)
        if (k < values) to[k] = four.v[k];
    }
  }
}

// A warp counts one row: each of its threads looks at every 32nd class, and then they compare. counts has one row of
// classes + 1 columns for each request, and starts at zero; the last column counts rows with a logit that is not finite.
constexpr int warp = 32;
template <class Value>
__device__ void count_row(const Value* logits, int classes, const Request* requests, int count, int64_t rows,
                          int32_t* counts) {
  const int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / warp;
  if (row >= rows) return;
  logits += row * classes;
  const float infinity = ars::float_of(0x7F800000u);
  // A tie goes to the lowest class. A logit that is not finite is like an infinite one of the class after the last.
  int top = classes;
  float highest = -infinity;
  for (int c = threadIdx.x % warp; c < classes; c += warp) {
    const float logit = as_float(logits[c]);
    if ((ars::bits_of(logit) & 0x7F800000u) == 0x7F800000u)
      highest = infinity, top = classes;
    else if (logit > highest)
      highest = logit, top = c;
  }
  ARS_UNROLL
  for (int across = warp / 2; across; across /= 2) {
    const float other = __shfl_xor_sync(0xFFFFFFFFu, highest, across);
    const int its_top = __shfl_xor_sync(0xFFFFFFFFu, top, across);
    if (other > highest || (other == highest && its_top < top)) highest = other, top = its_top;
  }
  if (threadIdx.x % warp == 0) atomicAdd(&counts[(int64_t)request_of(row, requests, count) * (classes + 1) + top], 1);
}

}  // namespace

extern "C" {

// The grid covers the Philox blocks of a copy in x, and the rows in y, or as many of them as a grid may have.
// fill_noisy makes noise stream 1, and fill_lattice noise stream 2.
__global__ void fill_noisy_float32(float* out, const Request* requests, int count, int64_t rows, const float* center,
                                   const float* scale, int64_t dimensions, uint32_t family, uint64_t seed) {
  fill<false, false>(out, requests, count, rows, {center, scale, nullptr, nullptr, 0}, dimensions, family, seed);
}

__global__ void fill_noisy_float16(__half* out, const Request* requests, int count, int64_t rows, const float* center,
                                   const float* scale, int64_t dimensions, uint32_t family, uint64_t seed) {
  fill<false, false>(out, requests, count, rows, {center, scale, nullptr, nullptr, 0}, dimensions, family, seed);
}

__global__ void fill_lattice_float32(float* out, const Request* requests, int count, int64_t rows, const float* center,
                                     const float* scale, const float* margin, const double* exact_center, float step,
                                     int64_t dimensions, uint32_t family, uint64_t seed) {
  fill<true, false>(out, requests, count, rows, {center, scale, margin, exact_center, step}, dimensions, family, seed);
}

__global__ void fill_lattice_float16(__half* out, const Request* requests, int count, int64_t rows, const float* center,
                                     const float* scale, const float* margin, const double* exact_center, float step,
                                     int64_t dimensions, uint32_t family, uint64_t seed) {
  fill<true, false>(out, requests, count, rows, {center, scale, margin, exact_center, step}, dimensions, family, seed);
}

__global__ void fill_stretched_noisy_float32(float* out, const Request* requests, int count, int64_t rows,
                                             const float* center, const float* scale, int64_t dimensions,
                                             uint32_t family, uint64_t seed) {
  fill<false, true>(out, requests, count, rows, {center, scale, nullptr, nullptr, 0}, dimensions, family, seed);
}

__global__ void fill_stretched_noisy_float16(__half* out, const Request* requests, int count, int64_t rows,
                                             const float* center, const float* scale, int64_t dimensions,
                                             uint32_t family, uint64_t seed) {
  fill<false, true>(out, requests, count, rows, {center, scale, nullptr, nullptr, 0}, dimensions, family, seed);
}

__global__ void fill_stretched_lattice_float32(float* out, const Request* requests, int count, int64_t rows,
                                               const float* center, const float* scale, const float* margin,
                                               const double* exact_center, float step, int64_t dimensions,
                                               uint32_t family, uint64_t seed) {
  fill<true, true>(out, requests, count, rows, {center, scale, margin, exact_center, step}, dimensions, family, seed);
}

__global__ void fill_stretched_lattice_float16(__half* out, const Request* requests, int count, int64_t rows,
                                               const float* center, const float* scale, const float* margin,
                                               const double* exact_center, float step, int64_t dimensions,
                                               uint32_t family, uint64_t seed) {
  fill<true, true>(out, requests, count, rows, {center, scale, margin, exact_center, step}, dimensions, family, seed);
}

// The grid covers the rows in x, with 32 threads for each.
__global__ void count_votes_float32(const float* logits, int classes, const Request* requests, int count, int64_t rows,
                                    int32_t* counts) {
  count_row(logits, classes, requests, count, rows, counts);
}

__global__ void count_votes_float16(const __half* logits, int classes, const Request* requests, int count, int64_t rows,
                                    int32_t* counts) {
  count_row(logits, classes, requests, count, rows, counts);
}
}
