// Checks noise stream 1 against the lines of known_answers.txt. This file is compiled in three ways: as plain C++,
// which ignores __global__; by nvcc for the host, where it runs; and by nvcc for the device, where it only has to
// compile.
#include <stdio.h>
#include <string.h>

#include "stream.h"

#ifndef __CUDACC__
#define __global__
#endif

__global__ void make_block(ars::Family family, ars::DrawKey key, uint32_t block, float* z) {
  ars::stream_block(family, key, block, z);
}

#ifndef __CUDA_ARCH__
// nvcc does not let the host call a kernel as a function, so there the host calls what the kernel calls.
static void make_block_on_host(ars::Family family, ars::DrawKey key, uint32_t block, float* z) {
#ifdef __CUDACC__
  ars::stream_block(family, key, block, z);
#else
  make_block(family, key, block, z);
#endif
}

int main(int argc, char** argv) {
  FILE* file = argc == 2 ? fopen(argv[1], "r") : nullptr;
  if (!file) return fprintf(stderr, "usage: known_answers known_answers.txt\n"), 2;
  char line[512], name[32];
  int passed = 0, failed = 0;
  while (fgets(line, sizeof line, file)) {
    unsigned c[4], k[2], expected[4], input, phase, block;
    unsigned long long seed, draw;
    uint32_t got[4];
    if (sscanf(line, "philox4x32_10 %x %x %x %x %x %x : %x %x %x %x", &c[0], &c[1], &c[2], &c[3], &k[0], &k[1],
               &expected[0], &expected[1], &expected[2], &expected[3]) == 10) {
      const ars::Block<uint32_t> w = ars::philox4x32_10(ars::Block<uint32_t>{c[0], c[1], c[2], c[3]}, k[0], k[1]);
      got[0] = w.w0, got[1] = w.w1, got[2] = w.w2, got[3] = w.w3;
    } else if (sscanf(line, "%31s %llx %x %x %llx %x : %x %x %x %x", name, &seed, &input, &phase, &draw, &block,
                      &expected[0], &expected[1], &expected[2], &expected[3]) == 10) {
      float z[4] = {};
      for (const ars::NamedFamily& known : ars::families)
        if (!strcmp(name, known.name))
          make_block_on_host(known.family, ars::DrawKey{seed, draw, input, phase}, block, z);
      memcpy(got, z, sizeof got);
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
