// The 32 threads of a warp, which take turns on one thread of the host so that they can exchange values.
#pragma once

#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#include <functional>
#include <memory>

class Warp {
 public:
  static constexpr int size = 32;

  // Runs the threads of a warp; `resume` is told which one goes on. False if only some of them come to an exchange.
  bool run(const std::function<void(int)>& thread, const std::function<void(int)>& resume) {
    body = &thread, running = this;
    for (begun = false;; begun = true) {
      for (current = ended = 0; current < size; ++current) {
        resume(current);
        switch_to_current();
        ended += done[current];
      }
      if (ended) return ended == size;
      memcpy(taken, given, sizeof given);
    }
  }
  // The value that the thread whose number differs in these bits gives at the same place.
  static uint32_t exchange(uint32_t value, int across) {
    Warp* warp = running;
    const int me = warp->current;
    warp->given[me] = value;
    if (_setjmp(warp->threads[me]) == 0) _longjmp(warp->home, 1);
    return warp->taken[me ^ across];
  }

 private:
  static constexpr size_t stack_size = 1 << 16;
  inline static thread_local Warp* running = nullptr;
  std::unique_ptr<char[]> stacks{new char[size * stack_size]};
  jmp_buf home, threads[size];
  uint32_t given[size] = {}, taken[size] = {};
  bool begun = false, done[size] = {};
  int current = 0, ended = 0;
  const std::function<void(int)>* body = nullptr;

  // Returns when the current thread waits or ends.
  void switch_to_current() {
    if (_setjmp(home)) return;
    if (begun) _longjmp(threads[current], 1);
    begin();
  }
  // Starts the current thread on a stack of its own. It never returns: it jumps home when it waits, and when it ends.
  void begin() {
    done[current] = false;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stacks.get() + current * stack_size;
    context.uc_stack.ss_size = stack_size;
    makecontext(&context, enter, 0);
    setcontext(&context);
  }
  static void enter() {
    Warp* warp = running;
    const int me = warp->current;
    (*warp->body)(me);
    warp->done[me] = true;
    _longjmp(warp->home, 1);
  }
};
