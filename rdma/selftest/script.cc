#include "rdma/selftest/script.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "rdma/verbs/device/address.h"

namespace osprey::rdma::selftest {
namespace {

constexpr char kDevice[] = "device";
constexpr char kTcp[] = "tcp";
constexpr char kVerbs[] = "verbs";
constexpr char kCm[] = "rdma_cm";

// The longest step. A step that works takes milliseconds. This exceeds a queue pair's retries (0.5
// s).
constexpr absl::Duration kStepMax = absl::Seconds(2);

constexpr char kGidHint[] =
    "the GIDs of both ends must reach each other: give --gid-index one of RoCE v2 whose address is "
    "of the same network (`ip route get` the other's)";
constexpr char kPacketHint[] =
    "let UDP 4791 pass at both ends, and packets of the MTU on the whole way; `kvcli doctor` at "
    "both ends";
constexpr char kMemoryHint[] = "ulimit -l unlimited; `kvcli doctor` says more";

uint64_t RandomWord() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

}  // namespace

Script::Script(Role role, const Options& options, std::string cm_host, Control& control,
               absl::Time deadline)
    : role_(role),
      options_(options),
      cm_host_(std::move(cm_host)),
      control_(control),
      deadline_(deadline) {}

absl::Time Script::StepDeadline() const { return std::min(absl::Now() + kStepMax, deadline_); }

void Script::Skip(const char* layer, absl::string_view what) {
  report_.push_back({Outcome::kSkip, layer, absl::StrCat(what, " not tried after that"), ""});
}

bool Script::Together(const char* layer, absl::string_view what, const absl::Status& mine,
                      absl::string_view hint, Message ours, Message* theirs) {
  ours.failed = mine.ok() ? 0 : 1;
  ours.SetText(mine.message());
  const absl::StatusOr<Message> answer = control_.Exchange(ours);
  if (!mine.ok()) {
    report_.push_back(
        {Outcome::kFail, layer, absl::StrCat(what, ": ", mine.message()), std::string(hint)});
  } else if (answer.ok() && answer->failed != 0) {
    report_.push_back({Outcome::kFail, layer,
                       absl::StrCat(what, " at the other end: ", answer->Text()),
                       std::string(hint)});
  }
  if (!answer.ok()) {
    alone_ = true;
    report_.push_back({Outcome::kFail, kTcp, absl::StrCat(what, ": ", answer.status().message()),
                       "both ends must be of the same release, and stay until the end"});
    return false;
  }
  if (!mine.ok() || answer->failed != 0) return false;
  if (theirs != nullptr) *theirs = *answer;
  report_.push_back({Outcome::kPass, layer, std::string(what), ""});
  return true;
}

bool Script::FindDevice() {
  absl::StatusOr<std::unique_ptr<VerbsDevices>> devices = VerbsDevices::Open();
  absl::Status status = devices.status();
  std::string what = "RDMA device";
  if (devices.ok()) {
    devices_ = *std::move(devices);
    absl::StatusOr<Path> path = ChoosePath(*devices_, options_);
    status = path.status();
    if (path.ok()) {
      path_ = *std::move(path);
      what = path_.ToString();
    }
  }
  return Together(kDevice, what, status, "`kvcli doctor` there says what is missing");
}

// Every step of both layers' data: SEND and RECV, READ, WRITE.
bool Script::MoveBytes(const char* layer, Endpoint& endpoint) {
  const bool active = role_ == Role::kActive;
  if (!Together(layer, "SEND and RECV of 64 B to 64 KiB",
                active ? endpoint.Ping(StepDeadline()) : endpoint.Pong(StepDeadline()),
                kPacketHint)) {
    Skip(layer, "READ and WRITE");
    return false;
  }
  if (!Together(layer, "READ of 64 B to 1 MiB",
                active ? endpoint.Read(StepDeadline()) : absl::OkStatus(), kPacketHint)) {
    Skip(layer, "WRITE");
    return false;
  }
  return Together(layer, "WRITE of 64 B to 1 MiB",
                  active ? endpoint.Write(StepDeadline()) : absl::OkStatus(), kPacketHint) &&
         Together(layer, "what was written is there",
                  active ? absl::OkStatus() : endpoint.CheckWritten(StepDeadline()), "");
}

bool Script::WalkByHand(Endpoint& endpoint) {
  absl::Status init = ToInit(endpoint.queue_pair(), path_, kPeerRights);
  if (init.ok()) init = endpoint.PostReceives();
  Message ours;
  endpoint.Describe(ours);
  ours.psn = static_cast<uint32_t>(RandomWord() & 0xFFFFFF);
  ours.lid = path_.lid;
  ours.mtu = static_cast<uint8_t>(path_.mtu);
  ours.ethernet = path_.ethernet ? 1 : 0;
  std::memcpy(ours.gid, path_.gid.raw, sizeof(ours.gid));
  Message theirs;
  if (!Together(kVerbs, "RESET to INIT", init, "`kvcli doctor`", ours, &theirs)) {
    Skip(kVerbs, "RTR, RTS, SEND, READ and WRITE");
    return false;
  }
  absl::Status ready = theirs.ValidateParameters(kRemoteBytes);
  if (ready.ok()) ready = ToReadyToReceive(endpoint.queue_pair(), path_, theirs);
  if (!Together(kVerbs, "INIT to RTR", ready, kGidHint)) {
    Skip(kVerbs, "RTS, SEND, READ and WRITE");
    return false;
  }
  endpoint.SetPeer(theirs);
  if (!Together(kVerbs, "RTR to RTS", ToReadyToSend(endpoint.queue_pair(), path_, ours.psn),
                "`kvcli doctor`")) {
    Skip(kVerbs, "SEND, READ and WRITE");
    return false;
  }
  return true;
}

void Script::RunVerbs() {
  absl::StatusOr<std::unique_ptr<Endpoint>> endpoint =
      Endpoint::Create(*path_.device, RandomWord());
  if (!Together(kVerbs, "memory and a queue pair", endpoint.status(), kMemoryHint)) {
    Skip(kVerbs, "INIT, RTR, RTS, SEND, READ and WRITE");
    return;
  }
  if (WalkByHand(**endpoint)) MoveBytes(kVerbs, **endpoint);
}

bool Script::ConnectByCm(CmConnection& connection) {
  const bool active = role_ == Role::kActive;
  if (cm_host_.empty()) cm_host_ = path_.address;
  if (const std::vector<std::string> hosts = RdmaAddresses(); cm_host_.empty() && !hosts.empty())
    cm_host_ = hosts.front();
  // The passive end identifies the active one by its seed.
  Message ours;
  Message theirs;
  ours.seed = RandomWord();
  absl::Status status;
  if (!active) {
    const absl::StatusOr<uint16_t> port =
        cm_host_.empty() ? absl::InvalidArgumentError("the device has no IP address")
                         : connection.Listen(cm_host_);
    status = port.status();
    if (port.ok()) ours.cm_port = *port;
  }
  if (!Together(kCm, "listening", status, "give the device's interface an address; serve with that",
                ours, &theirs)) {
    return false;
  }
  const absl::Time deadline = StepDeadline();
  if (active) status = connection.ResolveAddress(cm_host_, theirs.cm_port, deadline);
  if (!Together(kCm, "address", status,
                "HOST must be an address of the other end's RDMA device, and reachable from one of "
                "this end's")) {
    return false;
  }
  if (active) status = connection.ResolveRoute(StepDeadline());
  if (!Together(kCm, "route", status, "`ip route get` the other's address")) return false;
  status = active ? connection.Connect(*devices_, ours.seed, StepDeadline())
                  : connection.Accept(*devices_, theirs.seed, StepDeadline());
  if (!Together(kCm, "connection", status, kPacketHint)) return false;

  Message memory;
  connection.endpoint().Describe(memory);
  memory.mtu = static_cast<uint8_t>(path_.mtu);
  if (!Together(kCm, "where the memory is", absl::OkStatus(), "", memory, &theirs)) return false;
  report_.pop_back();  // it has no content for a reader
  status = theirs.ValidateParameters(kRemoteBytes);
  connection.endpoint().SetPeer(theirs);
  const bool valid = Together(kCm, "the other end's memory", status, "");
  if (valid) report_.pop_back();
  return valid;
}

void Script::RunCm() {
  absl::StatusOr<std::unique_ptr<CmConnection>> connection = CmConnection::Create();
  if (!Together(kCm, "event channel", connection.status(), "modprobe rdma_ucm; `kvcli doctor`"))
    return;
  report_.pop_back();
  if (!ConnectByCm(**connection)) {
    Skip(kCm, "SEND, READ and WRITE");
    return;
  }
  MoveBytes(kCm, (*connection)->endpoint());
}

Report Script::Run() {
  if (!FindDevice()) return std::move(report_);
  RunVerbs();
  if (!alone_) RunCm();
  return std::move(report_);
}

}  // namespace osprey::rdma::selftest
