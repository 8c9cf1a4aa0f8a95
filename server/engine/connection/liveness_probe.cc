#include "server/engine/connection/liveness_probe.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace osprey::server {

bool LivenessProbe::OnReadDone(const absl::Status& status, absl::Time now) {
  reading_ = false;
  if (!status.ok()) {
    lifecycle_.Close(CloseReason::kSilent,
                     absl::StrCat("liveness READ failed: ", status.message()));
    return false;
  }
  last_input_ = now;
  return true;
}

void LivenessProbe::Check(absl::Time now) {
  if (lifecycle_.closing() || now < last_input_ + kSilenceMax()) return;
  // Without room, READs of a rendezvous are in flight, which serve as well.
  if (!reading_ && port_.transport.ReadRoom(id_) > 0) {
    rdma::ReadRequest read;
    read.remote_address = word_.address;
    read.remote_key = word_.key;
    read.segments[0] = {port_.scratch.data(), kLivenessBytes, &port_.scratch};
    if (!port_.transport.PostReads(id_, {&read, 1}, kCookie).ok())
      return;  // kDisconnected is on its way
    ++shared_.counters.liveness_reads;
    reading_ = true;
    since_ = now;
  }
  if (now >= std::max(since_, last_input_ + kSilenceMax()) + kLivenessTimeout()) {
    lifecycle_.Close(CloseReason::kSilent, "its liveness word could not be read in time");
  }
}

}  // namespace osprey::server
