// A line of `kvcli stat`: the activity of a server between two readings of its statistics.
//
// Thread rule: any.

#ifndef OSPREY_TOOLS_CLI_COMMANDS_STAT_H_
#define OSPREY_TOOLS_CLI_COMMANDS_STAT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace osprey {

struct StatColumn {
  const char* name;  // of the header, and in JSON
  int width;         // of the column, in characters
  // The column's value: the sum of these statistics …
  std::vector<const char*> sources;
  enum class Kind {
    kNow,       // … as it is
    kBytes,     // … as a size
    kRate,      // … as its increase a second
    kReported,  // … as kRate, for statistics that clients report to the server
    kCpu,       // … in microseconds, as percent of one core
  } kind;
};
const std::vector<StatColumn>& StatColumns();

// The value of each column. `before` and `now` are Client::ServerStats. A statistic that the server
// does not have is 0, and NaN if it is kReported. After a restart of the server, rates are counted
// from 0.
std::vector<double> StatRow(absl::string_view before, absl::string_view now);

std::string StatHeader();
std::string StatLine(const std::vector<double>& row);

}  // namespace osprey

#endif  // OSPREY_TOOLS_CLI_COMMANDS_STAT_H_
