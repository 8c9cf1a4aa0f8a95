// Reports the server's state to a service manager (systemd, Type=notify): a datagram to the socket
// of the environment's NOTIFY_SOCKET, as sd_notify(3) describes. It does not use libsystemd, which
// would add compression libraries to the server for one sendto.

#ifndef OSPREY_SERVER_SERVICE_MANAGER_H_
#define OSPREY_SERVER_SERVICE_MANAGER_H_

#include "absl/strings/string_view.h"

namespace osprey::server {

// `state`: lines such as "READY=1" and "STATUS=text for systemctl status". Without a manager it has
// no effect. It never blocks, and ignores failures, because the server works without it.
// Thread-safe.
void TellServiceManager(absl::string_view state);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_SERVICE_MANAGER_H_
