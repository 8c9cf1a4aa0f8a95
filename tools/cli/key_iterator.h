// Iterates over all keys, by READs alone and with little memory, for scan, count, bigkeys and
// export.
//
// Thread rule: one thread at a time.

#ifndef OSPREY_TOOLS_CLI_KEY_ITERATOR_H_
#define OSPREY_TOOLS_CLI_KEY_ITERATOR_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "client/client.h"

namespace osprey {

struct KeyIterator {
  // Values up to this length are fetched many at a time; longer ones one by one.
  static constexpr uint64_t kTogetherBytesMax = 64 << 10;

  std::string prefix;
  bool values = false;
  uint64_t limit = UINT64_MAX;  // at most this many keys
  std::string cursor;           // the start; afterwards the end: "" after the last key
};

// Calls `each` for every key, and `after_page` behind each page, with walk.cursor at the next page.
// It ends early if after_page returns false, on an interruption (terminal/interrupt.h), or on an
// error of `each` or Client::Scan. Then all keys up to walk.cursor are done, and possibly some
// behind it.
absl::Status IterateKeys(Client& client, KeyIterator& iterator,
                         absl::FunctionRef<absl::Status(const ScanItem& item)> each,
                         absl::FunctionRef<bool()> after_page);

}  // namespace osprey

#endif  // OSPREY_TOOLS_CLI_KEY_ITERATOR_H_
