#include "sampler.h"

namespace ars {

void count_votes(const float* logits, size_t classes, const std::vector<Request>& requests, int64_t* counts) {
  for (const Request& request : requests) {
    for (int64_t row = 0; row < request.draws; ++row, logits += classes) {
      size_t top = 0;
      bool finite = true;
      for (size_t c = 0; c < classes; ++c) {
        finite &= (bits_of(logits[c]) & 0x7F800000u) != 0x7F800000u;
        if (logits[c] > logits[top]) top = c;  // a tie stays with the lowest class
      }
      ++counts[finite ? top : classes];
    }
    counts += classes + 1;
  }
}

}  // namespace ars
