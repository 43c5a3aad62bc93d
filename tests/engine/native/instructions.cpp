// Prints the instruction sets that this processor has. Listing them checks each against the scalar code, bit for bit.
#include <cstdio>
#include <exception>

#include "sampler.h"

int main() try {
  for (const ars::Instructions& set : ars::usable_instructions()) std::puts(set.name);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
