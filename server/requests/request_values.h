// What requests that read before they write make of the present value.
//
// Pure functions of a table's view, which is valid until the next call on the table.

#ifndef OSPREY_SERVER_REQUESTS_REQUEST_VALUES_H_
#define OSPREY_SERVER_REQUESTS_REQUEST_VALUES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "index/writer/table.h"
#include "server/requests/keyed_request.h"
#include "server/requests/requests.h"

namespace osprey::server {

// The condition as it was when the value was looked at, so that what is computed from it is written
// over it and nothing else.
index::Condition ConditionOn(const absl::StatusOr<index::Table::View>& present);

// Whether a write with this condition may go on from `present`. Those that read before they write
// ask here; their write itself then needs no other condition.
absl::optional<Answer> RefuseFrom(const absl::StatusOr<index::Table::View>& present,
                                  const index::Condition& condition);

// The number that an INCREMENT makes of the present value, or why it does not.
struct Sum64 {
  absl::optional<Answer> refusal;
  int64_t number = 0;
};
Sum64 SumOf(const absl::StatusOr<index::Table::View>& present, const KeyedRequest& request);

// The value of an APPEND. A copy, since the table moves what it has while it makes room.
std::string Appended(const absl::StatusOr<index::Table::View>& present,
                     const KeyedRequest& request);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_REQUESTS_REQUEST_VALUES_H_
