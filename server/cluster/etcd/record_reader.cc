#include "server/cluster/etcd/record_reader.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/cluster/etcd/json_text.h"

namespace osprey {
namespace {

using Json = nlohmann::json;

constexpr size_t kIdDigits = 16;

}  // namespace

RecordReader::RecordReader(absl::string_view what, absl::string_view text, size_t bytes_max)
    : what_(what) {
  if (text.size() > bytes_max) {
    Fail(absl::StrCat("has more than ", bytes_max, " bytes"));
    return;
  }
  json_ = ParseJsonObject(text);
  if (!json_.is_object()) Fail("is no JSON object");
}

absl::Status RecordReader::status() const {
  if (ok()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(what_, " in etcd is malformed: it ", wrong_,
                                          "; find out which program wrote it"));
}

void RecordReader::Fail(absl::string_view why) {
  if (ok()) wrong_ = std::string(why);
}

const Json* RecordReader::Find(const Json& object, const char* name) {
  if (object.is_object()) {
    const auto found = object.find(name);
    if (found != object.end()) return &*found;
  }
  Fail(absl::StrCat("has no ", name));
  return nullptr;
}

uint64_t RecordReader::Number(const Json& object, const char* name, uint64_t min, uint64_t max) {
  const Json* field = Find(object, name);
  if (field == nullptr) return min;
  if (field->is_number_unsigned()) {
    const uint64_t number = field->get<uint64_t>();
    if (min <= number && number <= max) return number;
  }
  Fail(absl::StrCat("has a ", name, " that is no number from ", min, " to ", max));
  return min;
}

uint64_t RecordReader::Id(const Json& object, const char* name) {
  const Json* field = Find(object, name);
  if (field == nullptr) return 0;
  uint64_t id = 0;
  if (field->is_string()) {
    const std::string& digits = field->get_ref<const std::string&>();
    if (digits.size() == kIdDigits &&
        std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit) &&
        absl::SimpleHexAtoi(digits, &id) && id != 0)
      return id;
  }
  Fail(absl::StrCat("has a field, ", name, ", that is not 16 hexadecimal digits, or 0"));
  return 0;
}

std::string RecordReader::Text(const Json& object, const char* name) {
  const Json* field = Find(object, name);
  if (field == nullptr) return "";
  if (field->is_string()) return field->get<std::string>();
  Fail(absl::StrCat("has a field, ", name, ", that is no string"));
  return "";
}

const Json& RecordReader::List(const Json& object, const char* name, size_t max) {
  static const Json kNone = Json::array();
  const Json* field = Find(object, name);
  if (field == nullptr) return kNone;
  if (field->is_array() && field->size() <= max) return *field;
  Fail(absl::StrCat("has a field, ", name, ", that is no list of at most ", max));
  return kNone;
}

std::string RecordId(uint64_t id) { return absl::StrCat(absl::Hex(id, absl::kZeroPad16)); }

}  // namespace osprey
