// JSON text of other programs, and for them: without exceptions, and of bounded depth.
//
// Thread rule: plain functions.

#ifndef OSPREY_SERVER_CLUSTER_ETCD_JSON_TEXT_H_
#define OSPREY_SERVER_CLUSTER_ETCD_JSON_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace osprey {

// The object that `text` is; no object if it is anything else, or has objects and lists more than 8
// deep. (A range in a transaction of etcd has 6.) Without a bound each byte of it could take 70 bytes
// of memory. The parser's own callback could check that, but it takes time by the square.
nlohmann::json ParseJsonObject(absl::string_view text);

// What is not UTF-8 is replaced.
std::string JsonText(const nlohmann::json& json);

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_ETCD_JSON_TEXT_H_
