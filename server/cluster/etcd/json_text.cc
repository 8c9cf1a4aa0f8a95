#include "server/cluster/etcd/json_text.h"

namespace osprey {
namespace {

constexpr int kDepthMax = 8;

bool IsDeep(absl::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size() && depth <= kDepthMax; ++i) {
    if (in_string && text[i] == '\\')
      ++i;  // and what it escapes
    else if (text[i] == '"')
      in_string = !in_string;
    else if (!in_string && (text[i] == '{' || text[i] == '['))
      ++depth;
    else if (!in_string && (text[i] == '}' || text[i] == ']'))
      --depth;
  }
  return depth > kDepthMax;
}

}  // namespace

nlohmann::json ParseJsonObject(absl::string_view text) {
  if (IsDeep(text)) return {};
  nlohmann::json json =
      nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return {};
  return json;
}

std::string JsonText(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace osprey
