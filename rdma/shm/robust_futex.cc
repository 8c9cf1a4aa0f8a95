#include "rdma/shm/robust_futex.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rdma/background_thread.h"

namespace osprey::rdma {

struct RobustFutex::State {
  explicit State(uint32_t& w) : word(w) {}

  uint32_t& word;
  pthread_t thread = {};
  // The list that the kernel reads when the thread ends; it has one entry.
  robust_list_head head = {};
  robust_list entry = {};

  std::mutex mutex;
  std::condition_variable changed;
  // Under the mutex.
  bool held = false;  // or failed
  int error = 0;
  bool ends = false;
};

absl::StatusOr<std::unique_ptr<RobustFutex>> RobustFutex::Hold(uint32_t& word) {
  auto owned = std::make_unique<State>(word);
  State& state = *owned;
  if (!StartBackgroundThread("osprey-alive", &Run, &state, state.thread)) {
    return absl::ResourceExhaustedError(
        "cannot start the thread by which clients notice the end of this server; allow more of "
        "them (ulimit -u, TasksMax)");
  }
  std::unique_ptr<RobustFutex> futex(new RobustFutex(std::move(owned)));
  std::unique_lock<std::mutex> lock(state.mutex);
  state.changed.wait(lock, [&] { return state.held; });
  if (state.error != 0)
    return absl::InternalError(absl::StrCat("set_robust_list: ", std::strerror(state.error)));
  return futex;
}

bool RobustFutex::IsHeld(uint32_t word) { return word != 0 && (word & FUTEX_OWNER_DIED) == 0; }

RobustFutex::RobustFutex(std::unique_ptr<State> state) : state_(std::move(state)) {}

RobustFutex::~RobustFutex() {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->ends = true;
    state_->changed.notify_all();
  }
  // When the thread has ended, the kernel has changed the word.
  pthread_join(state_->thread, nullptr);
}

void* RobustFutex::Run(void* argument) {
  State& state = *static_cast<State*>(argument);
  state.head.list.next = &state.entry;
  state.entry.next = &state.head.list;
  state.head.futex_offset =
      reinterpret_cast<char*>(&state.word) - reinterpret_cast<char*>(&state.entry);
  // Replaces glibc's list, which holds the thread's robust mutexes: it has none.
  const bool told = syscall(SYS_set_robust_list, &state.head, sizeof(state.head)) == 0;
  std::unique_lock<std::mutex> lock(state.mutex);
  if (told) {
    std::atomic_ref<uint32_t>(state.word)
        .store(static_cast<uint32_t>(gettid()), std::memory_order_release);
  } else {
    state.error = errno;
  }
  state.held = true;
  state.changed.notify_all();
  state.changed.wait(lock, [&] { return state.ends; });
  return nullptr;
}

}  // namespace osprey::rdma
