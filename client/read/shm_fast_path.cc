#include "client/read/shm_fast_path.h"

#include <cassert>
#include <string>

#include "client/common/errors.h"
#include "index/layout/atomic_word.h"

namespace osprey::client {

namespace {

constexpr size_t kCacheLineBytes = 64;
// Prefetched bytes of an item, enough for most. The rest of a longer item is fetched by the copy.
constexpr size_t kFetchedBytes = 128;

// Prefetches what is behind the first CPU cache line, which is requested already.
void PrefetchRest(const std::byte* from, size_t bytes) {
  for (size_t at = kCacheLineBytes; at < bytes; at += kCacheLineBytes)
    __builtin_prefetch(from + at);
}

// Loads whose results are not used, so the CPU does not wait for them. A prefetch would do, but the
// CPU drops prefetches when many pages miss the TLB at once, as those of items do.
void Fetch(absl::Span<const std::byte* const> items) {
  for (const std::byte* item : items) asm volatile("" : : "r"(index::GlimpseOf(item)));
  for (const std::byte* item : items) PrefetchRest(item, kFetchedBytes);
}

}  // namespace

size_t ShmFastPath::Answer(const ReadSource& source, rdma::Bytes region, PartitionMaps& maps,
                           absl::Span<BatchedGet> gets, absl::Time deadline,
                           GetBatches::Owner& owner) {
  assert(gets.size() <= kGetsMax);
  if (!buffer_.valid()) buffer_ = buffers_.Take(kGetsMax * kReadBytesMax);
  if (!buffer_.valid()) return gets.size();
  const size_t reads = Look(source, region, maps, gets);
  if (reads == 0) return gets.size();
  ReadLease& lease = context_.lease;
  const absl::Time begun = lease.in_cluster() ? lease.Begun() : absl::InfinitePast();
  if (!mapped_->ReadNow(source.connection, {chain_.data(), reads}).ok()) return gets.size();
  lease.Arrived();
  size_t left = 0;
  size_t answered = 0;
  const std::byte* landed = buffer_.data();
  for (size_t i = 0; i < gets.size(); ++i) {
    const index::MappedProbe& mapped_probe = members_[i].mapped_probe;
    if (mapped_probe.seen() && lease.Covers(begun) && Judge(members_[i], landed, gets[i])) {
      answered_[answered++] = gets[i];
    } else {
      gets[left++] = gets[i];
    }
    landed += mapped_probe.read().length;
  }
  Counters& counters = context_.counters;
  counters.reads += reads;
  counters.read_bytes += static_cast<uint64_t>(landed - buffer_.data());
  counters.gets += answered;
  const bool late = owner.IsLate(deadline);
  if (!late) counters.hits += answered;
  for (const BatchedGet& get : absl::MakeConstSpan(answered_).first(answered)) {
    if (late) *get.answer = DeadlineError();
    if (get.begun_at != absl::InfinitePast()) owner.Timed(get.begun_at);
  }
  return left;
}

// Appends the READ of each GET to chain_, one behind the other in the buffer. Returns their number.
size_t ShmFastPath::Look(const ReadSource& source, rdma::Bytes region, PartitionMaps& maps,
                         absl::Span<const BatchedGet> gets) {
  const bool fetches = gets.size() > 1;  // prefetching does not help a single GET
  std::array<const std::byte*, kGetsMax> windows;
  for (size_t i = 0; i < gets.size(); ++i) {
    Member& member = members_[i];
    member.hash = index::HashKey(gets[i].key, maps.hash_seed());
    member.partition = &maps.Of(member.hash);
    member.window = member.partition->map.WindowOf(member.hash);
    windows[i] = region.data() + member.partition->offset + member.window.offset;
    if (fetches) __builtin_prefetch(windows[i]);
  }
  for (size_t i = 0; fetches && i < gets.size(); ++i) PrefetchRest(windows[i], index::kWindowBytes);
  size_t reads = 0;
  std::array<const std::byte*, kGetsMax> items;
  size_t item_count = 0;
  std::byte* lands_at = buffer_.data();
  for (size_t i = 0; i < gets.size(); ++i) {
    Member& member = members_[i];
    assert(windows[i] + index::kWindowBytes <= region.data() + region.size());
    if (!member.mapped_probe.Look(windows[i], member.partition->map, member.window, member.hash,
                                  gets[i].key, kReadBytesMax))
      continue;
    const index::ReadSpan& span = member.mapped_probe.read();
    const uint64_t offset = member.partition->offset + span.offset;
    if (member.mapped_probe.is_item()) items[item_count++] = region.data() + offset;
    rdma::ReadRequest& read = chain_[reads++];
    read.remote_address = source.region.address + offset;
    read.remote_key = source.region.key;
    read.segments[0] = {lands_at, span.length, &buffer_.memory()};
    lands_at += span.length;
  }
  if (fetches) Fetch({items.data(), item_count});
  return reads;
}

bool ShmFastPath::Judge(const Member& member, const std::byte* landed, const BatchedGet& get) {
  const index::ByteSpan bytes(landed, member.mapped_probe.read().length);
  const index::MappedProbe::Found found =
      member.mapped_probe.Judge(bytes, member.partition->map.incarnation(), get.key);
  if (!found.hit) return false;
  if (context_.sampler.Hit()) {
    index::AccessHint access = member.mapped_probe.access(member.hash);
    access.partition = member.partition->number;
    context_.sampler.Note(access.Pack());
  }
  get.answer->emplace(
      Value{std::string(reinterpret_cast<const char*>(found.value.data()), found.value.size()),
            found.cas_version, absl::InfiniteDuration()});
  return true;
}

}  // namespace osprey::client
