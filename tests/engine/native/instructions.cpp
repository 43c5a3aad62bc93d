// Prints the instruction sets that this processor has. Listing them checks each against the scalar code, bit for bit;
// here the fast path of each is also compared with the slow path of noise stream 2.
#include <cmath>
#include <cstdio>
#include <exception>
#include <vector>

#include "sampler.h"

// How many of 60,003 values differ between the fast path and the slow path, with the margins of engine/lattice.py.
static size_t differences(const ars::Instructions& set, ars::Family family) {
  const size_t values = 60003;
  std::vector<float> center(values), scale(values), margin(values), fast(values), slow(values);
  std::vector<double> exact_center(values);
  for (size_t i = 0; i < values; ++i) {
    exact_center[i] = std::ldexp(1.0 + (double)i / values, (int)(i % 20)) * (i % 3 ? 1 : -1);
    center[i] = (float)exact_center[i], scale[i] = (float)std::ldexp(33.0 + (double)i / values, (int)(i % 10));
    const double error = scale[i] * (0x1p-19 + 8.4 * 0x1p-24) + 1.001 * 0x1p-23 * std::fabs(exact_center[i]);
    margin[i] = std::nextafter((float)(0.5 - 0x1p-25 - error), -1.0f);
  }
  const ars::Slot slot = {center.data(), scale.data(), margin.data(), exact_center.data(), 0x1p-8f};
  const ars::DrawKey key = {1, 2, 3, 1};
  const ars::Stretch stretch = ars::stretch_of(family, key, values);
  set.fill(family, key, ars::CopyPart{0, values, stretch, slot, fast.data()});
  ars::fill_precise(family, key, ars::CopyPart{0, values, stretch, slot, slow.data()});
  size_t different = 0;
  for (size_t i = 0; i < values; ++i) different += fast[i] != slow[i];
  return different;
}

int main() try {
  for (const ars::Instructions& set : ars::usable_instructions()) {
    for (const ars::NamedFamily& known : ars::families)
      if (const size_t different = differences(set, known.family))
        return std::fprintf(stderr, "%s, %s: %zu values differ\n", set.name, known.name, different), 1;
    std::puts(set.name);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
