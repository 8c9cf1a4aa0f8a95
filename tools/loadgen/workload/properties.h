// Properties in the syntax of Java (java.util.Properties.load), as in YCSB's workload files:
//
//   # comment       ! comment
//   recordcount=1000000
//   readproportion : 0.5
//   fieldlength 100
//   name = goes on \       (nothing behind the backslash)
//          here
//
// Escapes: \t \n \r \f \\ \uXXXX (which becomes UTF-8); a backslash before any other character is
// dropped. Later properties replace earlier ones of the same name.
//
// Thread rule: none; plain functions and values.

#ifndef OSPREY_TOOLS_LOADGEN_WORKLOAD_PROPERTIES_H_
#define OSPREY_TOOLS_LOADGEN_WORKLOAD_PROPERTIES_H_

#include <cstddef>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace osprey::loadgen {

// Sorted by name. std::less<>: looked up by string_view.
using Properties = std::map<std::string, std::string, std::less<>>;

constexpr size_t kPropertiesBytesMax = 1 << 20;

// Adds the properties of `text`. Errors: INVALID_ARGUMENT, with the number of the line: an invalid
// escape, a byte 0, no name; or `text` above kPropertiesBytesMax.
absl::Status ParseProperties(absl::string_view text, Properties& properties);

// Adds the properties of a file. Errors: as ParseProperties, with the path; INVALID_ARGUMENT: it
// cannot be read.
absl::Status ReadPropertiesFile(const std::string& path, Properties& properties);

// Adds "name=value", the form of -p. Errors: INVALID_ARGUMENT.
absl::Status ParseAssignment(absl::string_view text, Properties& properties);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_WORKLOAD_PROPERTIES_H_
