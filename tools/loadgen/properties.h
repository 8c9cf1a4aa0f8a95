// Properties as Java writes them (java.util.Properties.load), which is how YCSB's workload files
// are written:
//
//   # comment       ! comment
//   recordcount=1000000
//   readproportion : 0.5
//   fieldlength 100
//   name = goes on \       (nothing behind the backslash)
//          here
//
// Escapes: \t \n \r \f \\ \uXXXX (which becomes UTF-8); a backslash before anything else is
// dropped. Later ones replace earlier ones of the same name.
//
// Thread rule: none; plain functions and values.

#ifndef OSPREY_TOOLS_LOADGEN_PROPERTIES_H_
#define OSPREY_TOOLS_LOADGEN_PROPERTIES_H_

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

// Adds those in `text` to `properties`. Errors: INVALID_ARGUMENT, with the number of the line: an
// escape that is none, a byte 0, no name; or `text` above kPropertiesBytesMax.
absl::Status ParseProperties(absl::string_view text, Properties& properties);

// Adds those in a file. Errors: as ParseProperties, with the path; INVALID_ARGUMENT: it cannot be
// read.
absl::Status ReadPropertiesFile(const std::string& path, Properties& properties);

// Adds "name=value", as -p has it. Errors: INVALID_ARGUMENT.
absl::Status ParseAssignment(absl::string_view text, Properties& properties);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_PROPERTIES_H_
