#include "server/cluster/right/server_record.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "nlohmann/json.hpp"
#include "server/cluster/etcd/json_text.h"
#include "server/cluster/etcd/record_reader.h"

namespace osprey {

bool IsZone(absl::string_view text) {
  return text.size() <= kZoneBytesMax && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' ||
                  c == '-';
         });
}

namespace {

std::vector<std::string> ReadAddresses(RecordReader& reader, const char* field) {
  std::vector<std::string> addresses;
  for (const nlohmann::json& address : reader.List(reader.json(), field, kServerAddressesMax)) {
    if (!address.is_string()) {
      reader.Fail("has an address that is no string");
      break;
    }
    addresses.push_back(address.get<std::string>());
  }
  return addresses;
}

}  // namespace

std::string EncodeServerRecord(const ServerRecord& record) {
  const nlohmann::json json = {
      {"incarnation", RecordId(record.incarnation)},
      {"addresses", record.addresses},
      {"counter", record.counter},
      {"slots", record.slots},
      {"zone", record.zone},
      {"clients", record.clients},
      {"copy_rate", record.copy_rate},
      {"value_parts", record.takes_parts ? 1 : 0},
  };
  return JsonText(json);
}

absl::StatusOr<ServerRecord> DecodeServerRecord(absl::string_view text) {
  RecordReader reader("a server's record", text, kServerRecordBytesMax);
  const nlohmann::json& json = reader.json();
  ServerRecord record;
  record.incarnation = reader.Id(json, "incarnation");
  record.counter = reader.Number(json, "counter", 0, std::numeric_limits<uint64_t>::max());
  // Servers of earlier releases do not write these.
  if (json.contains("slots"))
    record.slots = static_cast<uint32_t>(reader.Number(json, "slots", 0, kServerSlotsMax));
  if (json.contains("zone")) record.zone = reader.Text(json, "zone");
  if (!IsZone(record.zone)) reader.Fail("has a zone that is no name");
  record.addresses = ReadAddresses(reader, "addresses");
  if (json.contains("clients")) record.clients = ReadAddresses(reader, "clients");
  if (json.contains("copy_rate")) {
    record.copy_rate = reader.Number(json, "copy_rate", 0, std::numeric_limits<uint64_t>::max());
  }
  if (json.contains("value_parts"))
    record.takes_parts = reader.Number(json, "value_parts", 0, 1) == 1;
  if (!reader.ok()) return reader.status();
  return record;
}

}  // namespace osprey
