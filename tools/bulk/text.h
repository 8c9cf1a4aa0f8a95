// What jsonl and csv have in common (format.h). Thread rule: any.

#ifndef OSPREY_TOOLS_BULK_TEXT_H_
#define OSPREY_TOOLS_BULK_TEXT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tools/bulk/format.h"

namespace osprey {

inline constexpr char kBase64[] = "base64";

// Whether bytes can stand there as they are, and on a terminal; tabs and line ends may.
bool IsBulkText(absl::string_view bytes);
// OUT_OF_RANGE.
absl::Status CheckBulkText(const BulkRecord& record);
// Seconds with three decimals, at least 0.001.
std::string BulkTtl(absl::Duration ttl);
// What a field says. `encoding`: "", "utf-8" or "base64". "" if it was right; else what is wrong.
std::string DecodeBulk(absl::string_view name, absl::string_view encoding, std::string field,
                       std::string& bytes);
// "" if it was right; else what is wrong.
std::string DecodeBulkTtl(absl::Duration told, absl::Duration& ttl);

std::unique_ptr<BulkWriter> NewCsvWriter();
std::unique_ptr<BulkReader> NewCsvReader(BulkInput& input);
std::unique_ptr<BulkWriter> NewJsonlWriter();
std::unique_ptr<BulkReader> NewJsonlReader(BulkInput& input);
std::unique_ptr<BulkWriter> NewBinaryWriter(uint64_t records);
std::unique_ptr<BulkReader> NewBinaryReader(BulkInput& input);

}  // namespace osprey

#endif  // OSPREY_TOOLS_BULK_TEXT_H_
