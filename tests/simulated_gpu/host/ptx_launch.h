// The end of the C++ of ptx.py: runs a kernel of its table as kernels.cpp does.
#pragma once

extern "C" size_t launch(const char* name, const unsigned* grid, const unsigned* block, const char* bytes, Translate at,
                         int* error) {
  for (const Kernel& kernel : table) {
    if (strcmp(kernel.name, name)) continue;
    fault = 0, translator = at;
    Thread t = {{0, 0, 0}, {block[0], block[1], block[2]}, {grid[0], grid[1], grid[2]}, {0, 0, 0}};
    for (t.ctaid[1] = 0; t.ctaid[1] < grid[1]; ++t.ctaid[1])
      for (t.ctaid[0] = 0; t.ctaid[0] < grid[0]; ++t.ctaid[0])
        for (t.tid[0] = 0; t.tid[0] < block[0] && !fault; ++t.tid[0]) kernel.body(bytes, nullptr, t);
    if (error) *error = fault;
    return kernel.bytes;
  }
  return 0;
}
