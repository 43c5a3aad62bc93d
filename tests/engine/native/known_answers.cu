// Checks both noise streams against the lines of known_answers.txt. This file is compiled in three ways: as plain C++,
// which ignores __global__; by nvcc for the host, where it runs; and by nvcc for the device, where it only has to
// compile.
#include <stdio.h>
#include <string.h>

#include "lattice.h"

#ifndef __CUDACC__
#define __global__
#endif

// The four values of a block, which is the last one of its copy: standard noise of noise stream 1, or noise stream 2 if
// the slot has a step.
#ifdef __CUDACC__
__host__ __device__
#endif
    static void make_block_anywhere(ars::Family family, ars::DrawKey key, uint32_t block, ars::Slot slot,
                                    float* values) {
  const ars::Stretch stretch = ars::stretch_of(family, key, 4 * ((uint64_t)block + 1));
  if (slot.step == 0)
    ars::stream_block(family, key, block, stretch, values);
  else
    ars::lattice_block(family, key, block, stretch, slot, 4, values);
}

// nvcc does not let the host call a kernel as a function, so the kernel only has to compile there.
__global__ void make_block(ars::Family family, ars::DrawKey key, uint32_t block, ars::Slot slot, float* values) {
  make_block_anywhere(family, key, block, slot, values);
}

#ifndef __CUDA_ARCH__
static void make_block_on_host(const char* name, ars::DrawKey key, uint32_t block, ars::Slot slot, uint32_t got[4]) {
  float values[4] = {};
  for (const ars::NamedFamily& known : ars::families)
    if (!strcmp(name, known.name)) make_block_anywhere(known.family, key, block, slot, values);
  memcpy(got, values, sizeof values);
}

int main(int argc, char** argv) {
  FILE* file = argc == 2 ? fopen(argv[1], "r") : nullptr;
  if (!file) return fprintf(stderr, "usage: known_answers known_answers.txt\n"), 2;
  char line[512], name[32];
  int passed = 0, failed = 0;
  while (fgets(line, sizeof line, file)) {
    unsigned c[4], k[2], expected[4], input, phase, block, step, scale, margin;
    unsigned long long seed, draw, center;
    uint32_t got[4];
    if (sscanf(line, "philox4x32_10 %x %x %x %x %x %x : %x %x %x %x", &c[0], &c[1], &c[2], &c[3], &k[0], &k[1],
               &expected[0], &expected[1], &expected[2], &expected[3]) == 10) {
      const ars::Block<uint32_t> w = ars::philox4x32_10(ars::Block<uint32_t>{c[0], c[1], c[2], c[3]}, k[0], k[1]);
      got[0] = w.w0, got[1] = w.w1, got[2] = w.w2, got[3] = w.w3;
    } else if (sscanf(line, "%31s %llx %x %x %llx %x : %x %x %x %x", name, &seed, &input, &phase, &draw, &block,
                      &expected[0], &expected[1], &expected[2], &expected[3]) == 10) {
      make_block_on_host(name, ars::DrawKey{seed, draw, input, phase}, block, ars::Slot{}, got);
    } else if (sscanf(line, "lattice %31s %llx %x %x %llx %x %x %x %x %llx : %x %x %x %x", name, &seed, &input, &phase,
                      &draw, &block, &step, &scale, &margin, &center, &expected[0], &expected[1], &expected[2],
                      &expected[3]) == 14) {
      const double exact = ars::double_of(center);
      float centers[4], scales[4], margins[4];
      double exact_centers[4];
      for (int i = 0; i < 4; ++i) {
        centers[i] = (float)exact, exact_centers[i] = exact;
        scales[i] = ars::float_of(scale), margins[i] = ars::float_of(margin);
      }
      const ars::Slot slot = {centers, scales, margins, exact_centers, ars::float_of(step)};
      make_block_on_host(name, ars::DrawKey{seed, draw, input, phase}, block, slot, got);
    } else {
      continue;  // a comment
    }
    const bool same = got[0] == expected[0] && got[1] == expected[1] && got[2] == expected[2] && got[3] == expected[3];
    same ? ++passed : ++failed;
    if (!same) printf("differs: %s", line);
  }
  fclose(file);
  printf("%d passed, %d failed\n", passed, failed);
  return failed || !passed;
}
#endif
