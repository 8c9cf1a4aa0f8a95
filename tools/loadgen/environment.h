// Properties of the machine and the program that affect a run's results.
//
// Thread rule: none; these functions keep no state.

#ifndef OSPREY_TOOLS_LOADGEN_ENVIRONMENT_H_
#define OSPREY_TOOLS_LOADGEN_ENVIRONMENT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "tools/loadgen/result.h"

namespace osprey::loadgen {

// host, cpu, cpus, kernel, compiler; build_id of this program, if the linker set one, to
// distinguish two programs; commit of the build (server/program/build_commit.h), if known.
Facts DescribeMachine();

// Splits "a=1 b=2" into facts; words without = are left out.
Facts FactsOf(absl::string_view words);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_ENVIRONMENT_H_
