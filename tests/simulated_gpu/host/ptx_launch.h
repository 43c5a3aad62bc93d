// The end of the C++ of ptx.py: runs a kernel of its table as kernels.cpp does.
#pragma once

static bool counting = false;

// The instructions of all warps since the last call, which is where counting begins: it makes launches slow.
extern "C" uint64_t instructions() {
  const uint64_t total = executed.total;
  executed = {};
  counting = true;
  return total;
}

extern "C" size_t launch(const char* name, const unsigned* grid, const unsigned* block, const char* bytes, Translate at,
                         int* error) {
  for (const Kernel& kernel : table) {
    if (strcmp(kernel.name, name)) continue;
    fault = 0, translator = at;
    static thread_local Warp warp;
    Thread t = {{0, 0, 0}, {block[0], block[1], block[2]}, {grid[0], grid[1], grid[2]}, {0, 0, 0}};
    for (t.ctaid[1] = 0; t.ctaid[1] < grid[1]; ++t.ctaid[1])
      for (t.ctaid[0] = 0; t.ctaid[0] < grid[0]; ++t.ctaid[0])
        for (t.tid[0] = 0; t.tid[0] < block[0] && !fault; t.tid[0] += kernel.by_warps ? Warp::size : 1) {
          const auto thread = [&](int number) {
            Thread own = t;
            own.tid[0] += (unsigned)number;
            kernel.body(bytes, nullptr, own);
          };
          executed.choose(t.tid[0]);
          if (!kernel.by_warps)
            thread(0);
          else if (!warp.run(thread, [](int number) { executed.choose((unsigned)number); }) && !fault)
            fault = 719;  // CUDA_ERROR_LAUNCH_FAILED
          const unsigned next = t.tid[0] + (kernel.by_warps ? Warp::size : 1);
          if (counting && (next % Warp::size == 0 || next >= block[0])) executed.end_warp();
        }
    if (error) *error = fault;
    return kernel.bytes;
  }
  return 0;
}
