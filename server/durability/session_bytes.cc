#include "server/durability/session_bytes.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace osprey::server {
namespace {

std::string CheckResult(const SessionResult& bytes, const SessionImage& image) {
  if (bytes.sequence == 0 ||
      (!image.results.empty() && image.results.back().first >= bytes.sequence)) {
    return "a session's results do not ascend";
  }
  if (bytes.status > kStatusCodeMax) return absl::StrCat("a result has the status ", bytes.status);
  if (bytes.reason > kWireReasonMax) return absl::StrCat("a result has the reason ", bytes.reason);
  if (bytes.has_number > 1) return "a result has unknown flags";
  return "";
}

}  // namespace

std::string EncodeSession(const SessionImage& image) {
  SessionHeader header;
  header.id = image.id;
  header.count = static_cast<uint32_t>(image.results.size());
  std::string text(wal::TextOf(wal::BytesOf(header)));
  for (const auto& [sequence, result] : image.results) {
    SessionResult bytes;
    bytes.sequence = sequence;
    bytes.status = static_cast<uint32_t>(result.code);
    bytes.reason = static_cast<uint16_t>(WireNumberOf(result.reason));
    bytes.has_number = result.has_number ? 1 : 0;
    bytes.version = result.version;
    bytes.slot = result.slot;
    bytes.value_length = result.value_length;
    bytes.number = result.number;
    bytes.expiry = result.expiry;
    absl::StrAppend(&text, wal::TextOf(wal::BytesOf(bytes)));
  }
  return text;
}

std::string DecodeSession(wal::Bytes bytes, SessionImage& image) {
  SessionHeader header;
  if (bytes.size() < sizeof(header)) return "a session is cut off";
  std::memcpy(&header, bytes.data(), sizeof(header));
  bytes.remove_prefix(sizeof(header));
  if (header.id == 0) return "a session has no id";
  if (header.reserved != 0) return "reserved bytes are not zero";
  if (header.count > kResultsKept || bytes.size() != header.count * sizeof(SessionResult)) {
    return absl::StrCat("a session of ", header.count, " results has ", bytes.size(),
                        " bytes of them");
  }
  image = {header.id, {}};
  for (; !bytes.empty(); bytes.remove_prefix(sizeof(SessionResult))) {
    SessionResult from;
    std::memcpy(&from, bytes.data(), sizeof(from));
    std::string wrong = CheckResult(from, image);
    if (!wrong.empty()) return wrong;
    Result to;
    to.code = static_cast<absl::StatusCode>(from.status);
    to.reason = ReasonOfWire(from.reason);
    to.has_number = from.has_number != 0;
    to.version = from.version;
    to.slot = from.slot;
    to.value_length = from.value_length;
    to.number = from.number;
    to.expiry = from.expiry;
    image.results.emplace_back(from.sequence, to);
  }
  return "";
}

void RememberResult(SessionImage& image, uint64_t sequence, const Result& result) {
  assert(sequence != 0);
  auto& results = image.results;
  auto at = results.end();
  // Results come in almost ascending order.
  while (at != results.begin() && std::prev(at)->first >= sequence) --at;
  if (at != results.end() && at->first == sequence) {
    at->second = result;
    return;
  }
  results.emplace(at, sequence, result);
  // Each costs a move of all others, so many go together.
  if (results.size() >= 2 * kResultsKept) ForgetResults(image);
}

void ForgetResults(SessionImage& image) {
  auto& results = image.results;
  const auto is_kept = [highest = results.empty() ? 0 : results.back().first](const auto& one) {
    return highest < kResultsKept || one.first > highest - kResultsKept;
  };
  results.erase(results.begin(), std::find_if(results.begin(), results.end(), is_kept));
}

}  // namespace osprey::server
