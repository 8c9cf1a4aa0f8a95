// POSTs to etcd's JSON gateway, by libcurl. Each is sent at most once, and the reply says whether it
// was sent.
//
// libcurl repeats a request by itself, a POST too, when a connection that it uses again ends before
// the first byte of the answer. A transaction could then take effect twice, or be reported as
// refused because of its own first effect. So the call that libcurl makes before each sending
// (CURLOPT_PREREQFUNCTION) refuses a second one.
//
// Redirects and proxies are off, those of the environment too: a request goes to the host that the
// user named, or to none.

#ifndef OSPREY_SERVER_CLUSTER_ETCD_ETCD_HTTP_H_
#define OSPREY_SERVER_CLUSTER_ETCD_ETCD_HTTP_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace osprey {

// A longer answer is an error. A range of 1024 keys with 2 KiB each has 3 MiB.
inline constexpr size_t kEtcdAnswerBytesMax = 4 << 20;

// Files in PEM.
struct TlsFiles {
  std::string ca;           // of the authority that signed etcd's; empty: the system's authorities
  std::string certificate;  // ours; empty: none
  std::string key;          // of that certificate; empty: none
};

struct HttpRequest {
  std::string url;
  std::string body;
  std::string token;                         // for "Authorization"; empty: none
  std::chrono::milliseconds timeout;         // of all
  std::chrono::milliseconds timeout_unsent;  // until it is sent
};

struct HttpReply {
  bool sent = false;    // false: etcd cannot have seen any of the request
  absl::Status status;  // OK: a whole answer, which may be an error of HTTP
  long http_status = 0;
  std::string body;
};

// Keeps the connections that it made. Thread rule: one thread at a time; objects are independent.
class EtcdHttp {
 public:
  // Errors: INTERNAL: libcurl cannot be initialized.
  static absl::StatusOr<std::unique_ptr<EtcdHttp>> Create(const TlsFiles& files);
  ~EtcdHttp();
  EtcdHttp(const EtcdHttp&) = delete;
  EtcdHttp& operator=(const EtcdHttp&) = delete;

  // Blocks. Errors of the reply: UNAVAILABLE, DEADLINE_EXCEEDED, DATA_LOSS (the answer is too
  // long). They do not name the host.
  HttpReply Post(const HttpRequest& request);

 private:
  explicit EtcdHttp(void* curl) : curl_(curl) {}

  void* const curl_;  // CURL*
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_ETCD_ETCD_HTTP_H_
