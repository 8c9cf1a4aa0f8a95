// What kvcli prints, in one of three forms: for people (on a terminal), plain (piped: the bare
// result, for scripts) and JSON.
//
//   people   words, units, columns; what would upset the terminal is shown escaped
//   plain    a value's bytes and nothing else; a version or an answer on a line; keys and values of
//            several as escaped fields
//   json     one object a command; a scan, one a key and then one that says how far it came. Bytes
//            that are not UTF-8 are in base64; the field NAME_encoding says "utf-8" or "base64"
//
// What is escaped is one rule for all of them (server/program/printable.h). It does not apply to the value
// of a single plain get, nor to `people` and `plain` of Result, whose callers apply it.
//
// Errors go to the second stream as one line whatever the form; in JSON the object on the first
// says them too.
//
// Thread rule: one thread at a time.

#ifndef OSPREY_TOOLS_TERMINAL_OUTPUT_H_
#define OSPREY_TOOLS_TERMINAL_OUTPUT_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "server/program/printable.h"

namespace osprey {

// Ordered: people read it too.
using Json = nlohmann::ordered_json;

// What an operation took.
struct Cost {
  uint64_t reads = 0;     // one-sided READs
  uint64_t messages = 0;  // requests to the server
  absl::Duration time;
};

class Output {
 public:
  enum class Form { kPeople, kPlain, kJson };

  // REQUIRES: the streams outlive it.
  Output(Form form, std::ostream& out, std::ostream& err) : form_(form), out_(out), err_(err) {}

  Form form() const { return form_; }

  // Plain values end with a line end, too: where several commands write one behind the other.
  void set_values_are_lines() { values_are_lines_ = true; }

  // Of what is printed next; told to people behind it, and in its JSON.
  void set_cost(const Cost& cost) { cost_ = cost; }

  // One result. `people` and `plain` are lines without their end.
  void Result(absl::string_view people, absl::string_view plain, const Json& json);
  // Of several keys: lines with their ends, if any. `keys`: of how many there is a result.
  void Results(absl::string_view people, absl::string_view plain, uint64_t keys, const Json& json);
  // Behind the results of a scan, each printed by itself: how many, for people, and `json`.
  void End(uint64_t keys, const Json& json);
  // A stored value. Plain: exactly its bytes. `ttl`: what is left of its time to live, if it has
  // one. The human-readable form adds these, and the READs if their number is known.
  void Value(absl::string_view key, absl::string_view bytes, uint64_t version,
             absl::Duration ttl = absl::InfiniteDuration());
  // A table of names and values. Plain: lines name=value. In JSON, whole numbers are numbers.
  void Table(absl::string_view title, const std::vector<std::pair<std::string, std::string>>& rows);

  // Something worth knowing besides the result: a line on the second stream. Not in JSON, where the
  // result says it.
  void Note(absl::string_view text);

  // A question, whose answer is typed behind it.
  void Ask(absl::string_view question);

  // "kvcli: WHAT: MESSAGE; FIX" on one line. `fix` may be empty.
  void Error(absl::string_view what, const absl::Status& status, absl::string_view fix);
  // As Error, of one result among several: in JSON it is part of that result.
  void PartError(absl::string_view what, const absl::Status& status, absl::string_view fix);

  // False once something could not be written (a full disk).
  bool Flush();

 private:
  void PrintJson(Json json);

  const Form form_;
  std::ostream& out_;
  std::ostream& err_;
  std::optional<Cost> cost_;
  bool values_are_lines_ = false;
};

// Adds `bytes` as the field `name`, and the field that tells their encoding.
void SetBytes(Json& json, const std::string& name, absl::string_view bytes);

// The human-readable form of a stored value: "6 bytes, version 7, expires in 3.000 s"; without the
// expiry if it has none.
std::string ItemText(uint64_t bytes, uint64_t version, absl::Duration ttl);

}  // namespace osprey

#endif  // OSPREY_TOOLS_TERMINAL_OUTPUT_H_
