#include "server/durability/entry_effects.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "index/layout/layout.h"
#include "rdma/reasons.h"
#include "server/durability/session_bytes.h"

namespace osprey::server {

absl::string_view WhyImpossible(uint64_t version, uint64_t expiry_ns) {
  if (version == 0 || version > index::kCasVersionMax) return "a key has an impossible version";
  if (expiry_ns > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return "a key has an impossible expiry";
  return "";
}

std::string WhyImpossible(const wal::Entry& entry) {
  if (!entry.key.empty()) {
    const absl::string_view wrong = WhyImpossible(entry.version, entry.expiry);
    if (!wrong.empty()) return std::string(wrong);
  }
  if (entry.client == 0) {
    const bool needs_client =
        entry.kind == wal::EntryKind::kSessionBegin || entry.kind == wal::EntryKind::kSessionEnd;
    return needs_client ? "a session has no client" : "";
  }
  if (entry.result.has_value() && entry.result->status > kStatusCodeMax)
    return absl::StrCat("a result has the status ", entry.result->status);
  if (entry.result.has_value() && entry.result->reason > kWireReasonMax)
    return absl::StrCat("a result has the reason ", entry.result->reason);
  return "";
}

namespace {

Result ResultOf(const wal::Entry& entry) {
  Result result;
  result.code = absl::StatusCode::kOk;
  result.version = entry.version;
  result.expiry = entry.expiry;
  if (!entry.result.has_value()) return result;
  const wal::EntryResult& from = *entry.result;
  result.code = static_cast<absl::StatusCode>(from.status);
  result.reason = ReasonOfWire(from.reason);
  result.version = from.version;
  result.number = from.number;
  result.has_number = entry.has_number;
  result.value_length = from.length;
  result.slot = from.cursor;
  result.expiry = from.expiry;
  return result;
}

}  // namespace

void NoteClient(const wal::Entry& entry, SessionImages& images) {
  if (entry.client == 0) return;
  if (entry.kind == wal::EntryKind::kSessionEnd) {
    images.erase(entry.client);
    return;
  }
  SessionImage& image = images[entry.client];
  image.id = entry.client;
  if (entry.kind == wal::EntryKind::kSessionBegin) {
    image.results.clear();
  } else if (entry.sequence != 0) {
    RememberResult(image, entry.sequence, ResultOf(entry));
  }
}

}  // namespace osprey::server
