// The host sampler: it fills batches of noisy copies and counts the votes in a batch of logits.
#pragma once

#include <stddef.h>

#include <vector>

#include "lattice.h"
#include "workers.h"

namespace ars {

// A part of one noisy copy: `values` values, beginning at the first dimension of Philox block `first_block`. All
// pointers point to that dimension. It gets noise stream 2 if the slot has a step, and noise stream 1 otherwise.
struct CopyPart {
  uint32_t first_block;
  size_t values;
  Stretch stretch;
  Slot slot;
  float* out;
};

typedef void (*FillFunction)(Family, const DrawKey&, const CopyPart&);

void fill_scalar(Family, const DrawKey&, const CopyPart&);
void fill_avx2(Family, const DrawKey&, const CopyPart&);
void fill_avx512(Family, const DrawKey&, const CopyPart&);
void fill_neon(Family, const DrawKey&, const CopyPart&);

// Noise stream 2 by its slow path alone: the same bits as the functions above, for tests of their fast path.
void fill_precise(Family, const DrawKey&, const CopyPart&);

// A set of processor instructions that can make the noise. All sets give the same bits.
struct Instructions {
  const char* name;
  FillFunction fill;
};

// The sets that this processor has, the fastest first. The last one is "scalar", which needs no special instructions.
// The first call compares every other set with it on this processor, and throws if one gives other bits.
const std::vector<Instructions>& usable_instructions();

// The draws [first_draw, first_draw + draws) of one input in one phase; they take the next `draws` rows of a batch.
struct Request { int64_t slot, input, phase, first_draw, draws; };

// The loaded inputs. The pointers of `first` point to tables with a row of `dimensions` values for each slot.
struct Slots {
  Slot first;
  size_t dimensions;
};

// Fills the rows of a batch with the draws that the requests ask for. The caller has checked that every slot exists,
// that every request is within the bounds of a DrawKey, and that the requests add up to the rows of the
// batch.
void fill_noisy(float* out, const std::vector<Request>& requests, const Slots& slots, Family family, uint64_t seed,
                Workers& workers, FillFunction fill);

// Adds the votes of each request to its row of counts, which has classes + 1 columns. The last column counts rows with
// a logit that is not finite.
void count_votes(const float* logits, size_t classes, const std::vector<Request>& requests, int64_t* counts);

}  // namespace ars
