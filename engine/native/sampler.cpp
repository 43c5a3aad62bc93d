#include "sampler.h"

#include <algorithm>

namespace ars {

namespace {

// The batch as one line of Philox blocks, copy after copy, so that it can be cut anywhere into even pieces.
struct Batch {
  float* out;
  const std::vector<Request>& requests;
  const Slots& slots;
  Family family;
  uint64_t seed;
  FillFunction fill;

  uint64_t blocks_per_copy() const { return (slots.dimensions + 3) / 4; }

  void fill_blocks(uint64_t first, uint64_t end) const {
    const uint64_t per_copy = blocks_per_copy();
    uint64_t row = 0;  // of the request at hand
    for (const Request& request : requests) {
      const uint64_t rows = (uint64_t)request.draws;
      const uint64_t begin_row = std::max(row, first / per_copy), end_row = std::min(row + rows, (end + per_copy - 1) / per_copy);
      for (uint64_t r = begin_row; r < end_row; ++r) {
        const uint64_t from = r * per_copy < first ? first - r * per_copy : 0;
        const uint64_t to = std::min(per_copy, end - r * per_copy);
        fill_copy(request, r, r - row, from, to);
      }
      row += rows;
    }
  }

  void fill_copy(const Request& request, uint64_t row, uint64_t draw, uint64_t from_block, uint64_t to_block) const {
    const size_t d = slots.dimensions, from = 4 * from_block, to = std::min<size_t>(d, 4 * to_block);
    const size_t slot = (size_t)request.slot * d + from;
    const DrawKey key = {seed, (uint64_t)request.first_draw + draw, (uint32_t)request.input, (uint32_t)request.phase};
    fill(family, key, CopyPart{(uint32_t)from_block, to - from, slots.center + slot, slots.scale + slot, out + row * d + from});
  }
};

}  // namespace

void fill_noisy(float* out, const std::vector<Request>& requests, const Slots& slots, Family family, uint64_t seed,
                Workers& workers, FillFunction fill) {
  const Batch batch = {out, requests, slots, family, seed, fill};
  uint64_t rows = 0;
  for (const Request& request : requests) rows += (uint64_t)request.draws;
  const uint64_t blocks = rows * batch.blocks_per_copy();

  const uint64_t piece_blocks = 1 << 12;  // some 20 us of work
  const auto fill_piece = [&](size_t i) { batch.fill_blocks(i * piece_blocks, std::min(blocks, (i + 1) * piece_blocks)); };
  workers.run((blocks + piece_blocks - 1) / piece_blocks, fill_piece);
}

}  // namespace ars
