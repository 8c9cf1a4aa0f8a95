#include "tools/cli/key_iterator.h"

#include <algorithm>
#include <utility>

#include "tools/terminal/interrupt.h"

namespace osprey {
namespace {

// The keys of one page. With values, a page has 16 MiB at most.
constexpr uint64_t kPageKeys = 1000;
constexpr uint64_t kPageKeysWithValues = (16 << 20) / KeyIterator::kTogetherBytesMax;

// Fetches the value that the page left out. False: the key was deleted meanwhile.
absl::StatusOr<bool> Complete(Client& client, ScanItem& item) {
  absl::StatusOr<Value> value = client.Get(item.key);
  if (absl::IsNotFound(value.status())) return false;
  if (!value.ok()) return value.status();
  item.value = std::move(value->bytes);
  item.value_length = item.value.size();
  item.has_value = true;
  item.version = value->version;
  item.ttl = value->ttl;
  return true;
}

}  // namespace

absl::Status IterateKeys(Client& client, KeyIterator& iterator,
                         absl::FunctionRef<absl::Status(const ScanItem& item)> each,
                         absl::FunctionRef<bool()> after_page) {
  uint64_t left = iterator.limit;
  do {
    ScanOptions options;
    options.prefix = iterator.prefix;
    options.values = iterator.values;
    options.value_bytes_max = KeyIterator::kTogetherBytesMax;
    options.limit = std::min(iterator.values ? kPageKeysWithValues : kPageKeys, left);
    absl::StatusOr<ScanPage> page = client.Scan(iterator.cursor, options);
    if (!page.ok()) return page.status();
    for (ScanItem& item : page->items) {
      if (iterator.values && !item.has_value) {
        const absl::StatusOr<bool> there = Complete(client, item);
        if (!there.ok()) return there.status();
        if (!*there) continue;
      }
      if (absl::Status status = each(item); !status.ok()) return status;
      left -= std::min<uint64_t>(left, 1);
    }
    iterator.cursor = std::move(page->cursor);
  } while (after_page() && !iterator.cursor.empty() && left > 0 && !Interrupted());
  return absl::OkStatus();
}

}  // namespace osprey
