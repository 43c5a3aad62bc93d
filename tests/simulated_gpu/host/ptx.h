// What the C++ of ptx.py is written in.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "warp.h"

struct Half { uint16_t bits; };
struct Thread { uint32_t ctaid[3], ntid[3], nctaid[3], tid[3]; };
struct Kernel {
  const char* name;
  void (*body)(const char*, char*, const Thread&);
  size_t bytes;
  bool by_warps;  // whether its threads exchange values
};

// The instructions that warps execute. Threads that part ways make their warp execute both ways: an instruction counts
// as often as the thread of the warp that executes it most often.
template <int statements> struct Counter {
  uint32_t counts[Warp::size][statements] = {}, *current = counts[0];
  uint64_t total = 0;

  void add(int statement) { ++current[statement]; }
  void choose(unsigned thread) { current = counts[thread % Warp::size]; }
  void end_warp() {
    for (int i = 0; i < statements; ++i) {
      uint32_t most = 0;
      for (auto& thread : counts) most = thread[i] > most ? thread[i] : most;
      total += most;
    }
    memset(counts, 0, sizeof counts);
  }
};

using Translate = void* (*)(uint64_t, size_t);
static Translate translator;
static int fault;  // CUDA's number of the first error, or 0

// Where the bytes at an address lie in this process; null, and a fault, if the GPU has no such memory.
static inline char* reach(uint64_t address, size_t size) {
  if (fault) return nullptr;
  if (address % size) fault = 716;  // CUDA_ERROR_MISALIGNED_ADDRESS
  char* at = translator ? (char*)translator(address, size) : (char*)address;
  if (!at) fault = 700;  // CUDA_ERROR_ILLEGAL_ADDRESS
  return fault ? nullptr : at;
}

// A register as a value of some type: its lowest bits.
template <class To, class From> static inline To as(From from) {
  static_assert(sizeof(To) <= sizeof(From), "a register is read in full or in part");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
template <class Value, class Register> static inline void put(Register& to, Value value) {
  static_assert(sizeof(Value) == sizeof(Register), "a register is written in full");
  memcpy(&to, &value, sizeof to);
}
template <class Value> static inline Value load(const char* at) {
  Value value;
  memcpy(&value, at, sizeof value);
  return value;
}
template <class Value> static inline void store(char* at, Value value) { memcpy(at, &value, sizeof value); }
template <class To, class From> static inline To convert(From from) {
  if constexpr (std::is_same_v<To, Half>)
    return {(uint16_t)_cvtss_sh(from, _MM_FROUND_TO_NEAREST_INT)};
  else if constexpr (std::is_same_v<From, Half>)
    return _cvtsh_ss(from.bits);
  else
    return (To)from;
}
