// Through all keys, by READs alone and with little memory: what scan, count, bigkeys and export
// have in common.
//
// Thread rule: one thread at a time.

#ifndef OSPREY_TOOLS_KVCLI_WALK_H_
#define OSPREY_TOOLS_KVCLI_WALK_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "client/client.h"

namespace osprey {

struct Walk {
  // Values up to this length come many at a time; longer ones one by one.
  static constexpr uint64_t kTogetherBytesMax = 64 << 10;

  std::string prefix;
  bool values = false;
  uint64_t limit = UINT64_MAX;  // so many keys
  std::string cursor;           // where it begins; afterwards where it ended: "": at the end
};

// Calls `each` for every key, and `after_page` behind each page, when walk.cursor is where to go
// on. Ends early when that says false, when it was interrupted (kvcli_interrupt.h), or with an
// error: of `each`, or Client::Scan's; then all up to walk.cursor is done, and a part of what
// follows may be.
absl::Status WalkKeys(Client& client, Walk& walk,
                      absl::FunctionRef<absl::Status(const ScanItem& item)> each,
                      absl::FunctionRef<bool()> after_page);

}  // namespace osprey

#endif  // OSPREY_TOOLS_KVCLI_WALK_H_
