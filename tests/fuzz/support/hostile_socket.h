// A folder with the socket of a hostile server, and the files that such a server sends.

#ifndef OSPREY_TESTS_FUZZ_SUPPORT_HOSTILE_SOCKET_H_
#define OSPREY_TESTS_FUZZ_SUPPORT_HOSTILE_SOCKET_H_

#include <cstddef>
#include <string>

#include "rdma/unique_fd.h"

namespace osprey::fuzz {

// Of this process.
size_t OpenDescriptors();

// A new folder in TMPDIR. Ends the process if there is none.
std::string NewFolder();
// Removes the folder and the files in it.
void RemoveFolder(const std::string& folder);

// A listening socket at `path`. Ends the process if there is none.
rdma::UniqueFd ListenAt(const std::string& path);

// The page of a server that lives, with incarnation 7.
rdma::UniqueFd NewIncarnationPage();

}  // namespace osprey::fuzz

#endif  // OSPREY_TESTS_FUZZ_SUPPORT_HOSTILE_SOCKET_H_
