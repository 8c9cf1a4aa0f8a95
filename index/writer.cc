#include "index/writer.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>

#include "index/hash.h"
#include "index/test_hooks.h"

namespace osprey::index {
namespace {

// What a Close drops unused is at most such a part of what was used before it. Else a client that
// flushes all the time would use versions up a hundred times as fast as writes do.
constexpr uint64_t kUsedPerDropped = 16;

constexpr uint64_t HeaderWord(uint32_t version, uint32_t tag) {
  return uint64_t{tag} << 32 | version;
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

// A writer that draws may leave up to a block unused. The others may have asked for more than this
// one does, and not have drawn it yet.
bool CasCounter::Left(uint64_t count, uint64_t own) const {
  const uint64_t left = kCasVersionMax - last_.load();
  assert(count <= kLeftMax);
  if (writers_ == 1) return left + own >= count;
  return left >= count + kBlockMax + (writers_ - 1) * (kLeftMax + kBlockMax);
}

uint64_t CasCounter::Close() {
  const uint64_t bound = last_.load();
  // Acquired by closed(): who learnt of the bound, and writes then, sees it.
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

uint64_t RegionWriter::NextCasVersion() {
  if (hot_.cas_version == hot_.block_last) {
    const CasCounter::Block block = counter_->Draw(
        std::clamp<uint64_t>(hot_.drawn / kUsedPerDropped, 1, CasCounter::kBlockMax));
    hot_.cas_version = block.after;
    hot_.block_last = block.last;
    hot_.drawn += block.last - block.after;
  }
  return ++hot_.cas_version;
}

uint32_t RegionWriter::NextRecordVersion(uint64_t offset) {
  const uint32_t version = RecordVersion(hot_.cas_version);
  if ((Header(offset).version & ~1u) != version) return version;
  return RecordVersion(NextCasVersion());
}

absl::Span<std::byte> RegionWriter::Bytes(uint64_t offset, uint64_t bytes) {
  assert(offset <= region_.size() && bytes <= region_.size() - offset);
  return region_.subspan(offset, bytes);
}

ByteSpan RegionWriter::Bytes(uint64_t offset, uint64_t bytes) const {
  assert(offset <= region_.size() && bytes <= region_.size() - offset);
  return region_.subspan(offset, bytes);
}

uint64_t RegionWriter::Word(uint64_t offset) const {
  uint64_t word;
  std::memcpy(&word, Bytes(offset, kWordBytes).data(), kWordBytes);
  return word;
}

uint64_t RegionWriter::WordNow(uint64_t offset) const {
  assert(offset <= region_.size() && kWordBytes <= region_.size() - offset);
  uint64_t* const word = reinterpret_cast<uint64_t*>(region_.data() + offset);
  // Relaxed: nothing is concluded from it.
  return std::atomic_ref<uint64_t>(*word).load(std::memory_order_relaxed);
}

std::atomic_ref<uint64_t> RegionWriter::WordToStore(uint64_t offset) {
  assert(offset % kWordBytes == 0);
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(Bytes(offset, kWordBytes).data()));
}

void RegionWriter::StoreWord(uint64_t offset, uint64_t word) {
  ObserveStore();
  StoreUnobserved(offset, word);
}

void RegionWriter::StoreFirstWord(uint64_t offset, uint64_t word) {
  ObserveFirstWord();
  StoreUnobserved(offset, word);
}

void RegionWriter::StoreUnobserved(uint64_t offset, uint64_t word) {
  // Pairs with the acquire loads of a copying reader: who sees this word also sees every word
  // stored before it.
  WordToStore(offset).store(word, std::memory_order_release);
}

void RegionWriter::Begin(uint64_t offset, uint32_t version, uint32_t tag) {
  assert(!IsBeingWritten(version));
  StoreFirstWord(offset, HeaderWord(version | 1, tag));
}

void RegionWriter::BeginVisibly(uint64_t offset, uint32_t version, uint32_t tag) {
  assert(!IsBeingWritten(version));
  ObserveFirstWord();
  // An exchange is done when it is done: unlike a store it does not wait in a buffer. Sequentially
  // consistent, so that it also is before every later exchange, load and store of this thread.
  WordToStore(offset).exchange(HeaderWord(version | 1, tag), std::memory_order_seq_cst);
}

void RegionWriter::Store(uint64_t offset, ByteSpan bytes) {
  for (size_t at = 0; at < bytes.size(); at += kWordBytes) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<size_t>(kWordBytes, bytes.size() - at));
    StoreWord(offset + at, word);
  }
}

void RegionWriter::Seal(uint64_t offset, uint32_t version, uint32_t tag, uint64_t checksum) {
  assert(!IsBeingWritten(version));
  StoreWord(offset + offsetof(RecordHeader, checksum), checksum);
  StoreFirstWord(offset, HeaderWord(version, tag));
}

void RegionWriter::WriteRecord(uint64_t offset, uint32_t version, uint32_t tag, ByteSpan contents) {
  // Hashed first, so that the record is unfinished for as short a time as possible.
  const uint64_t checksum = RecordChecksum(HashBytes(contents), version, tag, PlaceOf(offset));
  Begin(offset, version, tag);
  Store(offset + sizeof(RecordHeader), contents);
  Seal(offset, version, tag, checksum);
}

}  // namespace osprey::index
