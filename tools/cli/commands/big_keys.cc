// `kvcli bigkeys`: the longest values and keys, and the amount of each form of storage. By READs
// alone.

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/cli/commands/run.h"
#include "tools/cli/key_iterator.h"
#include "tools/terminal/units.h"

namespace osprey {
namespace {

constexpr uint64_t kTopDefault = 10;
// Longer values are READ in pieces.
constexpr uint64_t kPieceBytes = 256 << 10;

struct Sizes {
  std::string key;
  uint64_t key_bytes = 0;
  uint64_t value_bytes = 0;
};

// The top entries, up to a limit. Equal sizes are ordered by key, so that the answer is always the
// same.
class Top {
  bool IsMore(const Sizes& a, const Sizes& b) const {
    return a.*by_ != b.*by_ ? a.*by_ > b.*by_ : a.key < b.key;
  }
  auto More() const {
    return [this](const Sizes& a, const Sizes& b) { return IsMore(a, b); };
  }

 public:
  Top(uint64_t count, uint64_t Sizes::*by) : count_(count), by_(by) {}

  void Add(const Sizes& sizes) {
    if (found_.size() == count_ && !IsMore(sizes, found_.front())) return;
    // A scan may find a key twice.
    const auto same = [&](const Sizes& other) { return other.key == sizes.key; };
    if (std::any_of(found_.begin(), found_.end(), same)) return;
    if (found_.size() == count_) {
      std::pop_heap(found_.begin(), found_.end(), More());
      found_.pop_back();
    }
    found_.push_back(sizes);
    std::push_heap(found_.begin(), found_.end(), More());
  }
  std::vector<Sizes> Sorted() const {
    std::vector<Sizes> sorted = found_;
    std::sort(sorted.begin(), sorted.end(), More());
    return sorted;
  }

 private:
  uint64_t count_;
  uint64_t Sizes::*by_;
  std::vector<Sizes> found_;  // a heap with the least entry first
};

struct Storage {
  const char* id;
  const char* name;
  uint64_t keys = 0;
  uint64_t key_bytes = 0;
  uint64_t value_bytes = 0;
  uint64_t longest = 0;
};

void PrintTop(CommandContext& context, absl::string_view title, const char* kind,
              const std::vector<Sizes>& top) {
  if (context.out->form() == Output::Form::kPeople) context.out->Result(title, "", Json());
  for (const Sizes& sizes : top) {
    Json json;
    json["longest"] = kind;
    SetBytes(json, "key", sizes.key);
    json["key_bytes"] = sizes.key_bytes;
    json["value_bytes"] = sizes.value_bytes;
    const std::string lengths = absl::StrFormat("%12d %6d", sizes.value_bytes, sizes.key_bytes);
    context.out->Result(absl::StrCat("  ", lengths, "  ", Quoted("", sizes.key).substr(1)),
                        absl::StrCat(kind, "\t", sizes.value_bytes, "\t", sizes.key_bytes, "\t",
                                     EscapedField(sizes.key)),
                        json);
  }
}

void PrintStorage(CommandContext& context, const Storage& storage) {
  const double mean = storage.keys == 0 ? 0
                                        : static_cast<double>(storage.value_bytes) /
                                              static_cast<double>(storage.keys);
  Json json;
  json["storage"] = storage.id;
  json["keys"] = storage.keys;
  json["key_bytes"] = storage.key_bytes;
  json["value_bytes"] = storage.value_bytes;
  json["longest_value_bytes"] = storage.longest;
  context.out->Result(
      absl::StrFormat("  %-34s %11d keys  values %9s, mean %9s, longest %9s", storage.name,
                      storage.keys, ShortBytes(static_cast<double>(storage.value_bytes)),
                      ShortBytes(mean), ShortBytes(static_cast<double>(storage.longest))),
      absl::StrCat("storage\t", storage.id, "\t", storage.keys, "\t", storage.key_bytes, "\t",
                   storage.value_bytes, "\t", storage.longest),
      json);
}

}  // namespace

ExitStatus RunBigKeys(CommandContext& context, Arguments /*arguments*/) {
  const uint64_t count = context.options.top.value_or(kTopDefault);
  Top values(count, &Sizes::value_bytes);
  Top keys(count, &Sizes::key_bytes);
  std::array<Storage, 3> storages = {{{"inline", "inline, in the index: 1 READ"},
                                      {"item", "items: 2 READs, 1 if known"},
                                      {"pieces", "above 256 KiB: READ in pieces"}}};
  KeyIterator iterator;
  iterator.prefix = context.options.prefix.value_or("");
  const absl::Status walked = IterateKeys(
      *context.client, iterator,
      [&](const ScanItem& item) {
        const Sizes sizes{item.key, item.key.size(), item.value_length};
        values.Add(sizes);
        keys.Add(sizes);
        Storage& storage = storages[item.is_inline ? 0 : item.value_length <= kPieceBytes ? 1 : 2];
        ++storage.keys;
        storage.key_bytes += sizes.key_bytes;
        storage.value_bytes += sizes.value_bytes;
        storage.longest = std::max(storage.longest, sizes.value_bytes);
        return absl::OkStatus();
      },
      [] { return true; });
  if (!walked.ok()) return Fail(context, "bigkeys", walked);
  if (!iterator.cursor.empty()) context.out->Note("interrupted: this is of a part of the keys");
  PrintTop(context, "longest values (bytes of value, of key):", "value", values.Sorted());
  PrintTop(context, "longest keys (bytes of value, of key):", "key", keys.Sorted());
  if (context.out->form() == Output::Form::kPeople) context.out->Result("stored as", "", Json());
  for (const Storage& storage : storages) PrintStorage(context, storage);
  return ExitStatus::kDone;
}

}  // namespace osprey
