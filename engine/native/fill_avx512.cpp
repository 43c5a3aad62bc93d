#include "fill.h"

void ars::fill_avx512(Family family, const DrawKey& key, const CopyPart& part) { fill_vector(family, key, part); }
