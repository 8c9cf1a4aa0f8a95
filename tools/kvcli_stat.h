// A line of `kvcli stat`: what a server did between two looks at its statistics.
//
// Thread rule: any.

#ifndef OSPREY_TOOLS_KVCLI_STAT_H_
#define OSPREY_TOOLS_KVCLI_STAT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace osprey {

struct StatColumn {
  const char* name;  // of the header, and in JSON
  int width;         // of the column, in characters
  // What it is made of: the sum of these statistics …
  std::vector<const char*> sources;
  enum class Kind {
    kNow,       // … as it is now
    kBytes,     // … as a size
    kRate,      // … how much more a second
    kReported,  // … as kRate, of what the server knows only from its clients
    kCpu,       // … in microseconds, as percent of one core
  } kind;
};
const std::vector<StatColumn>& StatColumns();

// The value of each column. `before` and `now` are Client::ServerStats. What a server does not tell
// is 0, and NaN if it is kReported; of a server that was started again in between, rates are
// counted from 0.
std::vector<double> StatRow(absl::string_view before, absl::string_view now);

std::string StatHeader();
std::string StatLine(const std::vector<double>& row);

}  // namespace osprey

#endif  // OSPREY_TOOLS_KVCLI_STAT_H_
