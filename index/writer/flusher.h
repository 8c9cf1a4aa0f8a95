// Flush in steps. line_walk.h has the cursor.

#ifndef OSPREY_INDEX_WRITER_FLUSHER_H_
#define OSPREY_INDEX_WRITER_FLUSHER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "index/writer/keys/keys.h"

namespace osprey::index {

// Dead items that a step of a flush frees, besides two for each that it deletes.
inline constexpr uint64_t kFreedPerFlushStep = 64;

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

  // A key that a step would delete.
  struct Listed {
    std::string key;
    uint64_t version = 0;
  };
  struct List {
    uint64_t cursor = 0;
    std::vector<Listed> keys;
  };

  // As Table::ListFlush.
  List ListStep(uint64_t cursor, uint64_t version_bound, uint64_t keys_max);
  // As Table::FlushStep.
  absl::StatusOr<Result> Step(uint64_t cursor, uint64_t version_bound, uint64_t keys_max,
                              Delete delete_key);
  uint64_t looks() const { return looks_; }  // entries visited since the start

 private:
  bool FlushLine(uint64_t line, uint64_t version_bound, uint64_t keys_max, Delete delete_key,
                 Result& result, absl::Status& status);
  bool FirstUpTo(uint64_t line, uint64_t version_bound, std::string& key);
  // The key and the version of an entry.
  std::pair<absl::string_view, uint64_t> KeyOf(const LineEntry& entry) const;

  Keys& keys_;
  uint64_t looks_ = 0;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_FLUSHER_H_
