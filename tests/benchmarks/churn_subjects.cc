#include "tests/benchmarks/churn_subjects.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "index/space/item_space.h"
#include "index/writer/table.h"
#include "jemalloc/jemalloc.h"

namespace osprey::index {
namespace {

constexpr uint64_t kUnitsOffset = 8192;

// Address space whose pages are committed when written.
class Mapping {
 public:
  explicit Mapping(uint64_t bytes) : bytes_(bytes) {
    void* const data = mmap(nullptr, bytes + kAlign, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) std::abort();
    data_ = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(data) + kAlign - 1) / kAlign *
                                         kAlign);
  }
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  static constexpr uint64_t kAlign = 2 << 20;
  uint64_t bytes_;
  std::byte* data_;
};

// --- ItemSpace alone ---------------------------------------------------------

class ItemsSubject : public ChurnSubject {
 public:
  explicit ItemsSubject(uint64_t region_bytes)
      : space_(kUnitsOffset, region_bytes), items_(space_, absl::ZeroDuration()) {}

  bool Write(uint64_t id, uint64_t bytes) override {
    const absl::optional<uint64_t> offset = items_.Allocate(bytes, absl::UnixEpoch());
    if (!offset.has_value()) return false;
    auto [at, is_new] = offsets_.try_emplace(id, *offset);
    if (!is_new) items_.Release(std::exchange(at->second, *offset));
    return true;
  }
  void Erase(uint64_t id) override {
    const auto at = offsets_.find(id);
    items_.Release(at->second);
    offsets_.erase(at);
  }
  uint64_t capacity_bytes() const override { return space_.end() - kUnitsOffset; }
  std::string Describe() const override {
    const ItemSpace::Stats stats = items_.stats();
    return absl::StrFormat("used_share=%.3f free_pages_share=%.3f free_runs=%d slabs=%d",
                           static_cast<double>(stats.used_bytes) / capacity_bytes(),
                           static_cast<double>(stats.free_page_bytes) / capacity_bytes(),
                           stats.free_runs, stats.slabs);
  }

 private:
  RegionSpace space_;
  ItemSpace items_;
  absl::flat_hash_map<uint64_t, uint64_t> offsets_;
};

// --- jemalloc ----------------------------------------------------------------

// Extents come from the mapping, upwards. jemalloc keeps, splits and joins them.
struct Extents {
  extent_hooks_t hooks;  // first: the hooks are called with its address
  std::byte* next;
  std::byte* end;
};

void* AllocateExtent(extent_hooks_t* hooks, void* wanted, size_t size, size_t alignment, bool* zero,
                     bool* commit, unsigned) {
  Extents& extents = *reinterpret_cast<Extents*>(hooks);
  std::byte* const at = reinterpret_cast<std::byte*>(
      (reinterpret_cast<uintptr_t>(extents.next) + alignment - 1) / alignment * alignment);
  if (wanted != nullptr && wanted != at) return nullptr;
  if (at > extents.end || size > static_cast<size_t>(extents.end - at)) return nullptr;
  extents.next = at + size;
  *zero = true;
  *commit = true;
  return at;
}
bool Keep(extent_hooks_t*, void*, size_t, bool, unsigned) { return true; }
bool Split(extent_hooks_t*, void*, size_t, size_t, size_t, bool, unsigned) { return false; }
bool Merge(extent_hooks_t*, void*, size_t, void*, size_t, bool, unsigned) { return false; }

void Control(const std::string& name, void* value, size_t bytes) {
  if (const int error = mallctl(name.c_str(), nullptr, nullptr, value, bytes); error != 0) {
    std::fprintf(stderr, "mallctl %s: %d\n", name.c_str(), error);
    std::abort();
  }
}

// As jemalloc 5.3's arena_config_t, which its header leaves out.
struct ArenaConfig {
  extent_hooks_t* hooks;
  bool metadata_use_hooks;  // false: its metadata is outside the region, as ours is
};

class JemallocSubject : public ChurnSubject {
 public:
  explicit JemallocSubject(uint64_t region_bytes) : mapping_(region_bytes) {
    extents_ = {};
    extents_.hooks.alloc = AllocateExtent;
    extents_.hooks.dalloc = Keep;
    extents_.hooks.split = Split;
    extents_.hooks.merge = Merge;
    extents_.next = mapping_.data();
    extents_.end = mapping_.data() + region_bytes;
    extent_hooks_t* hooks = &extents_.hooks;
    ArenaConfig config = {hooks, false};
    size_t size = sizeof(arena_);
    if (mallctl("experimental.arenas_create_ext", &arena_, &size, &config, sizeof(config)) != 0) {
      std::abort();
    }
    const std::string arena = absl::StrCat("arena.", arena_, ".");
    // Free space is usable for any size at once, and no more is taken at a time than needed.
    ssize_t decay_ms = 0;
    Control(arena + "dirty_decay_ms", &decay_ms, sizeof(decay_ms));
    Control(arena + "muzzy_decay_ms", &decay_ms, sizeof(decay_ms));
    size_t grow = 64 << 10;
    Control(arena + "retain_grow_limit", &grow, sizeof(grow));
  }
  ~JemallocSubject() override {
    for (const auto& [id, item] : items_) dallocx(item, MALLOCX_TCACHE_NONE);
  }

  bool Write(uint64_t id, uint64_t bytes) override {
    void* const item =
        mallocx(bytes, static_cast<int>(MALLOCX_ARENA(arena_)) | MALLOCX_TCACHE_NONE);
    if (item == nullptr) return false;
    assert(item >= mapping_.data() && item < extents_.end);
    auto [at, is_new] = items_.try_emplace(id, item);
    if (!is_new) dallocx(std::exchange(at->second, item), MALLOCX_TCACHE_NONE);
    return true;
  }
  void Erase(uint64_t id) override {
    const auto at = items_.find(id);
    dallocx(at->second, MALLOCX_TCACHE_NONE);
    items_.erase(at);
  }
  uint64_t capacity_bytes() const override { return mapping_.bytes(); }

 private:
  Mapping mapping_;
  Extents extents_;
  unsigned arena_ = 0;
  absl::flat_hash_map<uint64_t, void*> items_;
};

// --- The table ---------------------------------------------------------------

class TableSubject : public ChurnSubject {
 public:
  explicit TableSubject(uint64_t region_bytes) : mapping_(region_bytes), value_(kValueBytesMost) {
    TableOptions options;
    options.incarnation = 1;
    options.reuse_grace = absl::Seconds(1);
    table_ = *Table::Create({mapping_.data(), region_bytes}, options);
  }

  bool Write(uint64_t id, uint64_t bytes) override {
    const std::string key = KeyOf(id);
    const uint64_t value_bytes = bytes - sizeof(ItemHeader) - key.size();
    assert(value_bytes <= value_.size());
    now_ += absl::Microseconds(5);
    const WriteResult result =
        table_->Put(key, ByteSpan(value_).first(value_bytes), Condition{}, now_);
    return result.status.ok();
  }
  void Erase(uint64_t id) override {
    now_ += absl::Microseconds(2);
    const WriteResult result = table_->Delete(KeyOf(id), Condition{}, now_);
    assert(result.status.ok());
    (void)result;
  }
  void Turn() override {
    table_->GrowStep(now_);
    table_->CompactStep(now_);
  }
  uint64_t capacity_bytes() const override {
    const Table::Stats stats = table_->stats();
    // The table closes a sixteenth to items, so that there is space for the index.
    return stats.region_bytes - UnitsOffset(stats.region_bytes) -
           std::max(stats.index_bytes, stats.region_bytes / 16);
  }
  std::string Describe() const override {
    const Table::Stats stats = table_->stats();
    return absl::StrFormat(
        "used_share=%.3f waiting_share=%.3f keys=%d moved_items=%d moved_mib=%d windows=%d "
        "windows_given_up=%d",
        static_cast<double>(stats.item_bytes) / capacity_bytes(),
        static_cast<double>(stats.quarantine_bytes) / capacity_bytes(), stats.keys,
        stats.compaction_items, stats.compaction_bytes >> 20, stats.compaction_windows,
        stats.compaction_windows_given_up);
  }

 private:
  static constexpr uint64_t kValueBytesMost = 64 << 20;
  static std::string KeyOf(uint64_t id) { return absl::StrFormat("key%09d", id); }

  Mapping mapping_;
  std::vector<std::byte> value_;
  std::unique_ptr<Table> table_;
  absl::Time now_ = absl::UnixEpoch();
};

}  // namespace

std::unique_ptr<ChurnSubject> MakeChurnSubject(absl::string_view name, uint64_t region_bytes) {
  if (name == "items") return std::make_unique<ItemsSubject>(region_bytes);
  if (name == "jemalloc") return std::make_unique<JemallocSubject>(region_bytes);
  if (name == "table") return std::make_unique<TableSubject>(region_bytes);
  return nullptr;
}

}  // namespace osprey::index
