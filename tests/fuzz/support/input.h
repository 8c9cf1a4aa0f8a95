// The bytes that a fuzzer gives, taken from the front as the numbers, choices and texts that a
// target takes. When they are used up everything is zero, and empty() says so: a script ends there.
//
// Numbers come as people get them wrong: small ones, ones near a power of two, all bits set, or
// any.

#ifndef OSPREY_TESTS_FUZZ_SUPPORT_INPUT_H_
#define OSPREY_TESTS_FUZZ_SUPPORT_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/types/span.h"

namespace osprey::fuzz {

// Ends the process with `what`: libFuzzer keeps the input, a replay test fails.
[[noreturn]] inline void Fail(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: this must not happen: %s\n", file, line, what);
  std::abort();
}

// What must hold whatever the input is.
#define OSPREY_MUST(condition, what) \
  ((condition) ? void() : ::osprey::fuzz::Fail(what, __FILE__, __LINE__))

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  bool empty() const { return left_ == 0; }
  size_t left() const { return left_; }

  uint8_t Byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  template <typename T>
  T Any() {
    T value{};
    const size_t bytes = std::min(left_, sizeof(T));
    if (bytes > 0) std::memcpy(&value, data_, bytes);
    data_ += bytes;
    left_ -= bytes;
    return value;
  }
  // 0 … count - 1. REQUIRES: count at most 256.
  uint32_t Choice(uint32_t count) { return Byte() % count; }
  bool Flag() { return (Byte() & 1) != 0; }
  // One in so many; when the input is used up, no.
  bool OneIn(uint32_t count) { return left_ > 0 && Byte() % count == 1; }

  uint64_t Number() {
    const uint8_t how = Byte();
    if (how < 128) return how;
    if (how < 192) return (uint64_t{1} << (how & 63)) + Any<int8_t>();
    if (how < 208) return ~uint64_t{0} - (how & 15);
    if (how < 224) return Any<uint16_t>();
    if (how < 240) return Any<uint32_t>();
    return Any<uint64_t>();
  }
  // At most `most`, the bound included, and often near it.
  uint64_t UpTo(uint64_t most) {
    const uint64_t number = Number();
    return number <= most ? number : most - number % std::min<uint64_t>(most + 1, 7);
  }

  // So many of the next bytes, or as many as there are.
  std::string Bytes(size_t count) {
    count = std::min(count, left_);
    std::string bytes(reinterpret_cast<const char*>(data_), count);
    data_ += count;
    left_ -= count;
    return bytes;
  }
  // A text of up to `most` bytes, whose length comes first.
  std::string Text(size_t most) { return Bytes(UpTo(most)); }
  std::string Rest() { return Bytes(left_); }

 private:
  const uint8_t* data_;
  size_t left_;
};

}  // namespace osprey::fuzz

// What every target defines, as libFuzzer calls it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

#endif  // OSPREY_TESTS_FUZZ_SUPPORT_INPUT_H_
