// Atomic loads of words of the region that another thread or process may be writing.

#ifndef OSPREY_INDEX_LAYOUT_ATOMIC_WORD_H_
#define OSPREY_INDEX_LAYOUT_ATOMIC_WORD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace osprey::index {

// The word at `at`, a multiple of 8. A relaxed load: it orders nothing, and proves nothing about
// this word or others.
inline uint64_t GlimpseOf(const std::byte* at) {
  // atomic_ref requires a mutable object; a lock-free load does not write.
  static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);
  auto& word = *const_cast<uint64_t*>(reinterpret_cast<const uint64_t*>(at));
  return std::atomic_ref<uint64_t>(word).load(std::memory_order_relaxed);
}

}  // namespace osprey::index

#endif  // OSPREY_INDEX_LAYOUT_ATOMIC_WORD_H_
