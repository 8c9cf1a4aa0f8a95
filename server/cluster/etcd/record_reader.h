// Takes fields out of a record: a JSON object that a key of the store has as its value. Any program
// may have written it, so each field is checked.
//
//   RecordReader reader("a shard's record", text, kShardRecordBytesMax);
//   record.term = reader.Number(reader.json(), "term", 0, kTermMax);
//   if (!reader.ok()) return reader.status();
//
// The first mistake stays. After it the values mean nothing, but are within their bounds. Fields that
// no call names are ignored: a later version may add some.
//
// Thread rule: one thread.

#ifndef OSPREY_SERVER_CLUSTER_ETCD_RECORD_READER_H_
#define OSPREY_SERVER_CLUSTER_ETCD_RECORD_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace osprey {

class RecordReader {
 public:
  // `what` names the record in errors.
  RecordReader(absl::string_view what, absl::string_view text, size_t bytes_max);

  const nlohmann::json& json() const { return json_; }
  bool ok() const { return wrong_.empty(); }
  // DATA_LOSS: the record, what is wrong with it, and what to do.
  absl::Status status() const;

  // `why` continues a sentence about the record: "has no term".
  void Fail(absl::string_view why);

  // At least `min` and at most `max`; `min` after a mistake. REQUIRES: min <= max.
  uint64_t Number(const nlohmann::json& object, const char* name, uint64_t min, uint64_t max);
  // 64 random bits, as 16 hexadecimal digits; not 0 (but 0 after a mistake).
  uint64_t Id(const nlohmann::json& object, const char* name);
  std::string Text(const nlohmann::json& object, const char* name);
  // At most `max` elements; empty after a mistake. Valid as long as the reader.
  const nlohmann::json& List(const nlohmann::json& object, const char* name, size_t max);

 private:
  // nullptr: the object has no such field, which is a mistake.
  const nlohmann::json* Find(const nlohmann::json& object, const char* name);

  const std::string what_;
  std::string wrong_;
  nlohmann::json json_;
};

// As RecordReader::Id reads it.
std::string RecordId(uint64_t id);

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_ETCD_RECORD_READER_H_
