// Starts operations without a copy. Those of Buffers that are not registered copy once. `span` must
// outlive the operation; a zero_copy Buffer must be of `client`.
//
// Thread rule: that of `client`. Without the GIL.

#ifndef OSPREY_CLIENT_PYTHON_BUFFER_OPERATIONS_H_
#define OSPREY_CLIENT_PYTHON_BUFFER_OPERATIONS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/client.h"
#include "client/python/buffers.h"

namespace osprey::python {

absl::Status StartGetInto(Client& client, absl::string_view key, const Span& span,
                          Client::GetIntoCallback done, absl::Duration deadline);
absl::Status StartPutFrom(Client& client, absl::string_view key, const Span& span,
                          const WriteOptions& options, Client::WriteCallback done);

}  // namespace osprey::python

#endif  // OSPREY_CLIENT_PYTHON_BUFFER_OPERATIONS_H_
