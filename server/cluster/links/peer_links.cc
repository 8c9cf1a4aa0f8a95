#include "server/cluster/links/peer_links.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "rdma/address.h"
#include "server/cluster/configuration/cluster_keys.h"

namespace osprey {
namespace {

// Of one port in one turn.
constexpr size_t kEventsPerTurn = 64;

absl::Status BadOption(absl::string_view option, absl::string_view fix) {
  return absl::InvalidArgumentError(absl::StrCat("LinkOptions::", option, ": ", fix));
}

absl::Status Validate(const LinkOptions& options, const std::vector<LinkPort>& ports) {
  if (!IsServerId(options.server))
    return BadOption("server", "1 to 63 of a to z, 0 to 9 and '-' are an ID");
  if (options.incarnation == 0) return BadOption("incarnation", "it must not be 0");
  if (options.cluster_id == 0) return BadOption("cluster_id", "it must not be 0");
  if (!options.random) return BadOption("random", "it is required");
  if (options.ping_after <= absl::ZeroDuration() || options.silence_max <= options.ping_after)
    return BadOption("silence_max", "it must be longer than ping_after, and that than 0");
  if (options.backoff_first <= absl::ZeroDuration() ||
      options.backoff_last < options.backoff_first) {
    return BadOption("backoff_last", "it must be at least backoff_first, and that more than 0");
  }
  for (const LinkPort& port : ports) {
    if (options.key == nullptr && port.scheme == rdma::Address::Scheme::kRdma) {
      return absl::InvalidArgumentError(
          "servers at rdma:// addresses must prove that they belong to the cluster; start all of "
          "them with the same --cluster-key-file");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerLinks>> PeerLinks::Create(const LinkOptions& options,
                                                             std::vector<LinkPort> ports,
                                                             absl::Time now) {
  if (absl::Status status = Validate(options, ports); !status.ok()) return status;
  return std::unique_ptr<PeerLinks>(new PeerLinks(options, std::move(ports), now));
}

PeerLinks::PeerLinks(const LinkOptions& options, std::vector<LinkPort> ports, absl::Time now)
    : context_(options),
      ports_(std::move(ports)),
      admission_({.connections_max = kIncomingLinksMax,
                  .requires_authentication = options.key != nullptr}),
      port_events_(kEventsPerTurn),
      polled_at_(now) {}

PeerLinks::~PeerLinks() = default;

absl::StatusOr<std::string> PeerLinks::Listen(absl::string_view uri) {
  const absl::StatusOr<rdma::Address> address = rdma::ParseAddress(uri);
  if (!address.ok()) return address.status();
  for (const LinkPort& port : ports_) {
    if (port.scheme == address->scheme)
      return port.transport->Listen(uri, context_.options.incarnation);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("this server has no transport for links at ", uri,
                   "; let all servers listen at rdma:// addresses, or all at shm:// addresses"));
}

void PeerLinks::SetPeers(LinkPeers peers) {
  peers.erase(context_.options.server);
  for (auto it = outgoing_.begin(); it != outgoing_.end();) {
    const auto peer = peers.find(it->first);
    const bool is_peer =
        peer != peers.end() && peer->second.incarnation == it->second->incarnation();
    if (is_peer && peer->second.is_needed) {
      ++it;
      continue;
    }
    it->second->End(absl::CancelledError(
        is_peer ? absl::StrCat("no message for server ", it->first, " is expected any more")
                : absl::StrCat("the configuration does not name this incarnation of server ",
                               it->first, " any more")));
    it = outgoing_.erase(it);
  }
  context_.peers = std::move(peers);
  std::set<uint64_t> incarnations;
  for (const auto& [server, peer] : context_.peers) {
    incarnations.insert(peer.incarnation);
    if (!peer.is_needed) continue;
    std::unique_ptr<OutgoingLink>& link = outgoing_[server];
    if (link == nullptr) {
      link = std::make_unique<OutgoingLink>(context_, ports_, server, peer.incarnation);
    }
  }
  for (auto it = incoming_.begin(); it != incoming_.end();) {
    const uint64_t incarnation = it->second->incarnation();
    const bool is_gone = incarnation != 0 && !incarnations.contains(incarnation);
    if (is_gone) it->second->End();
    it = is_gone ? incoming_.erase(it) : std::next(it);
  }
}

OutgoingLink* PeerLinks::Find(uint64_t incarnation) const {
  for (const auto& [server, link] : outgoing_)
    if (link->incarnation() == incarnation) return link.get();
  return nullptr;
}

absl::Status PeerLinks::Send(uint64_t incarnation, uint8_t kind, std::string body) {
  OutgoingLink* const link = Find(incarnation);
  if (link != nullptr) return link->Send(kind, std::move(body));
  return absl::NotFoundError(
      absl::StrCat("there is to be no link to a server of the incarnation ", incarnation));
}

uint64_t PeerLinks::RoomFor(uint64_t incarnation) const {
  const OutgoingLink* const link = Find(incarnation);
  return link == nullptr ? 0 : link->room();
}

bool PeerLinks::Poll(absl::Time now, std::vector<LinkEvent>& events) {
  ExcuseDelay(now);
  polled_at_ = now;
  bool worked = false;
  for (size_t port = 0; port < ports_.size(); ++port) {
    const size_t count = ports_[port].transport->Poll(absl::MakeSpan(port_events_));
    for (size_t i = 0; i < count; ++i) Handle(port, port_events_[i], now);
    worked |= count > 0;
  }
  worked |= AdvanceAll(now);
  worked |= !context_.events.empty();
  std::move(context_.events.begin(), context_.events.end(), std::back_inserter(events));
  context_.events.clear();
  return worked;
}

// What peers have sent meanwhile was not read.
void PeerLinks::ExcuseDelay(absl::Time now) {
  const absl::Duration delay = now - polled_at_;
  if (delay < context_.options.silence_max / 2) return;
  for (const auto& [server, link] : outgoing_) link->Excuse(delay);
  for (const auto& [place, link] : incoming_) link->Excuse(delay);
}

void PeerLinks::Handle(size_t port, const rdma::Event& event, absl::Time now) {
  if (event.kind == rdma::Event::Kind::kConnectRequest) return HandleRequest(port, event, now);
  if (event.kind == rdma::Event::Kind::kDeviceLost) {
    failure_ = absl::UnavailableError(
        "the RDMA device of the links to other servers is gone; restart this server when it is "
        "back");
    return;
  }
  // Events of connections that were left are ignored.
  const auto link = incoming_.find({port, event.connection});
  if (link != incoming_.end()) return TakeIncoming(link, event, now);
  for (const auto& [server, outgoing] : outgoing_) {
    if (outgoing->Is(*ports_[port].transport, event.connection)) return outgoing->Take(event, now);
  }
}

void PeerLinks::HandleRequest(size_t port, const rdma::Event& event, absl::Time now) {
  rdma::Transport& transport = *ports_[port].transport;
  const auto refuse = [&](absl::string_view why, rdma::RejectReason reason) {
    ++context_.counters.refused;
    context_.incoming_log.Log(
        absl::StrCat("a connection of ", event.text, " to this server's links is refused: ", why,
                     "; end the processes there that are no servers of the cluster"),
        now);
    transport.Reject(event.connection, reason);
  };
  if (!event.status.ok())
    return refuse(event.status.message(), rdma::RejectReason::kSourceHoldsDescriptors);
  server::Admission::Answer admitted = admission_.Ask(event.source);
  if (!admitted.ticket.valid()) return refuse("there are too many", admitted.refusal);
  if (const absl::Status status = transport.Accept(event.connection); !status.ok()) {
    // The peer is gone, and kDisconnected reports it, or a resource is used up.
    if (absl::IsResourceExhausted(status)) {
      context_.incoming_log.Log(
          absl::StrCat("a connection of ", event.text,
                       " to this server's links cannot be accepted: ", status.message()),
          now);
    }
    return;
  }
  incoming_.emplace(Place(port, event.connection),
                    std::make_unique<IncomingLink>(context_, transport, event.connection,
                                                   event.text, std::move(admitted.ticket), now));
}

void PeerLinks::TakeIncoming(Incoming::iterator link, const rdma::Event& event, absl::Time now) {
  if (event.kind == rdma::Event::Kind::kDisconnected) {
    incoming_.erase(link);
    return;
  }
  switch (link->second->Take(event, now)) {
    case IncomingLink::Change::kNone:
      return;
    case IncomingLink::Change::kOpened:
      return EndOlder(link->first);
    case IncomingLink::Change::kEnded:
      incoming_.erase(link);
      return;
  }
}

// A server has one outgoing link to this one: it has left the older.
void PeerLinks::EndOlder(const Place& newest) {
  const uint64_t incarnation = incoming_.find(newest)->second->incarnation();
  for (auto it = incoming_.begin(); it != incoming_.end();) {
    const bool is_older = it->first != newest && it->second->incarnation() == incarnation;
    if (is_older) it->second->End();
    it = is_older ? incoming_.erase(it) : std::next(it);
  }
}

bool PeerLinks::AdvanceAll(absl::Time now) {
  bool worked = false;
  for (const auto& [server, link] : outgoing_) worked |= link->Advance(now);
  for (auto it = incoming_.begin(); it != incoming_.end();) {
    const bool ended = it->second->Advance(now) == IncomingLink::Change::kEnded;
    it = ended ? incoming_.erase(it) : std::next(it);
  }
  return worked;
}

void PeerLinks::Flush(absl::Time now) {
  for (const auto& [server, link] : outgoing_) {
    if (link->has_queued()) link->Advance(now);
  }
}

bool PeerLinks::Arm() {
  if (!context_.events.empty()) return false;
  for (const auto& [server, link] : outgoing_)
    if (link->CanSend()) return false;
  bool armed = true;
  for (const LinkPort& port : ports_) armed &= port.transport->Arm();
  return armed;
}

std::vector<int> PeerLinks::fds() const {
  std::vector<int> fds;
  for (const LinkPort& port : ports_) fds.push_back(port.transport->fd());
  return fds;
}

absl::Time PeerLinks::next_timer() const {
  const absl::Time soon = polled_at_ + kLinkBlockedStep();
  absl::Time next = absl::InfiniteFuture();
  // What was due already waits for a credit, or is new.
  const auto add = [&](absl::Time timer) { next = std::min(next, std::max(timer, soon)); };
  for (const auto& [server, link] : outgoing_) add(link->has_queued() ? soon : link->timer());
  for (const auto& [place, link] : incoming_) add(link->timer());
  return next;
}

}  // namespace osprey
