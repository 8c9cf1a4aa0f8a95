#include "index/writer/keys/write_results.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace osprey::index {
namespace {

constexpr char kVersionsUsedUpPayload[] = "osprey/index.VersionsUsedUp";
constexpr char kChainFullPayload[] = "osprey/index.ChainFull";

}  // namespace

WriteResult Outcome(absl::Status status, uint64_t version) {
  WriteResult result;
  result.status = std::move(status);
  result.version = version;
  return result;
}

WriteResult NoSuchKey() { return Outcome(absl::NotFoundError("no such key")); }

WriteResult Full() {
  return Outcome(absl::ResourceExhaustedError("the server's memory is full; nothing was changed"));
}

WriteResult ChainFull() {
  absl::Status status = absl::ResourceExhaustedError(
      "too many keys share this key's line of the index; nothing was changed");
  status.SetPayload(kChainFullPayload, absl::Cord());
  return Outcome(std::move(status));
}

bool IsChainFull(const absl::Status& status) {
  return status.GetPayload(kChainFullPayload).has_value();
}

absl::Status CheckLengths(uint64_t key_length, uint64_t value_length) {
  if (key_length == 0 || key_length > kKeyBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a key has 1 to ", kKeyBytesMax, " bytes, not ", key_length));
  }
  if (value_length > kValueBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a value has at most ", kValueBytesMax, " bytes, not ", value_length));
  }
  return absl::OkStatus();
}

absl::Status CheckVersionsLeft(RegionWriter& writer) {
  return BeginWrite(writer) ? absl::OkStatus() : VersionsUsedUp().status;
}

WriteResult VersionsUsedUp() {
  absl::Status status = absl::ResourceExhaustedError(
      "the server has used up its 2^48 versions; restart it to write again");
  status.SetPayload(kVersionsUsedUpPayload, absl::Cord());
  return Outcome(std::move(status));
}

bool IsVersionsUsedUp(const absl::Status& status) {
  return status.GetPayload(kVersionsUsedUpPayload).has_value();
}

}  // namespace osprey::index
