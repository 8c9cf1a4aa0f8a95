#include "server/cluster/right/server_record.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/cluster/etcd/json_text.h"

namespace osprey {
namespace {

using Json = nlohmann::json;

constexpr size_t kIncarnationDigits = 16;

absl::Status Malformed(absl::string_view why) {
  return absl::DataLossError(absl::StrCat("a server's record in etcd is malformed: ", why));
}

}  // namespace

std::string EncodeServerRecord(const ServerRecord& record) {
  const Json json = {
      {"incarnation", absl::StrCat(absl::Hex(record.incarnation, absl::kZeroPad16))},
      {"addresses", record.addresses},
      {"counter", record.counter},
  };
  return JsonText(json);
}

absl::StatusOr<ServerRecord> DecodeServerRecord(absl::string_view text) {
  if (text.size() > kServerRecordBytesMax) return Malformed("it is too long");
  const Json json = ParseJsonObject(text);
  if (!json.is_object()) return Malformed("it is no JSON object");
  ServerRecord record;
  const auto incarnation = json.find("incarnation");
  if (incarnation == json.end() || !incarnation->is_string())
    return Malformed("it has no incarnation");
  const std::string& digits = incarnation->get_ref<const std::string&>();
  if (digits.size() != kIncarnationDigits ||
      !std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit) ||
      !absl::SimpleHexAtoi(digits, &record.incarnation) || record.incarnation == 0)
    return Malformed("its incarnation is not 16 hexadecimal digits");
  const auto counter = json.find("counter");
  if (counter == json.end() || !counter->is_number_unsigned())
    return Malformed("it has no counter");
  record.counter = counter->get<uint64_t>();
  const auto addresses = json.find("addresses");
  if (addresses == json.end() || !addresses->is_array() || addresses->size() > kServerAddressesMax)
    return Malformed("it has no list of addresses, or too many");
  for (const Json& address : *addresses) {
    if (!address.is_string()) return Malformed("one of its addresses is no string");
    record.addresses.push_back(address.get<std::string>());
  }
  return record;
}

}  // namespace osprey
