// What the figures of a run depend on besides the run.
//
// Thread rule: none; nothing here is kept.

#ifndef OSPREY_TOOLS_LOADGEN_ENVIRONMENT_H_
#define OSPREY_TOOLS_LOADGEN_ENVIRONMENT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "tools/loadgen/result.h"

namespace osprey::loadgen {

// host, cpu, cpus, kernel, compiler; build_id, of this program, if the linker gave it one: what
// tells two programs apart; commit: from which it was built (server/build_commit.h), if that is
// known.
Facts DescribeMachine();

// "a=1 b=2" as facts; words without = are left out.
Facts FactsOf(absl::string_view words);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_ENVIRONMENT_H_
