// Finds the instruction sets that this processor has, and checks that they give the right bits.
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "sampler.h"

namespace ars {

// Compares a set with the scalar code. The machines on which the project is tested do not have every set, so each set
// is checked where it is used.
static void check(const Instructions& set) {
  const size_t values = 1003;  // several whole steps of the widest registers, and a remainder
  std::vector<float> center(values), scale(values), margin(values), expected(values), got(values);
  std::vector<double> exact_center(values);
  for (size_t i = 0; i < values; ++i) {
    center[i] = 0.001f * (float)i, scale[i] = 0.5f + 0.01f * (float)(i % 7);
    exact_center[i] = center[i], margin[i] = i % 5 ? 0.4f : 0.0f;  // so that both ways to decide a value are taken
  }
  for (const auto& [name, family] : families) {
    const DrawKey key = {0x0123456789ABCDEFu, 0x00FEDCBA98765432u, 0x89ABCDEFu, 2u};
    const Stretch stretch = stretch_of(family, key, values);
    for (const int stream : {1, 2}) {
      const Slot slot = {center.data(), scale.data(), margin.data(), exact_center.data(), stream == 2 ? 0x1p-4f : 0.0f};
      fill_scalar(family, key, CopyPart{7, values, stretch, slot, expected.data()});
      set.fill(family, key, CopyPart{7, values, stretch, slot, got.data()});
      if (std::memcmp(expected.data(), got.data(), values * sizeof(float)) != 0)
        throw std::runtime_error(std::string("the ") + set.name + " instructions of this processor give other " + name +
                                 " noise than noise stream " + std::to_string(stream));
    }
  }
}

static std::vector<Instructions> find_usable() {
  std::vector<Instructions> sets;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) sets.push_back({"avx512", fill_avx512});
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) sets.push_back({"avx2", fill_avx2});
#elif defined(__aarch64__)
  sets.push_back({"neon", fill_neon});
#endif
  for (const Instructions& set : sets) check(set);
  sets.push_back({"scalar", fill_scalar});
  return sets;
}

const std::vector<Instructions>& usable_instructions() {
  static const std::vector<Instructions> sets = find_usable();
  return sets;
}

}  // namespace ars
