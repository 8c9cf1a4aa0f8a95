// kvcli's connection: made when a command first needs it, made again by the Client when it breaks,
// and what the user is told of that.
//
// Thread rule: one thread.

#ifndef OSPREY_TOOLS_KVCLI_CONNECTION_H_
#define OSPREY_TOOLS_KVCLI_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "tools/kvcli_output.h"

namespace osprey {

class KvcliConnection {
 public:
  KvcliConnection(std::string server, Options options)
      : server_(std::move(server)), options_(std::move(options)) {}

  const std::string& server() const { return server_; }
  // Null before the first Connect that worked.
  Client* client() const { return client_.get(); }
  bool is_connected() const { return client_ != nullptr && client_->connected(); }

  // Connects if that has not worked yet. Errors: Client::Connect's.
  absl::StatusOr<Client*> Connect();

  // Looks what has become of the connection, before a command: tells if it is gone.
  void TellBefore(Output& out);
  // And behind it: tells if there is another one, and if the server is another.
  void TellAfter(Output& out);

 private:
  const std::string server_;
  const Options options_;
  std::unique_ptr<Client> client_;
  uint64_t connects_ = 0;  // that the user knows of
  uint64_t incarnation_ = 0;
};

}  // namespace osprey

#endif  // OSPREY_TOOLS_KVCLI_CONNECTION_H_
