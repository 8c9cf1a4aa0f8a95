// kvcli's connection. The first command that needs it makes it, and the Client makes it again after
// a loss. This class prints notices of both.
//
// Thread rule: one thread.

#ifndef OSPREY_TOOLS_CLI_CONNECTION_H_
#define OSPREY_TOOLS_CLI_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "tools/terminal/output.h"

namespace osprey {

class KvcliConnection {
 public:
  KvcliConnection(std::string server, Options options)
      : server_(std::move(server)), options_(std::move(options)) {}

  const std::string& server() const { return server_; }
  // Null before the first successful Connect.
  Client* client() const { return client_.get(); }
  bool is_connected() const { return client_ != nullptr && client_->connected(); }

  // Connects unless it has succeeded before. Errors: Client::Connect's.
  absl::StatusOr<Client*> Connect();

  // Before a command: examines the connection, and prints a notice if it is lost.
  void TellBefore(Output& out);
  // After a command: prints a notice if it was made again, and if the server is another one.
  void TellAfter(Output& out);

 private:
  const std::string server_;
  const Options options_;
  std::unique_ptr<Client> client_;
  uint64_t connects_ = 0;  // connections that the user was notified of
  uint64_t dataset_ = 0;
};

}  // namespace osprey

#endif  // OSPREY_TOOLS_CLI_CONNECTION_H_
