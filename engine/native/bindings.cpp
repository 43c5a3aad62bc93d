// The Python module ars.engine._native. engine/samplers/host.py checks the arguments and explains what is wrong with
// them; here they are checked again only where a bad one would read or write outside the arrays, or leave noise
// unwritten.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "sampler.h"

namespace nb = nanobind;

using Matrix = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ConstMatrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ConstDoubles = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using RequestTable = nb::ndarray<const int64_t, nb::shape<-1, 5>, nb::c_contig, nb::device::cpu>;
using CountTable = nb::ndarray<int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

static std::vector<ars::Request> requests_of(const RequestTable& table, size_t rows) {
  std::vector<ars::Request> requests(table.shape(0));
  if (!requests.empty()) std::memcpy(requests.data(), table.data(), requests.size() * sizeof(ars::Request));
  for (const ars::Request& request : requests) {
    if (request.draws < 0 || (uint64_t)request.draws > rows)
      throw std::invalid_argument("the requests do not fit the rows");
    rows -= (size_t)request.draws;
  }
  if (rows != 0) throw std::invalid_argument("the requests do not fit the rows");
  return requests;
}

static ars::Family family_of(uint32_t code) {
  for (const ars::NamedFamily& known : ars::families)
    if ((uint32_t)known.family == code) return known.family;
  throw std::invalid_argument("there is no such noise family");
}

static ars::FillFunction fill_function(const std::string& name) {
  for (const ars::Instructions& set : ars::usable_instructions())
    if (set.name == name) return set.fill;
  if (name == "precise") return ars::fill_precise;
  throw std::invalid_argument("this processor does not have the instructions '" + name + "'");
}

static std::map<std::string, uint32_t> families() {
  std::map<std::string, uint32_t> codes;
  for (const ars::NamedFamily& known : ars::families) codes[known.name] = (uint32_t)known.family;
  return codes;
}

static std::vector<std::string> instructions() {
  std::vector<std::string> names;
  for (const ars::Instructions& set : ars::usable_instructions()) names.push_back(set.name);
  return names;
}

using Counter = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;

static Counter philox4x32_10(Counter counter, std::tuple<uint32_t, uint32_t> key) {
  const auto [c0, c1, c2, c3] = counter;
  const auto [key0, key1] = key;
  const ars::Block<uint32_t> w = ars::philox4x32_10(ars::Block<uint32_t>{c0, c1, c2, c3}, key0, key1);
  return {w.w0, w.w1, w.w2, w.w3};
}

// Noise stream 1 has neither margin nor exact_center, and a step of 0.
static void fill_noisy(Matrix out, RequestTable requests, ConstMatrix center, ConstMatrix scale,
                       std::optional<ConstMatrix> margin, std::optional<ConstDoubles> exact_center, float step,
                       uint32_t family, uint64_t seed, ars::Workers& workers, const std::string& instructions) {
  const std::vector<ars::Request> list = requests_of(requests, out.shape(0));
  for (const ars::Request& request : list)
    if (request.slot < 0 || (uint64_t)request.slot >= center.shape(0))
      throw std::invalid_argument("there is no such slot");
  const auto fits = [&](const auto& table) {
    return table.shape(0) == center.shape(0) && table.shape(1) == center.shape(1);
  };
  if (out.shape(1) != center.shape(1) || !fits(scale) || (margin && !fits(*margin)) ||
      (exact_center && !fits(*exact_center)))
    throw std::invalid_argument("the arrays do not fit each other");
  if ((step != 0) != margin.has_value() || (step != 0) != exact_center.has_value())
    throw std::invalid_argument("a step needs a margin and an exact center, and they need a step");
  if (step == 0 && instructions == "precise") throw std::invalid_argument("noise stream 1 has no slow path");
  const ars::Slots slots = {{center.data(), scale.data(), margin ? margin->data() : nullptr,
                             exact_center ? exact_center->data() : nullptr, step},
                            center.shape(1)};
  const ars::Family known_family = family_of(family);
  const ars::FillFunction fill = fill_function(instructions);
  nb::gil_scoped_release release;
  ars::fill_noisy(out.data(), list, slots, known_family, seed, workers, fill);
}

static void count_votes(ConstMatrix logits, RequestTable requests, CountTable counts) {
  const std::vector<ars::Request> list = requests_of(requests, logits.shape(0));
  if (counts.shape(0) != list.size() || counts.shape(1) != logits.shape(1) + 1)
    throw std::invalid_argument("the arrays do not fit each other");
  nb::gil_scoped_release release;
  ars::count_votes(logits.data(), logits.shape(1), list, counts.data());
}

NB_MODULE(_native, module) {
  module.def("families", families);
  module.def("instructions", instructions);
  module.def("philox4x32_10", philox4x32_10, nb::arg("counter"), nb::arg("key"));
  nb::class_<ars::Workers>(module, "Workers").def(nb::init<int>(), nb::arg("threads"));
  module.def("fill_noisy", fill_noisy, nb::arg("out").noconvert(), nb::arg("requests").noconvert(),
             nb::arg("center").noconvert(), nb::arg("scale").noconvert(), nb::arg("margin").noconvert().none(),
             nb::arg("exact_center").noconvert().none(), nb::arg("step"), nb::arg("family"), nb::arg("seed"),
             nb::arg("workers"), nb::arg("instructions"));
  module.def("count_votes", count_votes, nb::arg("logits").noconvert(), nb::arg("requests").noconvert(),
             nb::arg("counts").noconvert());
}
