// The host sampler: fills batches of noisy copies with noise stream 1, and counts the votes of a batch of logits.
#pragma once

#include <stddef.h>

#include <vector>

#include "stream.h"
#include "workers.h"

namespace ars {

// Part of one noisy copy: `values` values from the first dimension of `first_block` on. The pointers point there.
struct CopyPart {
  uint32_t first_block;
  size_t values;
  const float* center;  // x + mean
  const float* scale;
  float* out;
};

typedef void (*FillFunction)(Family, const DrawKey&, const CopyPart&);

void fill_scalar(Family, const DrawKey&, const CopyPart&);
void fill_avx2(Family, const DrawKey&, const CopyPart&);
void fill_avx512(Family, const DrawKey&, const CopyPart&);
void fill_neon(Family, const DrawKey&, const CopyPart&);

// One set of processor instructions that the noise can be made with. All of them give the same bits.
struct Instructions {
  const char* name;
  FillFunction fill;
};

// The sets that this processor has, the fastest first; "scalar" is always there. Each of the others has been checked
// against scalar on this processor, and one that fails makes this call throw.
const std::vector<Instructions>& usable_instructions();

// The draws [first_draw, first_draw + draws) of one input in one phase; they take the next `draws` rows of a batch.
struct Request {
  int64_t slot, input, phase, first_draw, draws;
};

// The inputs at hand: row `slot` of each table holds an input's x + mean and scale.
struct Slots {
  const float* center;
  const float* scale;
  size_t dimensions;
};

// The callers check the arguments: every slot exists, every request fits noise stream 1, and the rows fit the batch.
void fill_noisy(float* out, const std::vector<Request>& requests, const Slots& slots, Family family, uint64_t seed,
                Workers& workers, FillFunction fill);

// counts has a row a request, of classes + 1 columns; the last column is for rows with a logit that is not finite.
void count_votes(const float* logits, size_t classes, const std::vector<Request>& requests, int64_t* counts);

}  // namespace ars
