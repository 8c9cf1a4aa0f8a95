#include "rdma/selftest/selftest.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "rdma/address.h"
#include "rdma/errors.h"
#include "rdma/selftest/control.h"
#include "rdma/selftest/script.h"
#include "rdma/verbs/device/address.h"
#include "rdma/verbs/device/objects.h"

namespace osprey::rdma::selftest {
namespace {

constexpr int kBacklog = 8;
// For the first bytes of a new connection.
constexpr absl::Duration kHelloMax = absl::Seconds(1);

Step TcpStep(Outcome outcome, absl::string_view detail, absl::string_view hint) {
  return {outcome, "tcp", std::string(detail), std::string(hint)};
}

Step DeviceStep(const absl::Status& status) {
  return {Outcome::kFail, "device", std::string(status.message()), ""};
}

// The address of HOST to bind, which a device may have.
absl::StatusOr<SocketAddress> Bindable(const Address& address) {
  absl::StatusOr<SocketAddress> resolved = ResolveTcp(address);
  if (!resolved.ok()) return resolved.status();
  if (IsLoopback(resolved->get())) return NotRdmaAddressError(address.host, RdmaAddresses());
  if (IsWildcard(resolved->get())) {
    return absl::InvalidArgumentError(
        absl::StrCat(address.host, " is every address; give the one of the RDMA device"));
  }
  return resolved;
}

}  // namespace

bool Passed(const Report& report) {
  return std::all_of(report.begin(), report.end(),
                     [](const Step& step) { return step.outcome == Outcome::kPass; });
}

Report RunHere(const Options& options) {
  // Reported once, where both ends would report it.
  if (const absl::Status devices = VerbsDevices::Open().status(); !devices.ok())
    return {DeviceStep(devices)};
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
    return {TcpStep(Outcome::kFail, VerbsError("socketpair", errno).message(), "")};
  const absl::Time deadline = absl::Now() + options.limit;
  Control ours{UniqueFd(sockets[0]), deadline};
  Control theirs{UniqueFd(sockets[1]), deadline};
  std::thread other([&] { Script(Role::kPassive, options, "", theirs, deadline).Run(); });
  Report report = Script(Role::kActive, options, "", ours, deadline).Run();
  other.join();
  return report;
}

absl::StatusOr<Report> RunWith(absl::string_view peer, const Options& options) {
  const absl::StatusOr<Address> address = ParseAddress(absl::StrCat("rdma://", peer));
  if (!address.ok()) return address.status();
  if (const absl::Status devices = VerbsDevices::Open().status(); !devices.ok())
    return Report{DeviceStep(devices)};
  const absl::Time deadline = absl::Now() + options.limit;
  absl::StatusOr<Control> control = Control::Connect(peer, deadline);
  absl::Status status = control.status();
  if (status.ok()) status = control->Exchange(Message()).status();
  if (!status.ok()) {
    return Report{
        TcpStep(Outcome::kFail, status.message(),
                absl::StrCat("kvcli doctor --self-test=serve --bind=", address->host, ":",
                             address->port, "   # there; and let TCP ", address->port, " pass"))};
  }
  Report report = {TcpStep(Outcome::kPass, absl::StrCat(peer, " answers"), "")};
  Report rest = Script(Role::kActive, options, address->host, *control, deadline).Run();
  std::move(rest.begin(), rest.end(), std::back_inserter(report));
  return report;
}

absl::StatusOr<Server> Server::Listen(absl::string_view text, const Options& options) {
  const absl::StatusOr<Address> address = ParseAddress(absl::StrCat("rdma://", text));
  if (!address.ok()) return address.status();
  const absl::StatusOr<SocketAddress> resolved = Bindable(*address);
  if (!resolved.ok()) return resolved.status();
  // Reported now rather than when the other end has connected.
  if (const absl::Status devices = VerbsDevices::Open().status(); !devices.ok()) return devices;
  Server server;
  server.options_ = options;
  server.host_ = address->host;
  server.listener_ =
      UniqueFd(socket(resolved->get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!server.listener_.valid()) return VerbsError("socket", errno);
  const int on = 1;
  (void)setsockopt(server.listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(server.listener_.get(), resolved->get(), LengthOf(*resolved)) != 0 ||
      listen(server.listener_.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE)
      return absl::AlreadyExistsError(
          absl::StrCat(text, " over TCP is in use; choose another port"));
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen at ", text, " over TCP: ", std::strerror(errno)));
  }
  SocketAddress bound;
  socklen_t length = sizeof(bound.storage);
  if (getsockname(server.listener_.get(), bound.get(), &length) != 0)
    return VerbsError("getsockname", errno);
  server.address_ = UriOf(bound.get()).substr(strlen("rdma://"));
  return server;
}

absl::StatusOr<Report> Server::ServeOne(absl::Duration wait) {
  const absl::Time end = absl::Now() + wait;
  for (int foreign_peers = 0; foreign_peers < kForeignPeersMax;) {
    const int64_t left = absl::ToInt64Milliseconds(end - absl::Now());
    pollfd ready = {.fd = listener_.get(), .events = POLLIN, .revents = 0};
    if (left <= 0 || poll(&ready, 1, static_cast<int>(std::min<int64_t>(left, 1'000'000))) == 0)
      return absl::DeadlineExceededError(absl::StrCat(
          "no peer connected to ", address_, " within ", absl::FormatDuration(wait),
          foreign_peers > 0 ? absl::StrCat(", but ", foreign_peers, " that are not self-tests")
                            : ""));
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.valid()) {  // the peer has disconnected
      absl::SleepFor(absl::Milliseconds(1));
      continue;
    }
    Control control(std::move(fd), std::min(absl::Now() + kHelloMax, end + kHelloMax));
    if (!control.Exchange(Message()).ok()) {
      ++foreign_peers;
      continue;
    }
    const absl::Time deadline = absl::Now() + options_.limit;
    control.set_deadline(deadline);
    return Script(Role::kPassive, options_, host_, control, deadline).Run();
  }
  return absl::UnavailableError(
      absl::StrCat(kForeignPeersMax, " connected to ", address_, " that are not self-tests"));
}

}  // namespace osprey::rdma::selftest
