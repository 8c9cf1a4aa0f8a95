// The test's own versions of librdmacm's calls. They call the real ones, and observe or replace them.

#ifndef OSPREY_TESTS_RDMA_VERBS_CM_CALLS_H_
#define OSPREY_TESTS_RDMA_VERBS_CM_CALLS_H_

#include <rdma/rdma_cma.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>

// The thread of the last rdma_disconnect.
extern std::atomic<pid_t> g_disconnected_by;

// Observes the order of librdmacm's calls on ids, and provides stand-ins for ids. These are made
// and destroyed without the kernel, so that a test can use thousands.
class CmIds {
 public:
  // Whether a fetched event of this id still lacks its acknowledgement.
  void OnFetched(rdma_cm_id* id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++unacknowledged_[id];
  }
  void OnAcknowledged(rdma_cm_id* id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--unacknowledged_[id] == 0) unacknowledged_.erase(id);
  }
  // False: rdma_destroy_id would block, since an event of the id is unacknowledged.
  bool OnDestroy(rdma_cm_id* id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool too_early = unacknowledged_.count(id) != 0;
    counts_.destroyed_too_early += too_early;
    counts_.destroyed_by_main_thread += gettid() == getpid();
    return !too_early;
  }

  // Since Forget.
  struct Counts {
    int made_up_events = 0;  // fetched
    int destroyed_by_main_thread = 0;
    int destroyed_too_early = 0;
  };
  Counts counts() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return counts_;
  }
  void Forget() {
    const std::lock_guard<std::mutex> lock(mutex_);
    counts_ = {};
  }

  // The next event of that id's channel, of any kind.
  void MakeUpEvent(rdma_cm_id* id, rdma_cm_event_type type) {
    const std::lock_guard<std::mutex> lock(mutex_);
    made_up_ = {};
    made_up_.id = id;
    made_up_.event = type;
    made_up_waits_ = true;
  }
  rdma_cm_event* TakeMadeUpEvent(rdma_event_channel* channel) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!made_up_waits_ || made_up_.id->channel != channel) return nullptr;
    made_up_waits_ = false;
    ++counts_.made_up_events;
    return &made_up_;
  }
  bool IsMadeUp(const rdma_cm_event* event) const { return event == &made_up_; }
  // The id of the last connect request that was fetched.
  void set_last_request(rdma_cm_id* id) { last_request_ = id; }
  rdma_cm_id* last_request() const { return last_request_; }

  // While `made`, rdma_create_id makes stand-ins; while `held`, rdma_destroy_id waits.
  void UseStandIns(bool made, bool held) {
    const std::lock_guard<std::mutex> lock(mutex_);
    made_ = made;
    held_ = held;
    changed_.notify_all();
  }
  rdma_cm_id* NewStandIn() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!made_) return nullptr;
    auto id = std::make_unique<rdma_cm_id>();
    rdma_cm_id* const result = id.get();
    stand_ins_[result] = std::move(id);
    return result;
  }
  bool IsStandIn(rdma_cm_id* id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return stand_ins_.count(id) != 0;
  }
  void DestroyStandIn(rdma_cm_id* id) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return !held_; });
    stand_ins_.erase(id);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<rdma_cm_id*, int> unacknowledged_;
  Counts counts_;
  rdma_cm_event made_up_ = {};
  bool made_up_waits_ = false;
  std::atomic<rdma_cm_id*> last_request_{nullptr};
  bool made_ = false, held_ = false;
  std::map<rdma_cm_id*, std::unique_ptr<rdma_cm_id>> stand_ins_;
};

CmIds& TheCmIds();

#endif  // OSPREY_TESTS_RDMA_VERBS_CM_CALLS_H_
