// kernels.cu as a host library. A launch gets its parameters as CUDA's does, as one packed block of bytes.
#include "kernels.cu"

#include <tuple>
#include <type_traits>
#include <utility>

// Where an address of the simulated GPU lies in this process; null if it is not the GPU's. Without such a function,
// addresses are this process's own.
using Translate = void* (*)(uint64_t, size_t);

template <class Parameter> static Parameter next_of(const char* bytes, size_t& offset, Translate at, int* fault) {
  offset = (offset + alignof(Parameter) - 1) / alignof(Parameter) * alignof(Parameter);
  Parameter value{};
  if (bytes) memcpy(&value, bytes + offset, sizeof value);
  offset += sizeof value;
  if constexpr (std::is_pointer_v<Parameter>) {
    if (at) value = (Parameter)at((uint64_t)value, 1);
    if (at && !value) *fault = 700;  // CUDA_ERROR_ILLEGAL_ADDRESS
  }
  return value;
}

// Runs every thread of the grid, one after another, or warp by warp if they exchange values; the size of the parameters
// that the kernel takes.
template <class... Parameters>
static size_t run(void (*kernel)(Parameters...), const unsigned* grid, const unsigned* block, const char* bytes,
                  Translate at, int* fault, bool by_warps = false) {
  thread_local Warp warp;
  size_t offset = 0;
  // The braces make sure that the parameters are read in this order.
  const std::tuple<Parameters...> parameters{next_of<Parameters>(bytes, offset, at, fault)...};
  if (fault && *fault) return offset;
  gridDim = {grid[0], grid[1], grid[2]}, blockDim = {block[0], block[1], block[2]};
  for (unsigned z = 0; z < grid[2]; ++z)
    for (unsigned y = 0; y < grid[1]; ++y)
      for (unsigned x = 0; x < grid[0]; ++x)
        for (unsigned thread = 0; thread < block[0]; thread += by_warps ? Warp::size : 1) {
          blockIdx = {x, y, z}, threadIdx = {thread, 0, 0};
          const auto resume = [=](int number) { threadIdx.x = thread + (unsigned)number; };
          if (!by_warps)
            std::apply(kernel, parameters);
          else if (!warp.run([&](int) { std::apply(kernel, parameters); }, resume) && fault)
            *fault = 719;  // CUDA_ERROR_LAUNCH_FAILED
        }
  return offset;
}

// A grid without blocks runs nothing, needs no parameters, and so tells their size.
extern "C" size_t launch(const char* name, const unsigned* grid, const unsigned* block, const char* bytes, Translate at,
                         int* fault) {
  if (!strcmp(name, "fill_noisy_float32")) return run(fill_noisy_float32, grid, block, bytes, at, fault);
  if (!strcmp(name, "fill_noisy_float16")) return run(fill_noisy_float16, grid, block, bytes, at, fault);
  if (!strcmp(name, "fill_lattice_float32")) return run(fill_lattice_float32, grid, block, bytes, at, fault);
  if (!strcmp(name, "fill_lattice_float16")) return run(fill_lattice_float16, grid, block, bytes, at, fault);
  if (!strcmp(name, "fill_stretched_noisy_float32"))
    return run(fill_stretched_noisy_float32, grid, block, bytes, at, fault);
  if (!strcmp(name, "fill_stretched_noisy_float16"))
    return run(fill_stretched_noisy_float16, grid, block, bytes, at, fault);
  if (!strcmp(name, "fill_stretched_lattice_float32"))
    return run(fill_stretched_lattice_float32, grid, block, bytes, at, fault);
  if (!strcmp(name, "fill_stretched_lattice_float16"))
    return run(fill_stretched_lattice_float16, grid, block, bytes, at, fault);
  if (!strcmp(name, "count_votes_float32")) return run(count_votes_float32, grid, block, bytes, at, fault, true);
  if (!strcmp(name, "count_votes_float16")) return run(count_votes_float16, grid, block, bytes, at, fault, true);
  return 0;
}
