// The steps of the cluster's thread, and the part of them that a poller does whose commit has to wait. So a write
// wakes a thread at each backup, and none here.
//
//   thread:  Lock ── a step ── WakeSleeper ──> sleeps: at the links only if no poller has driven (TakeDriven)
//
//   poller:  Commit ──> Drive: Work::DriveStep, again and again; it spins, then sleeps at the links ──> answer
//                         │ after 10 ms, or while another poller sleeps there
//                         └──> wakes the thread, and waits for it (ReplicatedWrites)
//
// - A poller never waits for the lock. *Else* it and the thread that ends its engine wait for each other.
// - The thread goes first. *Else* pollers, one after the other, keep it from renewing the right.
// - Links that wake the sleeper do not wake the thread. It turns every 10 ms in any case.
//
// Thread rule: Drive is any thread's, all else the owner's.

#ifndef OSPREY_SERVER_CLUSTER_NODE_DRIVEN_STEPS_H_
#define OSPREY_SERVER_CLUSTER_NODE_DRIVEN_STEPS_H_

#include <poll.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "server/cluster/node/replicated_writes.h"
#include "server/cluster/node/spin_trial.h"
#include "server/cluster/node/wake.h"

namespace osprey::server {

// Sleeps until one of them is ready. True: the first is.
bool Await(std::vector<pollfd>& waits, absl::Duration max);

class DrivenSteps final : public CommitDriver {
 public:
  // Under the lock, on any thread. They return at once.
  class Work {
   public:
    virtual ~Work() = default;
    // The part of a step that commits. True if something was done: there may be more.
    virtual bool DriveStep() = 0;
    // Adds what is ready once there is work. False: there is.
    virtual bool ArmLinks(std::vector<pollfd>& waits) = 0;
    // A Commit waits, besides that which asks. Without the lock.
    virtual bool IsAwaitedByOthers() const = 0;
  };

  // All outlive this. `wake` is the owner's. For `spin` a poller spins before it sleeps.
  DrivenSteps(Work& work, Wake& wake, absl::Duration spin)
      : work_(work), wake_(wake), spin_(spin) {}
  // False: the system has no descriptor left.
  bool valid() const { return sleeper_wake_.valid(); }

  // --- The owner
  // For a step, and what else uses the links.
  std::unique_lock<std::mutex> Lock();
  // A poller has driven since the last call. REQUIRES: the lock.
  bool TakeDriven() { return is_driven_.exchange(false); }
  // After each step: what the sleeper waits for may have come there.
  void WakeSleeper();

  // --- CommitDriver
  void Drive(absl::FunctionRef<bool()> is_over) override;

 private:
  bool DriveUntil(absl::Time end, absl::FunctionRef<bool()> is_over,
                  absl::FunctionRef<void()> pause);
  bool DriveStep();
  void AwaitLinks();

  Work& work_;
  Wake& wake_;
  const absl::Duration spin_;
  std::mutex mutex_;
  std::atomic<bool> is_wanted_{false};  // the lock, by the owner
  std::atomic<bool> is_driven_{false};
  std::atomic<bool> has_sleeper_{false};
  Wake sleeper_wake_;
  SpinTrial spins_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_NODE_DRIVEN_STEPS_H_
