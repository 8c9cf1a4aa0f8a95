#include "server/http_door.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/signals_blocked.h"

namespace osprey::server {
namespace {

// Who is slow, or silent, takes one of these threads for kRequestMs at most; the others wait.
// Prometheus gives a scrape 10 s, in which they see a hundred such peers off.
constexpr char kThreads[] = "16";
constexpr char kWaitingMax[] = "16";
constexpr char kRequestBytesMax[] = "8192";
constexpr char kRequestMs[] = "1000";
constexpr absl::Duration kAcceptsMax = absl::Seconds(10);  // a new thread's first turn
constexpr int kAcceptingThread = 0;                        // init_thread's thread_type

const char* ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Service Unavailable";
  }
}

// Comes and goes, without a wait, whoever listens there.
void KnockAt(const HttpAddress& address) {
  sockaddr_in peer = {};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(address.port);
  if (inet_pton(AF_INET, address.host.c_str(), &peer.sin_addr) != 1) return;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  (void)connect(fd, reinterpret_cast<sockaddr*>(&peer), sizeof(peer));
  close(fd);
}

}  // namespace

// What the library calls.
struct HttpDoorCallbacks {
  static int Request(mg_connection* connection, void* door) {
    const mg_request_info& info = *mg_get_request_info(connection);
    const absl::string_view method = info.request_method;
    HttpPage page;
    if (method == "GET" || method == "HEAD") {
      page = static_cast<const HttpDoor*>(door)->answer_(info.local_uri);
    } else {
      page.status = 405;
      page.body = "this takes GET and HEAD\n";
    }
    std::string text = absl::StrCat(
        "HTTP/1.1 ", page.status, " ", ReasonOf(page.status),
        "\r\nContent-Type: ", page.content_type, "\r\nContent-Length: ", page.body.size(),
        "\r\nConnection: close\r\n", page.status == 405 ? "Allow: GET, HEAD\r\n" : "", "\r\n");
    if (method != "HEAD") absl::StrAppend(&text, page.body);
    // Who asked may be gone.
    (void)mg_write(connection, text.data(), text.size());
    return page.status;
  }

  // By each of its threads, when it begins.
  static void* Begin(const mg_context* context, int thread_type) {
    auto* const door = static_cast<HttpDoor*>(mg_get_user_data(context));
    if (thread_type == kAcceptingThread) door->accepts_ = true;
    return nullptr;
  }

  // While it starts, why it cannot; afterwards, what is wrong with requests: no news to anybody.
  static int Message(const mg_connection* connection, const char* message) {
    const mg_context* const context = mg_get_context(connection);
    auto* const door =
        context == nullptr ? nullptr : static_cast<HttpDoor*>(mg_get_user_data(context));
    if (door != nullptr && !door->started_ && door->said_.empty()) door->said_ = message;
    return 1;
  }
};

absl::StatusOr<std::unique_ptr<HttpDoor>> HttpDoor::Open(const HttpAddress& address,
                                                         Answer answer) {
  std::unique_ptr<HttpDoor> door(new HttpDoor(address, std::move(answer)));
  const std::string where = address.ToString();
  const char* options[] = {"listening_ports",
                           where.c_str(),
                           "num_threads",
                           kThreads,
                           "connection_queue",
                           kWaitingMax,
                           "max_request_size",
                           kRequestBytesMax,
                           "request_timeout_ms",
                           kRequestMs,
                           "enable_keep_alive",
                           "no",
                           nullptr};
  mg_callbacks callbacks = {};
  callbacks.log_message = HttpDoorCallbacks::Message;
  callbacks.init_thread = HttpDoorCallbacks::Begin;
  mg_init_library(0);
  {
    const SignalsBlocked blocked;
    door->context_ = mg_start(&callbacks, door.get(), options);
  }
  if (door->context_ == nullptr) {
    mg_exit_library();
    return absl::UnavailableError(
        door->said_.empty() ? "the address is in use, or none of this machine's" : door->said_);
  }
  // (mg_start does not tell when that thread could not be made.)
  const absl::Time end = absl::Now() + kAcceptsMax;
  while (!door->accepts_ && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
  if (!door->accepts_) {
    // It cannot be stopped either: what there is of it stays until the process ends.
    door->context_ = nullptr;
    (void)door.release();
    return absl::ResourceExhaustedError(
        "there is no thread for it; allow more of them (ulimit -u, TasksMax)");
  }
  door->started_ = true;
  // (A request that comes before this is answered 404.)
  mg_set_request_handler(door->context_, "**", HttpDoorCallbacks::Request, door.get());
  mg_server_port port = {};
  const int ports = mg_get_server_ports(door->context_, 1, &port);
  assert(ports == 1);
  (void)ports;
  door->address_.port = static_cast<uint16_t>(port.port);
  return door;
}

HttpDoor::~HttpDoor() {
  if (context_ == nullptr) return;
  // mg_stop waits for the thread that accepts, which looks every 2 s whether it is to end, or when
  // somebody comes.
  std::atomic<bool> stopped{false};
  std::thread knocks;
  try {
    const SignalsBlocked blocked;
    knocks = std::thread([&] {
      for (; !stopped; absl::SleepFor(absl::Milliseconds(10))) KnockAt(address_);
    });
  } catch (const std::system_error&) {
    // There is no thread for it: those 2 s it takes.
  }
  mg_stop(context_);
  stopped = true;
  if (knocks.joinable()) knocks.join();
  mg_exit_library();
}

}  // namespace osprey::server
