#include "sampler.h"

#include <algorithm>

namespace ars {

namespace {

// The batch as one sequence of Philox blocks, copy after copy, which can be cut anywhere into pieces of equal size.
struct Batch {
  float* out;
  const std::vector<Request>& requests;
  const std::vector<uint64_t>& first_rows;  // the first row of each request, and at the end the number of rows
  const Slots& slots;
  Family family;
  uint64_t seed;
  FillFunction fill;

  uint64_t blocks_per_copy() const { return (slots.dimensions + 3) / 4; }

  void fill_blocks(uint64_t first, uint64_t end) const {
    const uint64_t per_copy = blocks_per_copy();
    // The request that the first row belongs to: the last one that starts at or before it.
    size_t i = std::upper_bound(first_rows.begin(), first_rows.end(), first / per_copy) - first_rows.begin() - 1;
    for (uint64_t row = first / per_copy; row * per_copy < end; ++row) {
      while (row >= first_rows[i + 1]) ++i;
      const uint64_t from = row * per_copy < first ? first - row * per_copy : 0;
      fill_copy(requests[i], row, row - first_rows[i], from, std::min(per_copy, end - row * per_copy));
    }
  }

  void fill_copy(const Request& request, uint64_t row, uint64_t draw, uint64_t from_block, uint64_t to_block) const {
    const size_t d = slots.dimensions, from = 4 * from_block, to = std::min<size_t>(d, 4 * to_block);
    const DrawKey key = {seed, (uint64_t)request.first_draw + draw, (uint32_t)request.input, (uint32_t)request.phase};
    const Slot slot = from_dimension(slots.first, (size_t)request.slot * d + from);
    fill(family, key,
         CopyPart{(uint32_t)from_block, to - from, stretch_of(family, key, d), slot, out + row * d + from});
  }
};

}  // namespace

void fill_noisy(float* out, const std::vector<Request>& requests, const Slots& slots, Family family, uint64_t seed,
                Workers& workers, FillFunction fill) {
  std::vector<uint64_t> first_rows = {0};
  for (const Request& request : requests) first_rows.push_back(first_rows.back() + (uint64_t)request.draws);
  const Batch batch = {out, requests, first_rows, slots, family, seed, fill};
  const uint64_t blocks = first_rows.back() * batch.blocks_per_copy();

  const uint64_t piece_blocks = 1 << 12;  // about 20 us of work
  const auto fill_piece = [&](size_t i) {
    batch.fill_blocks(i * piece_blocks, std::min(blocks, (i + 1) * piece_blocks));
  };
  workers.run((blocks + piece_blocks - 1) / piece_blocks, fill_piece);
}

}  // namespace ars
