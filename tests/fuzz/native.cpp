// Fuzzes the native sampler and the vote counter: arrays of exactly the size that they need, so that a sanitizer sees
// every access outside, and every set of instructions against the scalar one, bit by bit. With clang it is a libFuzzer
// target; with -DSTANDALONE it has a main of its own, which makes seeded inputs for any compiler:
//
//     native [INPUTS [SEED]]
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <random>
#include <vector>

#include "sampler.h"

namespace {

// The bytes of an input, and then zeros.
struct Source {
  const uint8_t* data;
  size_t size;
  uint64_t number(size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes && size > 0; ++i, ++data, --size) value = value << 8 | *data;
    return value;
  }
  size_t between(size_t low, size_t high) { return low + number(2) % (high - low + 1); }
  float real() {
    const uint32_t bits = (uint32_t)number(4);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
  }
};

std::vector<ars::Request> make_requests(Source& source, size_t slots) {
  std::vector<ars::Request> requests(source.between(0, 5));
  for (ars::Request& request : requests) {
    request.slot = (int64_t)source.between(0, slots - 1);
    request.input = (int64_t)source.number(4);
    request.phase = (int64_t)source.between(0, 2);
    request.first_draw = (int64_t)(source.number(7) % ((1ull << 56) - 64));
    request.draws = (int64_t)source.between(0, 7);
  }
  return requests;
}

size_t count_rows(const std::vector<ars::Request>& requests) {
  size_t rows = 0;
  for (const ars::Request& request : requests) rows += (size_t)request.draws;
  return rows;
}

void fill(Source& source) {
  const size_t dimensions = source.between(1, 300), slots = source.between(1, 3), values = slots * dimensions;
  const std::vector<ars::Request> requests = make_requests(source, slots);
  std::vector<float> center(values), scale(values);
  for (size_t i = 0; i < values; ++i) {
    center[i] = (float)(int16_t)source.number(2) / 4096;
    scale[i] = (float)(1 + source.number(2)) / 16384;
  }
  // A margin of 1 sends every value of noise stream 2 to its slow path, which decides it without an error bound.
  const bool lattice = source.number(1) & 1;
  const std::vector<float> margin(lattice ? values : 0, 1.0f);
  const std::vector<double> exact(lattice ? center.begin() : center.end(), center.end());
  const ars::Slots tables = {{center.data(), scale.data(), lattice ? margin.data() : nullptr,
                              lattice ? exact.data() : nullptr, lattice ? 0.00390625f : 0.0f},
                             dimensions};
  const size_t count = sizeof ars::families / sizeof ars::families[0];
  const ars::Family family = ars::families[source.number(1) % count].family;
  const uint64_t seed = source.number(8);
  static ars::Workers alone(1), together(3);
  ars::Workers& workers = source.number(1) & 1 ? together : alone;
  std::vector<float> expected;
  for (size_t set = ars::usable_instructions().size(); set-- > 0;) {  // the scalar one first
    std::vector<float> out(count_rows(requests) * dimensions, -1.0f);
    ars::fill_noisy(out.data(), requests, tables, family, seed, workers, ars::usable_instructions()[set].fill);
    if (expected.empty()) expected = out;
    if (!out.empty() && memcmp(out.data(), expected.data(), out.size() * sizeof(float)) != 0) {
      fprintf(stderr, "%s has other bits than scalar\n", ars::usable_instructions()[set].name);
      abort();
    }
  }
}

void count(Source& source) {
  const std::vector<ars::Request> requests = make_requests(source, 1);
  const size_t classes = source.between(1, 40), rows = count_rows(requests);
  std::vector<float> logits(rows * classes);
  for (float& logit : logits) logit = source.real();
  std::vector<int64_t> counts(requests.size() * (classes + 1));
  ars::count_votes(logits.data(), classes, requests, counts.data());
  int64_t votes = 0;
  for (const int64_t each : counts) votes += each;
  if (votes != (int64_t)rows) {
    fprintf(stderr, "%lld votes for %zu rows\n", (long long)votes, rows);
    abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Source source = {data, size};
  source.number(1) & 1 ? fill(source) : count(source);
  return 0;
}

#ifdef STANDALONE
int main(int arguments, char** values) {
  const long inputs = arguments > 1 ? atol(values[1]) : 10000;
  std::mt19937_64 random(arguments > 2 ? strtoull(values[2], nullptr, 10) : 0);
  std::vector<uint8_t> data;
  for (long i = 0; i < inputs; ++i) {
    data.resize(random() % 3000);
    for (uint8_t& byte : data) byte = (uint8_t)random();
    LLVMFuzzerTestOneInput(data.data(), data.size());
  }
  printf("%ld inputs, no difference\n", inputs);
}
#endif
