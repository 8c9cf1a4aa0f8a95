#include "client/read/get_trace.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "index/layout/layout.h"

namespace osprey::client {
namespace {

std::string SpanText(const index::ReadSpan& span) {
  return absl::StrFormat("offset=%#x length=%u", span.offset, span.length);
}

std::string LeaseText(const absl::optional<GetTrace::LeaseTimes>& lease) {
  if (!lease.has_value()) return "none needed: the server is in no cluster";
  return absl::StrCat("age=", absl::FormatDuration(lease->since_read),
                      " ends_in=", absl::FormatDuration(lease->left));
}

// What a READ has shown.
std::string FoundText(const index::LookupCounters& before, const index::Lookup::Step& step,
                      const index::Lookup& lookup) {
  const index::LookupCounters& now = lookup.counters();
  const std::string next =
      step.kind == index::Lookup::Kind::kRead ? absl::StrCat("; next: ", lookup.Reading()) : "";
  if (now.torn > before.torn) return absl::StrCat("a checksum is wrong: torn by a write", next);
  if (now.stale_hints > before.stale_hints)
    return absl::StrCat("the key is no longer at the cached location", next);
  if (now.restarts > before.restarts)
    return absl::StrCat("the key's lines have changed meanwhile", next);
  switch (step.kind) {
    case index::Lookup::Kind::kRead:
      return absl::StrCat("checksum is right", next);
    case index::Lookup::Kind::kReadValue:
      return absl::StrCat("the head of an item, unconfirmed; next: its value of ",
                          step.value_length, " bytes, in pieces");
    case index::Lookup::Kind::kHit:
      return absl::StrCat("checksum and key are right",
                          step.expiry_ns != 0 ? ", and it has not expired" : "");
    case index::Lookup::Kind::kMiss:
      return "checksum is right, and the key is not there";
    case index::Lookup::Kind::kAskServer:
      return "READs cannot decide it";
  }
  return "";
}

}  // namespace

void GetTrace::Begins(const KeyPlace& key, absl::optional<LeaseTimes> lease) {
  key_ = key;
  Add("key", absl::StrFormat("hash=%016x partition=%u partition_offset=%#x", key.hash,
                             key.partition, key.partition_offset));
  Add("lease", LeaseText(lease));
  looks_into_cache_ = true;
}

void GetTrace::BeginsByMessage() {
  Add("lease", "none: READs would not count");
  Asks();
}

void GetTrace::Landed(const Read& read, const index::Lookup::Step& step,
                      const index::Lookup& lookup) {
  // The engine may have read its clock earlier.
  const absl::Time posted = std::max(read.posted, begun_ + steps_.back().at);
  if (std::exchange(looks_into_cache_, false)) {
    const uint64_t item = key_.partition_offset + index::Slot::Unpack(read.hint).offset;
    AddAt(posted, "cache",
          read.hint == 0 ? "no location" : absl::StrFormat("item at offset=%#x", item));
  }
  AddAt(posted, "READ", absl::StrCat(SpanText(read.span), ", ", read.of));
  AddAt(read.landed, "landed", absl::StrCat(read.span.length, " bytes"));
  Add("checked", FoundText(read.counters, step, lookup));
}

void GetTrace::Fetched(uint64_t bytes, const index::Lookup::Step& step) {
  const bool is_hit = step.kind == index::Lookup::Kind::kHit;
  Add("checked", absl::StrCat("the value, ", bytes, " bytes: ",
                              is_hit ? "checksum and key are right" : "it is not whole"));
}

void GetTrace::Uncovered() { Add("lease", "it covers none of what was READ"); }

void GetTrace::Pauses(int attempt, bool asks) {
  Add("pause", absl::StrCat("failure ", attempt, " in a row; then ",
                            asks ? "a GET by message" : "the READ once more"));
}

void GetTrace::Asks() { Add("message", "GET by message: the server looks the key up"); }

void GetTrace::Restarts() { Add("connection", "lost; the GET begins again on the next one"); }

void GetTrace::Ends(const absl::StatusOr<Value>& answer, bool by_message) {
  const char* const how = by_message ? ", by message" : "";
  if (!answer.ok())
    return Add(absl::IsNotFound(answer.status()) ? "miss" : "error",
               absl::StrCat(answer.status().message(), how));
  Add("hit", absl::StrCat(answer->bytes.size(), " bytes, version ", answer->version, how));
}

}  // namespace osprey::client
