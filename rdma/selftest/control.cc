#include "rdma/selftest/control.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "rdma/selftest/deadline.h"
#include "rdma/verbs/device/objects.h"

namespace osprey::rdma::selftest {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kNumberMax = (1U << 24) - 1;  // of queue pairs and packets
constexpr uint8_t kMtuMax = 5;                   // IBV_MTU_4096

bool IsPrintable(char c) { return c >= ' ' && c <= '~'; }

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

absl::Status ConnectFailed(absl::string_view peer, int error) {
  return absl::UnavailableError(absl::StrCat(peer, " over TCP: ", std::strerror(error)));
}

}  // namespace

void Message::SetText(absl::string_view value) {
  std::memset(text, 0, sizeof(text));
  const size_t length = std::min(value.size(), sizeof(text));
  std::transform(value.begin(), value.begin() + static_cast<ptrdiff_t>(length), text,
                 [](char c) { return IsPrintable(c) ? c : '?'; });
}

std::string Message::Text() const {
  std::string result;
  for (const char c : text) {
    if (c == '\0') break;
    result.push_back(IsPrintable(c) ? c : '?');
  }
  return result;
}

absl::Status Message::Validate() const {
  if (magic != kMagic)
    return absl::InvalidArgumentError("the other end is no self-test of Osprey's");
  if (version != kVersion) {
    return absl::InvalidArgumentError(absl::StrCat("the other end speaks version ", version,
                                                   " of the self-test, and this one ", kVersion));
  }
  const bool zeros =
      std::all_of(std::begin(reserved), std::end(reserved), [](uint8_t b) { return b == 0; });
  if (failed > 1 || ethernet > 1 || !zeros)
    return absl::InvalidArgumentError("the other end sent a message that is invalid");
  return absl::OkStatus();
}

absl::Status Message::ValidateParameters(uint32_t bytes_wanted) const {
  if (bytes != bytes_wanted)
    return absl::InvalidArgumentError(
        absl::StrCat("the other end offers ", bytes, " bytes of memory, not ", bytes_wanted));
  if (address == 0 || address > UINT64_MAX - bytes)
    return absl::InvalidArgumentError("the other end's memory has no address");
  if (qpn == 0 || qpn > kNumberMax || psn > kNumberMax)
    return absl::InvalidArgumentError("the other end's queue pair has a number of over 24 bits");
  if (mtu < 1 || mtu > kMtuMax) return absl::InvalidArgumentError("the other end's MTU is none");
  return absl::OkStatus();
}

Control::Control(UniqueFd fd, absl::Time deadline) : fd_(std::move(fd)), deadline_(deadline) {
  // If this fails, Wait and the deadline still bound all but one call.
  (void)SetNonblocking(fd_.get());
}

absl::StatusOr<SocketAddress> ResolveTcp(const Address& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot resolve ", address.host, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, FreeAddresses> first(found);
  SocketAddress result;
  if (first->ai_addrlen > sizeof(result.storage))
    return absl::UnavailableError(absl::StrCat(address.host, " is no IP address"));
  std::memcpy(&result.storage, first->ai_addr, first->ai_addrlen);
  return result;
}

socklen_t LengthOf(const SocketAddress& address) {
  return address.get()->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

absl::StatusOr<Control> Control::Connect(absl::string_view peer, absl::Time deadline) {
  const absl::StatusOr<Address> address = ParseAddress(absl::StrCat("rdma://", peer));
  if (!address.ok()) return address.status();
  const absl::StatusOr<SocketAddress> resolved = ResolveTcp(*address);
  if (!resolved.ok()) return resolved.status();
  UniqueFd fd(socket(resolved->get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return VerbsError("socket", errno);
  Control control(std::move(fd), deadline);
  if (connect(control.fd_.get(), resolved->get(), LengthOf(*resolved)) != 0) {
    if (errno != EINPROGRESS) return ConnectFailed(peer, errno);
    if (absl::Status status = control.Wait(POLLOUT); !status.ok()) return status;
    int failed = 0;
    socklen_t length = sizeof(failed);
    if (getsockopt(control.fd_.get(), SOL_SOCKET, SO_ERROR, &failed, &length) != 0) failed = errno;
    if (failed != 0) return ConnectFailed(peer, failed);
  }
  return control;
}

absl::Status Control::Wait(short events) const {
  pollfd ready = {.fd = fd_.get(), .events = events, .revents = 0};
  const int count = poll(&ready, 1, MillisecondsUntil(deadline_));
  if (count < 0 && errno != EINTR) return VerbsError("poll", errno);
  if (count == 0 || absl::Now() >= deadline_)
    return absl::DeadlineExceededError("the other end does not answer over TCP");
  return absl::OkStatus();
}

absl::Status Control::Write(const Message& message) {
  const char* const bytes = reinterpret_cast<const char*>(&message);
  size_t sent = 0;
  while (sent < sizeof(message)) {
    if (absl::Status status = Wait(POLLOUT); !status.ok()) return status;
    const ssize_t count =
        send(fd_.get(), bytes + sent, sizeof(message) - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno != EAGAIN && errno != EINTR)
      return absl::UnavailableError(absl::StrCat("the other end has gone: ", std::strerror(errno)));
    if (count > 0) sent += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

absl::StatusOr<Message> Control::Read() {
  Message message;
  char* const bytes = reinterpret_cast<char*>(&message);
  size_t got = 0;
  while (got < sizeof(message)) {
    if (absl::Status status = Wait(POLLIN); !status.ok()) return status;
    const ssize_t count = recv(fd_.get(), bytes + got, sizeof(message) - got, MSG_DONTWAIT);
    if (count == 0) return absl::UnavailableError("the other end has gone");
    if (count < 0 && errno != EAGAIN && errno != EINTR)
      return absl::UnavailableError(absl::StrCat("the other end has gone: ", std::strerror(errno)));
    if (count > 0) got += static_cast<size_t>(count);
    // Detected at the first bytes, not after all 256 of a foreign message.
    if (got >= sizeof(message.magic) && message.magic != kMagic) return message.Validate();
  }
  if (absl::Status status = message.Validate(); !status.ok()) return status;
  return message;
}

absl::StatusOr<Message> Control::Exchange(Message ours) {
  ours.step = ++step_;
  if (absl::Status status = Write(ours); !status.ok()) return status;
  absl::StatusOr<Message> theirs = Read();
  if (theirs.ok() && theirs->step != ours.step) {
    return absl::InvalidArgumentError(
        absl::StrCat("the other end is at step ", theirs->step, ", and this one at ", ours.step));
  }
  return theirs;
}

}  // namespace osprey::rdma::selftest
