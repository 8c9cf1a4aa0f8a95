// An HTTP server that misbehaves as a test says: it takes requests, and answers with any bytes.

#ifndef OSPREY_TESTS_SERVER_CLUSTER_ETCD_SCRIPTED_HTTP_H_
#define OSPREY_TESTS_SERVER_CLUSTER_ETCD_SCRIPTED_HTTP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"

namespace osprey {

// Listens on 127.0.0.1, and serves one connection after the other. Thread rule: any thread may call
// its functions; the script runs on a thread of its own.
class ScriptedHttp {
 public:
  // What one request gets. False: the connection is closed after that.
  using Script = std::function<bool(ScriptedHttp& server, int connection, int number)>;

  explicit ScriptedHttp(Script script);
  ~ScriptedHttp();
  ScriptedHttp(const ScriptedHttp&) = delete;
  ScriptedHttp& operator=(const ScriptedHttp&) = delete;

  uint16_t port() const { return port_; }
  // All requests so far, head and body each.
  std::vector<std::string> Requests() const;

  // For scripts. Send returns false once the peer has closed, or this server ends.
  bool Send(int connection, absl::string_view bytes) const;
  // Returns when the peer has closed, or this server ends.
  void WaitForEnd(int connection) const;

  // Scripts: the same answer for each request; no answer until the peer closes; closed at once.
  static Script Always(const std::string& bytes);
  static Script Silence();
  static Script Hangup();

 private:
  void Serve();
  void ServeConnection(int connection);

  const Script script_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> ends_ = false;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

// An answer of HTTP with that status and body, and "Connection: keep-alive".
std::string HttpAnswerOf(int status, absl::string_view body);

}  // namespace osprey

#endif  // OSPREY_TESTS_SERVER_CLUSTER_ETCD_SCRIPTED_HTTP_H_
