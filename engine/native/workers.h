// Threads that wait for work. A batch is cut into many pieces, and every thread takes the next piece as soon as it is
// free. A thread that wakes up late therefore costs little: the others have done its share.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include <unistd.h>

namespace ars {

class Workers {
 public:
  // `threads` includes the thread that calls `run`, which works too. The others end when this object is destroyed.
  // A forked process has none of them, and its copies of the locks may stay locked forever. There the caller of `run`
  // does all the work and touches no lock.
  explicit Workers(int threads) : state_(std::make_shared<State>()), owner_(getpid()) {
    try {
      for (int i = 1; i < threads; ++i) std::thread(serve, state_).detach();
    } catch (...) {  // the system gives no more threads: end those that were started
      stop();
      throw;
    }
  }
  Workers(const Workers&) = delete;
  ~Workers() {
    if (getpid() == owner_) stop();
  }

  // Calls piece(0), ..., piece(pieces - 1), once each, and returns when all have returned. Concurrent calls of `run`
  // wait for each other.
  void run(size_t pieces, const std::function<void(size_t)>& piece) {
    if (getpid() != owner_) {
      for (size_t i = 0; i < pieces; ++i) piece(i);
      return;
    }
    const std::lock_guard<std::mutex> turn(turn_);
    State& state = *state_;
    {
      const std::lock_guard<std::mutex> lock(state.mutex);
      state.piece = &piece;
      state.pieces = pieces;
      state.next = 0;
      ++state.job;
      if (pieces > 1) state.wake.notify_all();
    }
    take_pieces(state, piece, pieces);
    std::unique_lock<std::mutex> lock(state.mutex);
    state.piece = nullptr;  // a thread that wakes up after this finds nothing to do
    state.idle.wait(lock, [&] { return state.busy == 0; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable wake, idle;
    const std::function<void(size_t)>* piece = nullptr;
    size_t pieces = 0;
    std::atomic<size_t> next{0};
    uint64_t job = 0;
    int busy = 0;
    bool stop = false;
  };

  void stop() {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stop = true;
    state_->wake.notify_all();
  }

  static void take_pieces(State& state, const std::function<void(size_t)>& piece, size_t pieces) {
    for (size_t i = state.next++; i < pieces; i = state.next++) piece(i);
  }

  static void serve(std::shared_ptr<State> state) {
    uint64_t seen = 0;
    std::unique_lock<std::mutex> lock(state->mutex);
    while (true) {
      state->wake.wait(lock, [&] { return state->stop || (state->job != seen && state->piece); });
      if (state->stop) return;
      seen = state->job;
      const std::function<void(size_t)>* piece = state->piece;
      const size_t pieces = state->pieces;
      ++state->busy;
      lock.unlock();
      take_pieces(*state, *piece, pieces);
      lock.lock();
      if (--state->busy == 0) state->idle.notify_all();
    }
  }

  std::shared_ptr<State> state_;
  pid_t owner_;
  std::mutex turn_;
};

}  // namespace ars
