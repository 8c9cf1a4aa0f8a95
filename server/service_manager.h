// Tells a service manager (systemd, Type=notify) how the server is: a datagram to the socket that
// the environment's NOTIFY_SOCKET names, as sd_notify(3) describes it. Without libsystemd, which
// would bring compression libraries into the server for the sake of one sendto.

#ifndef OSPREY_SERVER_SERVICE_MANAGER_H_
#define OSPREY_SERVER_SERVICE_MANAGER_H_

#include "absl/strings/string_view.h"

namespace osprey::server {

// `state`: lines such as "READY=1" and "STATUS=what is shown by systemctl status". Nothing happens
// where no manager listens; it never blocks, and nobody is told if it fails, since the server
// serves all the same. Thread-safe.
void TellServiceManager(absl::string_view state);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_SERVICE_MANAGER_H_
