#include "server/cluster/etcd/etcd_http.h"

#include <curl/curl.h>

#include <algorithm>
#include <cassert>

#include "absl/strings/str_cat.h"
#include "server/cluster/etcd/etcd_messages.h"

namespace osprey {
namespace {

// What the functions below are called with.
struct Transfer {
  HttpReply reply;
  bool is_too_long = false;
};

// Before each sending of the request, on whatever connection.
int BeforeSending(void* transfer, char*, char*, int, int) {
  HttpReply& reply = static_cast<Transfer*>(transfer)->reply;
  if (reply.sent) return CURL_PREREQFUNC_ABORT;
  reply.sent = true;
  return CURL_PREREQFUNC_OK;
}

// Part of the answer's body.
size_t Receive(char* data, size_t, size_t bytes, void* argument) {
  Transfer& transfer = *static_cast<Transfer*>(argument);
  std::string& body = transfer.reply.body;
  transfer.is_too_long = bytes > kEtcdAnswerBytesMax - body.size();
  if (transfer.is_too_long) return CURL_WRITEFUNC_ERROR;
  body.append(data, bytes);
  return bytes;
}

absl::Status StatusOf(CURLcode code, const Transfer& transfer, const char* detail) {
  if (code == CURLE_OK) return absl::OkStatus();
  if (transfer.is_too_long)
    return absl::DataLossError(absl::StrCat("the answer exceeds ", kEtcdAnswerBytesMax, " bytes"));
  if (code == CURLE_ABORTED_BY_CALLBACK)  // of BeforeSending
    return absl::UnavailableError("no answer: the connection was lost");
  // libcurl's detail of these says how long that took: another error each time, to a log that tells of changes.
  const bool has_time = code == CURLE_OPERATION_TIMEDOUT || code == CURLE_COULDNT_CONNECT;
  const std::string text = Excerpt(*detail == '\0' || has_time ? curl_easy_strerror(code) : detail);
  const absl::string_view how = transfer.reply.sent ? "no answer: " : "cannot connect: ";
  return code == CURLE_OPERATION_TIMEDOUT ? absl::DeadlineExceededError(absl::StrCat(how, text))
                                          : absl::UnavailableError(absl::StrCat(how, text));
}

template <typename T>
void Set(CURL* curl, CURLoption option, T value) {
  const CURLcode code = curl_easy_setopt(curl, option, value);
  assert(code == CURLE_OK);  // fails only if memory is exhausted, or libcurl lacks the option
  (void)code;
}

long Milliseconds(std::chrono::milliseconds time) {
  return std::max<long>(static_cast<long>(time.count()), 1);  // 0 would mean no limit
}

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdHttp>> EtcdHttp::Create(const TlsFiles& files) {
  static const CURLcode kInitialized = curl_global_init(CURL_GLOBAL_DEFAULT);
  CURL* curl = kInitialized == CURLE_OK ? curl_easy_init() : nullptr;
  if (curl == nullptr) return absl::InternalError("libcurl cannot be initialized");
  Set(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  Set(curl, CURLOPT_FOLLOWLOCATION, 0L);
  Set(curl, CURLOPT_NOPROXY, "*");
  Set(curl, CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
  Set(curl, CURLOPT_NOSIGNAL, 1L);    // no handlers of its own; it sends with MSG_NOSIGNAL
  Set(curl, CURLOPT_QUICK_EXIT, 1L);  // a name server that does not answer delays no return
  Set(curl, CURLOPT_TCP_NODELAY, 1L);
  Set(curl, CURLOPT_SSLVERSION, long{CURL_SSLVERSION_TLSv1_2});
  Set(curl, CURLOPT_SSL_VERIFYPEER, 1L);
  Set(curl, CURLOPT_SSL_VERIFYHOST, 2L);
  if (!files.ca.empty()) {
    Set(curl, CURLOPT_CAINFO, files.ca.c_str());
    Set(curl, CURLOPT_CAPATH, static_cast<char*>(nullptr));  // the system's do not count beside it
  }
  if (!files.certificate.empty()) Set(curl, CURLOPT_SSLCERT, files.certificate.c_str());
  if (!files.key.empty()) Set(curl, CURLOPT_SSLKEY, files.key.c_str());
  Set(curl, CURLOPT_KEYPASSWD, "");  // else OpenSSL asks on the terminal if the key is encrypted
  Set(curl, CURLOPT_PREREQFUNCTION, &BeforeSending);
  Set(curl, CURLOPT_WRITEFUNCTION, &Receive);
  return std::unique_ptr<EtcdHttp>(new EtcdHttp(curl));
}

EtcdHttp::~EtcdHttp() { curl_easy_cleanup(curl_); }

HttpReply EtcdHttp::Post(const HttpRequest& request) {
  Transfer transfer;
  char detail[CURL_ERROR_SIZE] = "";
  curl_slist* headers = nullptr;
  const auto add_header = [&headers](const std::string& line) {
    headers = curl_slist_append(headers, line.c_str());
  };
  add_header("Content-Type: application/json");
  add_header("Accept: application/json");  // else etcd 3.4 takes the name in its certificate
  add_header("Expect:");                   // the body goes at once
  // A member without a leader refuses the request at once, unseen (rpctypes.MetadataRequireLeaderKey).
  add_header("Grpc-Metadata-hasleader: true");
  if (!request.token.empty()) add_header(absl::StrCat("Authorization: ", request.token));
  Set(curl_, CURLOPT_URL, request.url.c_str());
  Set(curl_, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  Set(curl_, CURLOPT_POSTFIELDS, request.body.data());
  Set(curl_, CURLOPT_HTTPHEADER, headers);
  Set(curl_, CURLOPT_TIMEOUT_MS, Milliseconds(request.timeout));
  Set(curl_, CURLOPT_CONNECTTIMEOUT_MS, Milliseconds(request.timeout_unsent));
  Set(curl_, CURLOPT_ERRORBUFFER, static_cast<char*>(detail));
  Set(curl_, CURLOPT_PREREQDATA, &transfer);
  Set(curl_, CURLOPT_WRITEDATA, &transfer);
  const CURLcode code = curl_easy_perform(curl_);
  transfer.reply.status = StatusOf(code, transfer, detail);
  curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &transfer.reply.http_status);
  Set(curl_, CURLOPT_ERRORBUFFER, static_cast<char*>(nullptr));
  Set(curl_, CURLOPT_HTTPHEADER, static_cast<curl_slist*>(nullptr));
  curl_slist_free_all(headers);
  return transfer.reply;
}

}  // namespace osprey
