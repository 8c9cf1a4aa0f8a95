#include "tests/history/journal.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace osprey {

struct Journal::Header {
  std::atomic<uint64_t> count;
};

struct Journal::Entry {
  // 1 once the record is whole; stored with release after it, loaded with acquire before it.
  std::atomic<uint32_t> whole;
  JournalRecord record;
};

static_assert(std::is_trivially_copyable_v<JournalRecord>);

namespace {

constexpr size_t kHeaderBytes = 4096;

absl::Status SystemError(absl::string_view what, const std::string& path) {
  return absl::InternalError(absl::StrCat(what, " ", path, ": ", std::strerror(errno)));
}

absl::StatusOr<void*> Map(const std::string& path, int flags, int protection, size_t bytes) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (fd < 0) return SystemError("open", path);
  void* mapping = MAP_FAILED;
  // If a process was killed in between, the file is empty, and reads return 0.
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0)
    mapping = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  const absl::Status failed = SystemError("mmap", path);
  close(fd);
  if (mapping == MAP_FAILED) return failed;
  return mapping;
}

}  // namespace

size_t Journal::Bytes() { return kHeaderBytes + kEntries * sizeof(Entry); }

Journal::Entry* Journal::EntriesOf(void* mapping) {
  return reinterpret_cast<Entry*>(static_cast<std::byte*>(mapping) + kHeaderBytes);
}

absl::StatusOr<std::unique_ptr<Journal>> Journal::Create(const std::string& path) {
  const absl::StatusOr<void*> mapping =
      Map(path, O_RDWR | O_CREAT | O_TRUNC, PROT_READ | PROT_WRITE, Bytes());
  if (!mapping.ok()) return mapping.status();
  return std::unique_ptr<Journal>(new Journal(*mapping));
}

Journal::~Journal() { munmap(mapping_, Bytes()); }

absl::StatusOr<std::vector<JournalRecord>> Journal::Read(const std::string& path) {
  const absl::StatusOr<void*> mapping = Map(path, O_RDWR, PROT_READ, Bytes());
  if (!mapping.ok()) return mapping.status();
  const uint64_t count = std::min<uint64_t>(static_cast<Header*>(*mapping)->count.load(), kEntries);
  std::vector<JournalRecord> records;
  for (uint64_t i = 0; i < count; ++i) {
    const Entry& entry = EntriesOf(*mapping)[i];
    // Killed before it was whole: the operation was not started either.
    if (entry.whole.load(std::memory_order_acquire) == 1) records.push_back(entry.record);
  }
  munmap(*mapping, Bytes());
  return records;
}

JournalRecord* Journal::Call(const JournalRecord& call) {
  const uint64_t index = static_cast<Header*>(mapping_)->count.fetch_add(1);
  if (index >= kEntries) return nullptr;
  Entry& entry = EntriesOf(mapping_)[index];
  entry.record = call;
  entry.whole.store(1, std::memory_order_release);
  return &entry.record;
}

void Journal::Return(JournalRecord* record) {
  std::atomic_signal_fence(std::memory_order_release);  // the record's fields come first
  record->returned = true;
}

}  // namespace osprey
