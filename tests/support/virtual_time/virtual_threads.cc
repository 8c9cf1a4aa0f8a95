#include "tests/support/virtual_time/virtual_threads.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <iostream>

namespace osprey {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kStackBytes = size_t{512} << 10;  // the first page of it is out of reach
constexpr uint64_t kSwitchNsMax = 2000;
constexpr uint64_t kClockNsMax = 100;

std::byte* NewStack() {
  void* const stack =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool is_guarded = stack != MAP_FAILED && mprotect(stack, kPageBytes, PROT_NONE) == 0;
  if (!is_guarded) std::abort();
  return static_cast<std::byte*>(stack);
}

}  // namespace

// --- Hosts ---------------------------------------------------------------------------------------

void VirtualHost::SetRates(int64_t now, int64_t raw_ppm, int64_t boot_time_ppm) {
  raw_ = RawTime(now);
  boot_time_ = BootTime(now);
  since_ = now;
  raw_ppm_ = raw_ppm;
  boot_time_ppm_ = boot_time_ppm;
}

// --- Threads -------------------------------------------------------------------------------------

struct VirtualThreads::Thread {
  VirtualHost& host;
  std::string name;
  std::function<void()> run;
  std::byte* stack = nullptr;
  ucontext_t context = {};
  const void* awaits = nullptr;  // nullptr: it can go on
  int64_t wakes_at = kNever;     // though nothing has come
  int64_t set_aside_until = 0;
  bool is_woken = false;
  bool has_ended = false;
};

VirtualThreads* VirtualThreads::running_ = nullptr;

VirtualThreads::VirtualThreads(uint64_t seed, const VirtualThreadsOptions& options)
    : options_(options),
      random_(seed),
      calls_until_preempted_(random_.Gap(options.preempt_per_10k)) {}

VirtualThreads::~VirtualThreads() {
  for (std::byte* const stack : stacks_) munmap(stack, kStackBytes);
}

void VirtualThreads::Run(std::function<void()> first) {
  assert(running_ == nullptr);
  Thread* const thread = Start(first_host_, "first", std::move(first));
  current_ = thread;
  running_ = this;
  swapcontext(&outside_, &thread->context);
  running_ = nullptr;
  current_ = nullptr;
  stacks_.push_back(thread->stack);
  if (threads_.size() != 1) {
    for (const auto& left : threads_) std::cerr << "a thread is left: " << left->name << std::endl;
    std::abort();
  }
  threads_.clear();
}

VirtualThreads::Id VirtualThreads::Start(VirtualHost& host, std::string name,
                                         std::function<void()> run) {
  threads_.push_back(std::make_unique<Thread>(
      Thread{.host = host, .name = std::move(name), .run = std::move(run)}));
  Thread& thread = *threads_.back();
  if (stacks_.empty()) {
    thread.stack = NewStack();
  } else {
    thread.stack = stacks_.back();
    stacks_.pop_back();
  }
  getcontext(&thread.context);
  thread.context.uc_stack = {
      .ss_sp = thread.stack + kPageBytes, .ss_flags = 0, .ss_size = kStackBytes - kPageBytes};
  thread.context.uc_link = nullptr;
  makecontext(&thread.context, &VirtualThreads::Enter, 0);
  return &thread;
}

void VirtualThreads::Enter() {
  VirtualThreads& threads = *running_;
  Thread& self = *threads.current_;
  self.run();
  self.run = nullptr;
  self.has_ended = true;
  if (&self == threads.threads_.front().get()) setcontext(&threads.outside_);
  threads.Wake(&self, true);
  threads.Switch();
  std::abort();  // what has ended does not go on
}

void VirtualThreads::Join(Id thread) {
  while (!thread->has_ended) (void)Await(thread);
  const auto found = std::find_if(threads_.begin(), threads_.end(),
                                  [&](const auto& one) { return one.get() == thread; });
  stacks_.push_back(thread->stack);
  threads_.erase(found);
}

bool VirtualThreads::HasEnded(Id thread) { return thread->has_ended; }

void VirtualThreads::SetName(Id thread, std::string name) { thread->name = std::move(name); }

// --- Time ----------------------------------------------------------------------------------------

VirtualHost& VirtualThreads::host() const { return current_->host; }

int64_t VirtualThreads::ReadRawTime() {
  now_ += static_cast<int64_t>(random_.Below(kClockNsMax));
  const int64_t time = host().RawTime(now_);
  MayPreempt();  // what it makes of that comes late
  return time;
}

int64_t VirtualThreads::ReadBootTime() {
  now_ += static_cast<int64_t>(random_.Below(kClockNsMax));
  const int64_t time = host().BootTime(now_);
  MayPreempt();
  return time;
}

// --- Waiting -------------------------------------------------------------------------------------

void VirtualThreads::MayPreempt() {
  if (calls_until_preempted_-- > 0) return;
  calls_until_preempted_ = random_.Gap(options_.preempt_per_10k);
  if (random_.Chance(options_.stall_percent))
    current_->set_aside_until = now_ + static_cast<int64_t>(random_.Below(options_.stall_ns_max));
  Switch();
}

void VirtualThreads::Yield() { Switch(); }

void VirtualThreads::SleepUntil(int64_t time) {
  while (now_ < time) (void)Await(current_, time);
}

bool VirtualThreads::Await(const void* address, int64_t time) {
  current_->awaits = address;
  current_->wakes_at = time;
  current_->is_woken = false;
  Switch();
  return current_->is_woken;
}

void VirtualThreads::Wake(const void* address, bool all) {
  size_t waiting = 0;
  for (const auto& thread : threads_) waiting += thread->awaits == address ? 1 : 0;
  if (waiting == 0) return;
  size_t chosen = all ? waiting : random_.Below(waiting);
  for (const auto& thread : threads_) {
    if (thread->awaits != address) continue;
    if (all || chosen-- == 0) {
      thread->awaits = nullptr;
      thread->is_woken = true;
      if (!all) return;
    }
  }
}

void VirtualThreads::Switch() {
  ++switches_;
  Thread* const before = current_;
  current_ = Choose();
  if (current_ != before) swapcontext(&before->context, &current_->context);
}

VirtualThreads::Thread* VirtualThreads::Choose() {
  now_ += 1 + static_cast<int64_t>(random_.Below(kSwitchNsMax));
  for (;;) {
    if (Thread* const thread = ChooseReady(); thread != nullptr) return thread;
    const int64_t next = NextTime();
    if (next == kNever) ReportDeadlock();
    now_ = std::max(now_, next);
  }
}

VirtualThreads::Thread* VirtualThreads::ChooseReady() {
  Thread* chosen = nullptr;
  uint64_t ready = 0;
  for (const auto& thread : threads_) {
    if (thread->has_ended) continue;
    if (thread->awaits != nullptr && thread->wakes_at <= now_) thread->awaits = nullptr;
    if (thread->awaits != nullptr || thread->set_aside_until > now_ ||
        thread->host.stopped_until > now_)
      continue;
    if (random_.Below(++ready) == 0) chosen = thread.get();
  }
  return chosen;
}

// When a thread can go on; kNever: none will.
int64_t VirtualThreads::NextTime() const {
  int64_t next = kNever;
  for (const auto& thread : threads_) {
    if (thread->has_ended) continue;
    const int64_t wakes_at = thread->awaits == nullptr ? 0 : thread->wakes_at;
    if (wakes_at == kNever) continue;
    next =
        std::min(next, std::max({wakes_at, thread->set_aside_until, thread->host.stopped_until}));
  }
  return next;
}

void VirtualThreads::ReportDeadlock() const {
  std::cerr << "no thread can go on:";
  for (const auto& thread : threads_) {
    if (!thread->has_ended) std::cerr << " " << thread->host.name << "/" << thread->name;
  }
  std::cerr << std::endl;
  std::abort();
}

}  // namespace osprey
