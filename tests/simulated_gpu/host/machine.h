// The machine behind the simulated driver (libcuda.cpp): GPUs with memory of their own, one context each, and streams
// that do nothing until somebody waits for them.
//
// It is strict. A device address means nothing to the host, and new memory is filled with NaN. An error of queued work
// stays with its context: every later call there fails with it, until the context has been released.
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

// CUDA's errors, by their numbers in cuda.h.
enum Result {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NO_BINARY_FOR_GPU = 209,
  INVALID_HANDLE = 400,
  ILLEGAL_STATE = 401,
  NOT_FOUND = 500,
  ILLEGAL_ADDRESS = 700,
  CONTEXT_IS_DESTROYED = 709,
  CAPTURE_UNSUPPORTED = 900,
  CAPTURE_INVALIDATED = 901,
  CAPTURED_EVENT = 907,
  CAPTURE_WRONG_THREAD = 908,
};

using Step = std::function<int()>;
using Moment = std::chrono::steady_clock::time_point;
constexpr size_t guard_size = 64;
constexpr unsigned char guard_byte = 0xA5;

struct Context;

// Bytes on a GPU, followed by guard bytes that nothing may overwrite.
struct Memory {
  size_t size;
  std::unique_ptr<unsigned char[]> bytes;

  explicit Memory(size_t size) : size(size), bytes(new unsigned char[size + guard_size]) {
    memset(bytes.get(), 0xFF, size);
    memset(bytes.get() + size, guard_byte, guard_size);
  }
  bool is_guarded() const {
    for (size_t i = 0; i < guard_size; ++i)
      if (bytes[size + i] != guard_byte) return false;
    return true;
  }
};

// What was captured on a stream. A graph that can be launched is a copy of it.
struct Graph {
  std::vector<Step> nodes;
  bool executable = false;
};

// A capture that has begun and not ended. A call that is not allowed meanwhile invalidates it.
struct Capture {
  std::thread::id thread;
  int mode;  // 0: global, 1: thread local, 2: relaxed
  bool valid = true;
  Graph graph = {};
};

struct Stream {
  Context* context;
  std::deque<Step> work;
  uint64_t done = 0;
  Moment ready = {};  // when a GPU that takes time would have done all of it
  std::unique_ptr<Capture> capture = nullptr;

  uint64_t added() const { return done + work.size(); }
  // Queues a step, or captures it.
  int add(Step step) {
    if (capture && !capture->valid) return CAPTURE_INVALIDATED;
    if (capture)
      capture->graph.nodes.push_back(std::move(step));
    else
      work.push_back(std::move(step));
    return SUCCESS;
  }
  // For calls that wait for the stream, or whose work cannot be captured.
  int refuse_capture() {
    if (!capture) return SUCCESS;
    capture->valid = false;
    return CAPTURE_UNSUPPORTED;
  }
};

struct Event {
  Stream* stream = nullptr;
  uint64_t mark = 0;
  bool captured = false;
  Moment ready = {};
};

struct Module { std::map<std::string, std::unique_ptr<std::string>> functions; };

// The primary context of a GPU. It ends with all that it holds when it has been released as often as retained.
struct Context {
  int gpu, retained = 0, error = SUCCESS;
  long left = 0;  // what was still held when the context ended
  size_t used = 0;
  Moment ready = {};
  std::map<uint64_t, Memory> memory;
  std::map<char*, size_t> pinned;
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::set<Module*> modules;
  std::set<Graph*> graphs;

  // For calls that are not allowed while a stream is captured, in this thread or, in the global mode, in any.
  int refuse_capture() {
    int error = SUCCESS;
    for (Stream* stream : streams) {
      if (!stream->capture || stream->capture->mode == 2) continue;
      if (stream->capture->mode == 0 || stream->capture->thread == std::this_thread::get_id())
        error = stream->refuse_capture();
    }
    return error;
  }
  Graph* find_graph(void* graph, bool executable) const {
    const bool known = graphs.count((Graph*)graph) && ((Graph*)graph)->executable == executable;
    return known ? (Graph*)graph : nullptr;
  }
  // The bytes at an address of this GPU; null unless all of them are in one allocation.
  unsigned char* at(uint64_t address, size_t size) {
    auto found = memory.upper_bound(address);
    if (found == memory.begin()) return nullptr;
    --found;
    const uint64_t offset = address - found->first;
    return offset + size <= found->second.size ? found->second.bytes.get() + offset : nullptr;
  }
  bool is_pinned(const void* from, size_t size) const {
    for (const auto& [start, length] : pinned)
      if ((const char*)from >= start && (const char*)from + size <= start + length) return true;
    return false;
  }
  void end() {
    left += (long)(memory.size() + pinned.size() + streams.size() + events.size() + modules.size() + graphs.size());
    for (Stream* stream : streams) delete stream;
    for (Event* event : events) delete event;
    for (Module* module : modules) delete module;
    for (Graph* graph : graphs) delete graph;
    for (auto& [start, length] : pinned) free(start);
    streams.clear(), events.clear(), modules.clear(), graphs.clear(), pinned.clear(), memory.clear();
    used = 0, error = SUCCESS;
  }
};

// Does the work of a stream up to this mark. What is queued after an error is lost. The lock is not held while a step is
// at work: the step of another library may have to wait for a thread that waits for the lock.
inline int run_to(Stream* stream, uint64_t mark, std::unique_lock<std::recursive_mutex>& hold) {
  while (stream->done < mark && !stream->work.empty()) {
    const Step step = std::move(stream->work.front());
    stream->work.pop_front();
    ++stream->done;
    if (stream->context->error != SUCCESS) continue;
    hold.unlock();
    const int error = step();
    hold.lock();
    if (error) stream->context->error = error;
  }
  return stream->context->error;
}

inline int run_all(Stream* stream, std::unique_lock<std::recursive_mutex>& hold) {
  return run_to(stream, stream->added(), hold);
}
