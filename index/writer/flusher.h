// Flush in steps.
//
// A cursor is a position in the order of the segments (segment_order.h), and a line:
//
//   bit 44 … 13: position    bit 12 … 8: depth    bit 7 … 0: line     all plus 1, so that 0 is the start
//
// All keys before the position are deleted; and of the keys that share with it the low `depth` bits
// of their hashes, those of the homes before the line before. A split divides these keys, and the
// other half is visited from its first line. A merge adds other keys to them, so the walk returns to
// the segment for those. A key keeps its home, which is its line or the line before.

#ifndef OSPREY_INDEX_WRITER_FLUSHER_H_
#define OSPREY_INDEX_WRITER_FLUSHER_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "index/writer/keys.h"

namespace osprey::index {

// Not thread-safe.
class Flusher {
 public:
  struct Result {
    uint64_t cursor = 0;
    uint64_t deleted = 0;
  };
  // Deletes one key.
  using Delete = absl::FunctionRef<absl::Status(absl::string_view key)>;

  // `keys` must outlive this.
  explicit Flusher(Keys& keys) : keys_(keys) {}

  // As Table::FlushStep.
  absl::StatusOr<Result> Step(uint64_t cursor, uint64_t version_bound, uint64_t keys_max,
                              Delete delete_key);
  uint64_t looks() const { return looks_; }  // entries visited since the start

 private:
  bool FlushLine(uint64_t line, uint64_t version_bound, uint64_t keys_max, Delete delete_key,
                 Result& result, absl::Status& status);
  bool FirstUpTo(uint64_t line, uint64_t version_bound, std::string& key);

  Keys& keys_;
  uint64_t looks_ = 0;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_FLUSHER_H_
