#include "index/space/region_writer.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>

#include "index/layout/hash.h"
#include "index/layout/test_hooks.h"

namespace osprey::index {
namespace {

// A Close drops at most this part of the versions used before it. Otherwise a client that flushes
// all the time would use up versions up to a hundred times as fast as writes do.
constexpr uint64_t kUsedPerDropped = 16;

constexpr uint64_t kHeaderWords = sizeof(RecordHeader) / kWordBytes;
constexpr uint64_t kChecksumWord = offsetof(RecordHeader, checksum) / kWordBytes;

constexpr uint64_t HeaderWord(uint32_t version, uint32_t tag) {
  return uint64_t{tag} << 32 | version;
}

void StoreUnobserved(uint64_t& word, uint64_t value) {
  // Pairs with the acquire loads of a copying reader. A reader that sees this word also sees every
  // word stored before it.
  std::atomic_ref<uint64_t>(word).store(value, std::memory_order_release);
}

void StoreWord(uint64_t& word, uint64_t value) {
  ObserveStore();
  StoreUnobserved(word, value);
}

void StoreFirstWord(uint64_t& word, uint64_t value) {
  ObserveFirstWord();
  StoreUnobserved(word, value);
}

// An exchange is visible when it returns: unlike a store it does not wait in a store buffer. It is
// sequentially consistent, so it also comes before every later exchange, load and store of this
// thread.
void StoreFirstWordVisibly(uint64_t& word, uint64_t value) {
  ObserveFirstWord();
  std::atomic_ref<uint64_t>(word).exchange(value, std::memory_order_seq_cst);
#ifndef __x86_64__
  // On arm64 loads may pass the exchange's store, and a clock is read by loads (ARGUMENT.md).
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// `from` need not be aligned.
[[gnu::always_inline]] inline void StoreWords(uint64_t* to, const std::byte* from, size_t count) {
  const auto store = [&](size_t i) __attribute__((always_inline)) {
    uint64_t word;
    std::memcpy(&word, from + i * kWordBytes, kWordBytes);
    StoreWord(to[i], word);
  };
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    store(i);
    store(i + 1);
    store(i + 2);
    store(i + 3);
  }
  switch (count - i) {
    case 3:
      store(i++);
      [[fallthrough]];
    case 2:
      store(i++);
      [[fallthrough]];
    case 1:
      store(i);
      break;
    default:
      break;
  }
}

}  // namespace

CasCounter::Block CasCounter::Draw(uint64_t count) {
  assert(count >= 1 && count <= kBlockMax);
  uint64_t after = last_.load();
  uint64_t last = 0;
  do {
    assert(after < kCasVersionMax);
    last = std::min(after + count, kCasVersionMax);
  } while (!last_.compare_exchange_weak(after, last));
  return {after, last};
}

void CasCounter::Raise(uint64_t version) {
  assert(version <= kCasVersionMax);
  uint64_t last = last_.load();
  while (last < version && !last_.compare_exchange_weak(last, version)) {
  }
  (void)Close();
}

uint64_t CasCounter::Close() {
  const uint64_t bound = last_.load();
  // Acquired by closed(): a thread that has received the bound, and then writes, sees it.
  uint64_t closed = closed_.load();
  while (closed < bound && !closed_.compare_exchange_weak(closed, bound)) {
  }
  return bound;
}

RegionWriter::RegionWriter(absl::Span<std::byte> region, uint64_t incarnation, uint64_t cas_version,
                           CasCounter* counter)
    : region_(region),
      incarnation_(incarnation),
      own_counter_(counter == nullptr ? std::make_unique<CasCounter>(cas_version) : nullptr),
      counter_(counter == nullptr ? own_counter_.get() : counter) {
  hot_.cas_version = hot_.block_last = counter_->Last();
}

void RegionWriter::DrawBlock() {
  const CasCounter::Block block =
      counter_->Draw(std::clamp<uint64_t>(hot_.drawn / kUsedPerDropped, 1, CasCounter::kBlockMax));
  hot_.cas_version = block.after;
  hot_.block_last = block.last;
  hot_.drawn += block.last - block.after;
}

[[gnu::always_inline]] inline uint64_t* RegionWriter::WordsAt(uint64_t offset, uint64_t words) {
  assert(offset % kWordBytes == 0);
  return reinterpret_cast<uint64_t*>(const_cast<std::byte*>(At(offset, words * kWordBytes)));
}

void RegionWriter::Begin(uint64_t offset, uint32_t version, uint32_t tag) {
  assert(!IsBeingWritten(version));
  StoreFirstWord(*WordsAt(offset, 1), HeaderWord(version | 1, tag));
}

void RegionWriter::BeginVisibly(uint64_t offset, uint32_t version, uint32_t tag) {
  assert(!IsBeingWritten(version));
  StoreFirstWordVisibly(*WordsAt(offset, 1), HeaderWord(version | 1, tag));
}

void RegionWriter::Store(uint64_t offset, uint64_t word) { StoreWord(*WordsAt(offset, 1), word); }

void RegionWriter::Store(uint64_t offset, ByteSpan bytes) {
  const size_t whole = bytes.size() / kWordBytes;
  const size_t rest = bytes.size() % kWordBytes;
  uint64_t* const words = WordsAt(offset, whole + (rest != 0));
  StoreWords(words, bytes.data(), whole);
  if (rest == 0) return;
  uint64_t last = 0;
  std::memcpy(&last, bytes.data() + whole * kWordBytes, rest);
  StoreWord(words[whole], last);
}

void RegionWriter::Seal(uint64_t offset, uint32_t version, uint32_t tag, uint64_t checksum) {
  assert(!IsBeingWritten(version));
  uint64_t* const header = WordsAt(offset, kHeaderWords);
  StoreWord(header[kChecksumWord], checksum);
  StoreFirstWord(header[0], HeaderWord(version, tag));
}

void RegionWriter::SealVisibly(uint64_t offset, uint32_t version, uint32_t tag, uint64_t checksum) {
  assert(!IsBeingWritten(version));
  uint64_t* const header = WordsAt(offset, kHeaderWords);
  StoreWord(header[kChecksumWord], checksum);
  StoreFirstWordVisibly(header[0], HeaderWord(version, tag));
}

void RegionWriter::WriteRecord(uint64_t offset, uint32_t version, uint32_t tag, ByteSpan contents) {
  AmendRecord(offset, version, tag, contents, 0,
              static_cast<uint32_t>(contents.size() / kWordBytes));
}

void RegionWriter::AmendRecord(uint64_t offset, uint32_t version, uint32_t tag, ByteSpan contents,
                               uint32_t first, uint32_t count) {
  // Hashed first, so that the record is unfinished for as short a time as possible.
  const uint64_t checksum = RecordChecksum(HashBytes(contents), version, tag, PlaceOf(offset));
  assert((uint64_t{first} + count) * kWordBytes <= contents.size());
  StoreRecord(offset, {version, tag, checksum}, first,
              ByteSpan(contents.data() + first * kWordBytes, count * kWordBytes));
}

void RegionWriter::StoreRecord(uint64_t offset, const RecordHeader& header, uint32_t first,
                               ByteSpan words) {
  assert(!IsBeingWritten(header.version) && words.size() % kWordBytes == 0);
  const size_t count = words.size() / kWordBytes;
  uint64_t* const record = WordsAt(offset, kHeaderWords + first + count);
  StoreFirstWord(record[0], HeaderWord(header.version | 1, header.tag));
  StoreWords(record + kHeaderWords + first, words.data(), count);
  StoreWord(record[kChecksumWord], header.checksum);
  StoreFirstWord(record[0], HeaderWord(header.version, header.tag));
}

}  // namespace osprey::index
