#include "tools/loadgen/workload/insert_counter.h"

#include <cassert>

namespace osprey::loadgen {

InsertCounter::InsertCounter(uint64_t start)
    : next_(start), last_(start - 1), acknowledged_(std::make_unique<bool[]>(kWindow)) {
  assert(start > 0);
}

std::optional<uint64_t> InsertCounter::Next() {
  uint64_t number = next_.load(std::memory_order_relaxed);
  do {
    // (Another thread may have acknowledged this number meanwhile: then the exchange fails.)
    const uint64_t acknowledged = last();
    if (number > acknowledged && number - acknowledged > kWindow) return std::nullopt;
  } while (!next_.compare_exchange_weak(number, number + 1, std::memory_order_relaxed));
  return number;
}

void InsertCounter::Acknowledge(uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  uint64_t last = last_.load(std::memory_order_relaxed);
  assert(number > last && number - last <= kWindow);
  acknowledged_[number % kWindow] = true;
  // Clears each entry that it passes. All of them were set before, so the loop ends.
  while (acknowledged_[(last + 1) % kWindow]) acknowledged_[++last % kWindow] = false;
  // Pairs with last(): a thread that reads the number sees the effects of the key's insert.
  last_.store(last, std::memory_order_release);
}

}  // namespace osprey::loadgen
