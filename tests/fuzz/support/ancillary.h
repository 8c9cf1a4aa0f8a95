// What a hostile peer sends beside the bytes of a packet: descriptors of every kind, in any number and
// in several parts, and other control messages.

#ifndef OSPREY_TESTS_FUZZ_SUPPORT_ANCILLARY_H_
#define OSPREY_TESTS_FUZZ_SUPPORT_ANCILLARY_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "rdma/unique_fd.h"
#include "tests/fuzz/support/input.h"

namespace osprey::fuzz {

// A memfd of `bytes` with `seals`.
rdma::UniqueFd NewMemfd(size_t bytes, int seals);

// Of anything that a process can have open: memory with and without seals, empty and endless; pipes,
// folders, devices, event counters; sockets, also `own`, and ones in which descriptors lie unread.
// None of them is slow to close: that would only slow the fuzzer down. Not valid: none is left.
rdma::UniqueFd AnyDescriptor(Input& input, int own, size_t memory_bytes);

// Sends `bytes` over `socket` with any control messages. What the kernel does not let pass is not
// sent.
void SendAncillary(Input& input, int socket, absl::Span<const std::byte> bytes,
                   size_t memory_bytes);

}  // namespace osprey::fuzz

#endif  // OSPREY_TESTS_FUZZ_SUPPORT_ANCILLARY_H_
