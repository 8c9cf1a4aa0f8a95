// What the figures of a run depend on besides the run.
//
// Thread rule: before other threads start (one of the facts comes from a child process).

#ifndef OSPREY_TOOLS_LOADGEN_ENVIRONMENT_H_
#define OSPREY_TOOLS_LOADGEN_ENVIRONMENT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "tools/loadgen/result.h"

namespace osprey::loadgen {

// host, cpu, cpus, kernel, compiler, build_id (of this program, if the linker gave it one) and
// source_tree: what git says of the tree that the working directory lies in, if that is Osprey's.
// The program may be older than its tree: build_id is what tells two programs apart.
Facts DescribeMachine();

// "a=1 b=2" as facts; words without = are left out.
Facts FactsOf(absl::string_view words);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_ENVIRONMENT_H_
