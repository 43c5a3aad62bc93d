// Measures how far the float32 noise z can be from ideal noise, and how large |z| can be, over all words, or over every
// `stride`-th.
//
// docs/soundness.md needs an error of at most 2^-19, and |z| of at most 8.4: for every pair of words that `unbounded` lets pass, and for all ideal numbers U and V
// that begin with these words. Each factor of a value depends on one word of 32 bits, so every case can be tried. The
// math library's double functions serve as exact ones; their error, below 1e-14, is far below the last digit printed.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "distributions.h"

using namespace ars;

static const double pi = 3.14159265358979323846, cells = 4294967296.0, rounding = 0x1p-24;

// The exact -log(U) at both ends of the cell [word, word + 1) / 2^bits, from the end that keeps all digits.
static double minus_log(double word, double words) {
  return word < words / 2 ? -std::log(word / words) : -std::log1p((word - words) / words);
}

struct Measured { double error, size; };

static Measured measure_gaussian(uint64_t stride) {
  double trigonometry = 0, amplitude = 0;  // the error of the cosine and the sine, and the largest of their values
  // Half a turn changes nothing but both signs, of the computed values and of the exact ones, so half of the words do.
  for (uint64_t word = 0; word < 1ull << 31; word += stride) {
    const uint32_t low_bits = (uint32_t)word << 1;
    const float r = fma(signed_to_float(low_bits), 0x1p-33f, 0x1p-33f);
    float sine, cosine;
    sine_and_cosine(r, sine, cosine);
    const double sign = ((uint32_t)word ^ low_bits) >> 31 ? -1 : 1, angle = 2 * pi * ((double)word + 0.5) / cells;
    amplitude = std::max({amplitude, (double)std::fabs(sine), (double)std::fabs(cosine)});
    trigonometry =
        std::max({trigonometry, std::fabs(sign * sine - std::sin(angle)), std::fabs(sign * cosine - std::cos(angle))});
  }
  trigonometry += pi / cells;  // V is at most half a cell from the middle
  Measured largest{0, 0};
  for (uint64_t word = 0; word < 1ull << 32; word += stride) {
    uint32_t first, second;
    gaussian::unbounded((uint32_t)word, 0u, first, second);
    if (first) continue;
    const float u = fma(to_float((uint32_t)word), 0x1p-32f, 0x1p-33f), radius = square_root(minus_two_log(u));
    const double high = std::sqrt(2 * minus_log((double)word, cells)),
                 low = std::sqrt(2 * minus_log((double)word + 1, cells));
    const double error = std::max(std::fabs(radius - high), std::fabs(radius - low));
    largest.error = std::max(largest.error, error + radius * (trigonometry + rounding * 1.001));
    largest.size = std::max(largest.size, radius * amplitude * (1 + rounding));
  }
  return largest;
}

static Measured measure_laplace(uint64_t stride) {
  Measured largest{0, 0};
  for (uint64_t word = 0; word < 1ull << 31; word += stride) {
    uint32_t first, second;
    laplace::unbounded((uint32_t)word, (uint32_t)word, first, second);
    if (first) continue;
    const double size = laplace::value<float>((uint32_t)word);
    const double high = minus_log((double)word, cells / 2), low = minus_log((double)word + 1, cells / 2);
    largest.error = std::max({largest.error, std::fabs(size - high), std::fabs(size - low)});
    largest.size = std::max(largest.size, size);
  }
  return largest;
}

static Measured measure_uniform(uint64_t stride) {
  Measured largest{0, 0};
  for (uint64_t word = 0; word < 1ull << 32; word += stride) {
    const double value = uniform::value<float>((uint32_t)word), low = 2 * (double)word / cells - 1,
                 high = low + 2 / cells;
    largest.error = std::max({largest.error, std::fabs(value - low), std::fabs(value - high)});
    largest.size = std::max(largest.size, std::fabs(value));
  }
  return largest;
}

static Measured measure_pareto(uint64_t stride) {
  Measured largest{0, 0};
  for (uint64_t word = 0; word < 1ull << 31; word += stride) {
    uint32_t first, second;
    pareto::unbounded((uint32_t)word, (uint32_t)word, first, second);
    if (first) continue;
    const double size = pareto::value<float>((uint32_t)word);
    const double high = 1 / std::sqrt(std::sqrt((double)word / (cells / 2))) - 1,
                 low = 1 / std::sqrt(std::sqrt((double)(word + 1) / (cells / 2))) - 1;
    largest.error = std::max({largest.error, std::fabs(size - high), std::fabs(size - low)});
    largest.size = std::max(largest.size, size);
  }
  return largest;
}

// A uniform value times a stretch of at most 8. The stretch has an error of at most 2^-21 in double precision
// (docs/soundness.md, Lemma 6), is rounded to float32, and so is the product.
static Measured measure_exponential(Measured uniform) {
  return {8 * (uniform.error + 2.002 * rounding) + 0x1p-21, 8 * uniform.size};
}

int main(int argc, char** argv) {
  const uint64_t stride = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const auto print = [](const char* family, Measured largest) {
    std::printf("%s %a %a\n", family, largest.error, largest.size);
  };
  print("gaussian", measure_gaussian(stride));
  print("laplace", measure_laplace(stride));
  const Measured uniform = measure_uniform(stride);
  print("uniform", uniform);
  print("pareto", measure_pareto(stride));
  print("exponential", measure_exponential(uniform));
}
