// The CUDA kernels. One writes noisy copies straight into a model's input, the other counts votes where the logits are.
// Both handle the requests of many inputs at once, in float32 or float16. The noise is that of stream.h, bit for bit.
//
// tests/simulated_gpu/ also compiles this file as host C++, where it must give the same results as the host sampler.
#include <cuda_fp16.h>

#include "stream.h"

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

// A thread makes one Philox block, that is four dimensions, of one copy. Neighbouring threads write neighbouring
// values, and all threads of a thread block work on the same copy, so they read the same request.
template <class Value>
__device__ void fill(Value* out, const Request* requests, int count, int64_t rows, const float* center,
                     const float* scale, int64_t dimensions, uint32_t family, uint64_t seed) {
  const int64_t block = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, first = 4 * block;
  if (first >= dimensions) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const int i = request_of(row, requests, count);
    const Request request = requests[i];
    const int64_t first_row = i ? requests[i - 1].end_row : 0;
    const ars::DrawKey key = {seed, (uint64_t)(request.first_draw + row - first_row), (uint32_t)request.input,
                              (uint32_t)request.phase};
    // A family that these kernels do not know gives NaN, and such a copy votes for no class.
    const float unknown = ars::float_of(0x7FC00000u);
    float z[4] = {unknown, unknown, unknown, unknown};
    ars::stream_block((ars::Family)family, key, (uint32_t)block, z);

    const float *c = center + request.slot * dimensions + first, *s = scale + request.slot * dimensions + first;
    Value* to = out + row * dimensions + first;
    if (dimensions % 4 == 0) {  // every block then starts at a multiple of its size
      const Four<float> centers = *(const Four<float>*)c, scales = *(const Four<float>*)s;
      Four<Value> noisy;
      ARS_UNROLL
      for (int k = 0; k < 4; ++k) convert(ars::fma(scales.v[k], z[k], centers.v[k]), noisy.v[k]);
      *(Four<Value>*)to = noisy;
    } else {
      ARS_UNROLL
      for (int k = 0; k < 4; ++k)
        if (first + k < dimensions) convert(ars::fma(s[k], z[k], c[k]), to[k]);
    }
  }
}

// A thread counts one row. counts has one row of classes + 1 columns for each request, and starts at zero; the last
// column counts rows with a logit that is not finite. Every logit is read once, which takes next to no time compared
// with the model that made it.
template <class Value>
__device__ void count_row(const Value* logits, int classes, const Request* requests, int count, int64_t rows,
                          int32_t* counts) {
  const int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  logits += row * classes;
  int top = 0;
  float highest = as_float(logits[0]);
  bool finite = true;
  for (int c = 0; c < classes; ++c) {
    const float logit = as_float(logits[c]);
    finite &= (ars::bits_of(logit) & 0x7F800000u) != 0x7F800000u;
    if (logit > highest) highest = logit, top = c;  // a tie stays with the lowest class
  }
  atomicAdd(&counts[(int64_t)request_of(row, requests, count) * (classes + 1) + (finite ? top : classes)], 1);
}

}  // namespace

extern "C" {

// The grid covers the Philox blocks of a copy in x, and the rows in y, or as many of them as a grid may have.
__global__ void fill_noisy_float32(float* out, const Request* requests, int count, int64_t rows, const float* center,
                                   const float* scale, int64_t dimensions, uint32_t family, uint64_t seed) {
  fill(out, requests, count, rows, center, scale, dimensions, family, seed);
}

__global__ void fill_noisy_float16(__half* out, const Request* requests, int count, int64_t rows, const float* center,
                                   const float* scale, int64_t dimensions, uint32_t family, uint64_t seed) {
  fill(out, requests, count, rows, center, scale, dimensions, family, seed);
}

// The grid covers the rows in x.
__global__ void count_votes_float32(const float* logits, int classes, const Request* requests, int count, int64_t rows,
                                    int32_t* counts) {
  count_row(logits, classes, requests, count, rows, counts);
}

__global__ void count_votes_float16(const __half* logits, int classes, const Request* requests, int count, int64_t rows,
                                    int32_t* counts) {
  count_row(logits, classes, requests, count, rows, counts);
}
}
