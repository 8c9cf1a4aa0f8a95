#include "server/cluster/right/server_record.h"

#include <limits>

#include "nlohmann/json.hpp"
#include "server/cluster/etcd/json_text.h"
#include "server/cluster/etcd/record_reader.h"

namespace osprey {

std::string EncodeServerRecord(const ServerRecord& record) {
  const nlohmann::json json = {
      {"incarnation", RecordId(record.incarnation)},
      {"addresses", record.addresses},
      {"counter", record.counter},
  };
  return JsonText(json);
}

absl::StatusOr<ServerRecord> DecodeServerRecord(absl::string_view text) {
  RecordReader reader("a server's record", text, kServerRecordBytesMax);
  const nlohmann::json& json = reader.json();
  ServerRecord record;
  record.incarnation = reader.Id(json, "incarnation");
  record.counter = reader.Number(json, "counter", 0, std::numeric_limits<uint64_t>::max());
  for (const nlohmann::json& address : reader.List(json, "addresses", kServerAddressesMax)) {
    if (!address.is_string()) {
      reader.Fail("has an address that is no string");
      break;
    }
    record.addresses.push_back(address.get<std::string>());
  }
  if (!reader.ok()) return reader.status();
  return record;
}

}  // namespace osprey
