// Measures how far the slow path's noise is from the ideal noise of the same 64-bit words, against 113 bits.
//
// docs/soundness.md (Lemma 3) proves |z - Z| + u |z| <= 110 u with u = 2^-53, where Z is the ideal noise at the midpoints
// of the words' cells, and 4.3 u (1 + |Z|) for Pareto noise. This prints the largest value that occurs, in units of u, for
// each family, divided by 1 + |Z| for Pareto noise.
//
// For exponential noise, whose values are uniform ones times a stretch, it prints the largest error of the stretch and
// of the decision whether a trial at it is accepted, each divided by its bound (Lemma 6).
#include <algorithm>
#include <cfloat>
#include <cstdio>
#include <random>
#include <vector>

#include "stream.h"

#if LDBL_MANT_DIG == 113  // arm64
#include <cmath>
typedef long double Exact;
static Exact exact_log(Exact a) { return std::log(a); }
static Exact exact_log1p(Exact a) { return std::log1p(a); }
static Exact exact_sqrt(Exact a) { return std::sqrt(a); }
static Exact exact_cosine(Exact a) { return std::cos(a); }
static Exact exact_sine(Exact a) { return std::sin(a); }
static Exact exact_arctangent(Exact a) { return std::atan(a); }
#else
#include <quadmath.h>
typedef __float128 Exact;
static Exact exact_log(Exact a) { return logq(a); }
static Exact exact_log1p(Exact a) { return log1pq(a); }
static Exact exact_sqrt(Exact a) { return sqrtq(a); }
static Exact exact_cosine(Exact a) { return cosq(a); }
static Exact exact_sine(Exact a) { return sinq(a); }
static Exact exact_arctangent(Exact a) { return atanq(a); }
#endif

static const Exact half = 0.5, one = 1, unit = one / ((Exact)(1ull << 63) * 2), two_pi = 8 * exact_arctangent(one);

// -log(U) at the middle of a cell, where U has `bits` bits. If U is near 1, it is computed from 1 - U.
static Exact minus_log(uint64_t word, int bits) {
  const Exact scaled = bits == 64 ? unit : 2 * unit;
  const uint64_t most = ~0ull >> (64 - bits);
  return word > most / 2 ? -exact_log1p(-((Exact)(most - word) + half) * scaled)
                         : -exact_log(((Exact)word + half) * scaled);
}

static double in_units(double z, Exact ideal) {
  const Exact difference = z - ideal, size = z < 0 ? -z : z;
  return (double)(((difference < 0 ? -difference : difference) + 0x1p-53 * size) * 0x1p53);
}

// Words next to each power of two, to each eighth of the range and to the ends of the logarithm's cases.
static std::vector<uint64_t> extreme_words() {
  std::vector<uint64_t> centers = {0xB504F333F9DE6484u, 0x5A827999FCEF3242u};  // sqrt(1/2) of 64 and of 63 bits
  for (int k = 0; k < 64; ++k) centers.insert(centers.end(), {1ull << k, 0 - (1ull << k)});
  for (uint64_t k = 0; k < 8; ++k) centers.push_back(k << 61);
  std::vector<uint64_t> words;
  for (const uint64_t center : centers)
    for (const uint64_t apart : {0, 1, 2, 3, 4}) words.insert(words.end(), {center + apart, center - apart});
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  return words;
}

struct Largest {
  double gaussian = 0, laplace = 0, uniform = 0, pareto = 0, stretch = 0, decision = 0;

  void try_pair(uint64_t u, uint64_t v) {
    const Exact radius = exact_sqrt(2 * minus_log(u, 64)), angle = two_pi * (((Exact)v + half) * unit);
    gaussian = std::max({gaussian, in_units(ars::gaussian::precise(u, v, false), radius * exact_cosine(angle)),
                         in_units(ars::gaussian::precise(u, v, true), radius * exact_sine(angle))});
  }
  void try_word(uint64_t word) {
    const Exact size = minus_log(word << 1 >> 1, 63);
    laplace = std::max(laplace, in_units(ars::laplace::precise(0, word, true), word >> 63 ? -size : size));
    const Exact u = ((Exact)(word << 1 >> 1) + half) * 2 * unit, root = 1 / exact_sqrt(exact_sqrt(u)), tail = root - 1;
    const double error = in_units(ars::pareto::precise(word, 0, false), word >> 63 ? -tail : tail);
    pareto = std::max(pareto, error / (double)root);
    uniform = std::max(uniform, in_units(ars::uniform::precise(word, 0, false), 2 * (((Exact)word + half) * unit) - 1));
  }
  void try_stretch(uint64_t u, uint64_t v, double d) {
    const Exact r = exact_sqrt(2 * minus_log(u, 64)), x = r * exact_cosine(two_pi * (((Exact)v + half) * unit));
    const Exact mode = d + 2 * one / 3, root_mode = exact_sqrt(mode), c = one / (3 * root_mode), root = 1 + c * x;
    if (root < 0x1p-10) return;
    const Exact roundoff = 0x1p-53, ideal = mode / d * root * root * root;
    const Exact q = x * x / 2 + mode * (1 - root * root * root + 3 * exact_log(root));
    if (const double accepted = ars::try_stretch(u, v, 0, d)) {  // the number of the word 0 is 2^-65
      const Exact error = accepted < ideal ? ideal - accepted : accepted - ideal;
      stretch = std::max(stretch, (double)(error / (12 * roundoff * (root_mode / d * root * root * (1 + r) + ideal))));
    }
    if (q < -40) return;
    uint64_t low = 0, high = ~0ull;  // the program accepts the words up to `low`, and from `high` on none
    if (ars::try_stretch(u, v, high, d)) return;
    while (high - low > 1) {
      const uint64_t middle = low + (high - low) / 2;
      (ars::try_stretch(u, v, middle, d) ? low : high) = middle;
    }
    const Exact size = x < 0 ? -x : x, y = c * size, from = 1 / root;
    const Exact bound = size * size * size / (27 * mode) * from * 8 * (1 + r) +
                        root_mode * size * ((1 + y + y * y / 3) * (6 + 11.1 * y * from) + 7 * (1 + from)) +
                        2 * size * size - 5 * q + 3.65;
    const Exact below = -minus_log(low, 64) - q, above = -minus_log(high, 64) - q;
    const Exact error = std::max(below, -above);
    decision = std::max(decision, (double)(error / (roundoff * bound)));
  }
};

int main() {
  Largest largest;
  const std::vector<uint64_t> extremes = extreme_words();
  std::mt19937_64 random(1);
  for (size_t i = 0; i < extremes.size(); ++i) {
    largest.try_word(extremes[i]);
    for (size_t j = i % 8; j < extremes.size(); j += 8) largest.try_pair(extremes[i], extremes[j]);
  }
  for (int i = 0; i < 100000; ++i) {
    // Every size of U and of 1 - U, and every size of the distance between V and an eighth of a turn.
    const uint64_t far = random() >> random() % 64, near = random() >> random() % 64, eighth = random() % 8 << 61;
    const uint64_t u = i % 2 ? far : ~far, v = i % 4 < 2 ? eighth + near : eighth - near;
    largest.try_word(u), largest.try_word(v), largest.try_pair(u, v), largest.try_pair(random(), random());
    for (const double d : {1.0, 2.0, 7.0, 784.0, 150528.0, 0x1p34})
      if (i < 4000) largest.try_stretch(u, v, d), largest.try_stretch(random(), random(), d);
  }
  std::printf("gaussian %a\nlaplace %a\n", largest.gaussian, largest.laplace);
  std::printf("uniform %a\npareto %a\n", largest.uniform, largest.pareto);
  std::printf("exponential %a %a\n", largest.stretch, largest.decision);
}
