#include "tests/server/wal/sim_disk.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace osprey::server::wal {

using Sector = SimInode::Sector;

namespace {

// "log", "checkpoint", or the name.
std::string StaleKey(const std::string& name) { return name.substr(0, name.find_first_of("-.")); }

}  // namespace

class SimFile final : public File {
 public:
  SimFile(SimDisk& disk, std::shared_ptr<SimInode> inode) : disk_(disk), inode_(std::move(inode)) {}
  absl::Status Write(uint64_t offset, absl::Span<const Bytes> pieces) override {
    return disk_.Write(*inode_, offset, pieces);
  }
  absl::Status Sync() override { return disk_.Sync(*inode_); }
  absl::Status Reserve(uint64_t offset, uint64_t bytes) override {
    return disk_.Reserve(*inode_, offset + bytes);
  }
  absl::Status ReleaseReserve() override {
    if (disk_.crashed_) return disk_.Crashed();
    inode_->reserved = 0;
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> ReadPastCache(uint64_t offset, absl::Span<std::byte> to) override {
    assert(offset % kDirectAlignment == 0 && to.size() % kDirectAlignment == 0);
    assert(reinterpret_cast<uintptr_t>(to.data()) % kDirectAlignment == 0);
    if (disk_.crashed_) return disk_.Crashed();
    return disk_.ReadPastCache(*inode_, offset, to);
  }

 private:
  SimDisk& disk_;
  const std::shared_ptr<SimInode> inode_;
};

class SimLock final : public DirectoryLock {
 public:
  explicit SimLock(SimDisk& disk) : disk_(disk) { disk_.locked_ = true; }
  ~SimLock() override { disk_.locked_ = false; }

 private:
  SimDisk& disk_;
};

absl::Status SimDisk::Crashed() const { return absl::UnavailableError("crashed"); }

bool SimDisk::Step() {
  if (crashed_) return false;
  if (steps_left_ != UINT64_MAX && steps_left_-- == 0) crashed_ = true;
  return !crashed_;
}

void SimDisk::GrowDurable(SimInode& inode, uint64_t bytes) {
  if (inode.durable.size() >= bytes) return;
  const std::string& stale = stale_[StaleKey(inode.name)];
  const uint64_t before = inode.durable.size();
  inode.durable.resize(bytes, '\0');
  // Blocks that an earlier file had, and that are not written yet.
  if (stale.size() > before) {
    const uint64_t count = std::min(stale.size(), bytes) - before;
    inode.durable.replace(before, count, stale, before, count);
  }
}

void SimDisk::WriteBack(SimInode& inode, uint64_t sector, bool wrong) {
  const uint64_t begin = sector * kSectorBytes;
  const uint64_t count = std::min(kSectorBytes, inode.cached.size() - begin);
  GrowDurable(inode, begin + kSectorBytes);
  // The rest of the last sector is zero, as the page cache has it.
  inode.durable.replace(begin, kSectorBytes, kSectorBytes, '\0');
  inode.durable.replace(begin, count, inode.cached, begin, count);
  if (wrong) inode.durable[begin + random_.Below(count)] ^= 1;
}

absl::Status SimDisk::Write(SimInode& inode, uint64_t offset, absl::Span<const Bytes> pieces) {
  if (crashed_) return Crashed();
  std::string bytes;
  for (const Bytes& piece : pieces) absl::StrAppend(&bytes, TextOf(piece));
  absl::Status status;
  if (!Step()) {
    status = Crashed();
  } else if (random_.Chance(write_fails_)) {
    status = absl::UnavailableError(absl::StrCat("cannot write ", inode.name));
  }
  const uint64_t end = offset + bytes.size();
  const uint64_t growth = end > inode.SpaceUsed() ? end - inode.SpaceUsed() : 0;
  if (status.ok() && growth > 0 && SpaceUsed() + growth > capacity_)
    status = absl::ResourceExhaustedError(absl::StrCat("no space to write ", inode.name));
  if (!status.ok()) {
    faulted_ |= !crashed_;
    bytes.resize(random_.Below(bytes.size() + 1));
  }
  if (bytes.empty()) return status;
  const uint64_t first = offset / kSectorBytes;
  const uint64_t last = (offset + bytes.size() - 1) / kSectorBytes;
  if (inode.sectors.size() < last + 1) inode.sectors.resize(last + 1, Sector::kDirty);
  for (uint64_t sector = first; sector <= last; ++sector) {
    // Written back in between: the durable one is neither the first nor the last content.
    if (inode.sectors[sector] == Sector::kDirty && sector * kSectorBytes < inode.cached.size() &&
        random_.Chance(12)) {
      WriteBack(inode, sector);
    }
    inode.sectors[sector] = Sector::kDirty;
  }
  if (inode.cached.size() < offset + bytes.size()) inode.cached.resize(offset + bytes.size(), '\0');
  inode.cached.replace(offset, bytes.size(), bytes);
  if (wrong_write_one_in_ > 0 && absl::StartsWith(inode.name, "checkpoint-") &&
      random_.Below(wrong_write_one_in_) == 0) {
    WriteBack(inode, first, /*wrong=*/true);
    inode.sectors[first] = Sector::kLost;
    faulted_ = true;
  }
  return status;
}

absl::Status SimDisk::Reserve(SimInode& inode, uint64_t end) {
  if (crashed_) return Crashed();
  if (!reserves_) return absl::UnavailableError("this file system reserves no space");
  const uint64_t growth = end > inode.SpaceUsed() ? end - inode.SpaceUsed() : 0;
  if (SpaceUsed() + growth > capacity_ || (quota_used_up_ && growth > 0))
    return absl::ResourceExhaustedError(absl::StrCat("no space to reserve for ", inode.name));
  inode.reserved = std::max(inode.reserved, end);
  return absl::OkStatus();
}

uint64_t SimDisk::SpaceUsed() const {
  uint64_t used = 0;
  for (const auto& [name, inode] : names_) used += inode->SpaceUsed();
  return used;
}

absl::Status SimDisk::Sync(SimInode& inode) {
  if (crashed_) return Crashed();
  std::vector<uint64_t> dirty;
  for (uint64_t sector = 0; sector < inode.sectors.size(); ++sector) {
    if (inode.sectors[sector] == Sector::kDirty) dirty.push_back(sector);
  }
  const uint64_t size = inode.cached.size();
  const bool fails = random_.Chance(sync_fails_);
  const bool crashes = !Step();
  if (!crashes && !fails && during_sync_) {
    const std::string before = inode.cached;
    during_sync_(inode.name);
    // The bytes of before the call are on the disk; those of meanwhile need another Sync.
    const std::string after = std::exchange(inode.cached, before);
    for (const uint64_t sector : dirty) WriteBack(inode, sector);
    inode.cached = after;
    for (const uint64_t sector : dirty) {
      const uint64_t begin = sector * kSectorBytes;
      const bool is_same =
          inode.cached.compare(begin, kSectorBytes, before, begin, kSectorBytes) == 0;
      inode.sectors[sector] = is_same ? Sector::kClean : Sector::kDirty;
    }
    inode.durable_size = std::max(inode.durable_size, size);
    return crashed_ ? Crashed() : absl::OkStatus();
  }
  if (crashes || fails) {
    faulted_ |= fails;
    for (const uint64_t sector : dirty) {
      const bool is_written = random_.Chance(50);
      if (is_written) WriteBack(inode, sector);
      inode.sectors[sector] = crashes      ? Sector::kDirty
                              : is_written ? Sector::kClean
                                           : Sector::kLost;
    }
    if (fails && random_.Chance(50)) inode.durable_size = size;
    return crashes ? Crashed() : absl::UnavailableError(absl::StrCat("cannot sync ", inode.name));
  }
  for (const uint64_t sector : dirty) {
    WriteBack(inode, sector);
    inode.sectors[sector] = Sector::kClean;
  }
  inode.durable_size = size;
  return absl::OkStatus();
}

uint64_t SimDisk::ReadPastCache(SimInode& inode, uint64_t offset, absl::Span<std::byte> to) const {
  if (offset >= inode.cached.size()) return 0;
  const uint64_t count = std::min<uint64_t>(to.size(), inode.cached.size() - offset);
  std::memcpy(to.data(), inode.cached.data() + offset, count);
  for (uint64_t sector = offset / kSectorBytes; sector * kSectorBytes < offset + count; ++sector) {
    if (inode.sectors[sector] != Sector::kLost) continue;
    const uint64_t begin = sector * kSectorBytes;
    for (uint64_t i = begin; i < std::min(begin + kSectorBytes, offset + count); ++i)
      to[i - offset] = std::byte(i < inode.durable.size() ? inode.durable[i] : '\0');
  }
  return count;
}

void SimDisk::Kill() {
  crashed_ = locked_ = faulted_ = false;
  steps_left_ = UINT64_MAX;
}

void SimDisk::LosePowerOf(SimInode& inode) {
  for (uint64_t sector = 0; sector < inode.sectors.size(); ++sector) {
    if (inode.sectors[sector] == Sector::kDirty && random_.Chance(50)) WriteBack(inode, sector);
  }
  const uint64_t low = std::min<uint64_t>(inode.durable_size, inode.cached.size());
  uint64_t size = low;
  switch (random_.Below(3)) {
    case 0:
      size = inode.cached.size();
      break;
    case 1:
      size = low + random_.Below(inode.cached.size() - low + 1);
      break;
    default:
      break;
  }
  GrowDurable(inode, size);
  inode.cached = inode.durable.substr(0, size);
  inode.durable.resize(size);
  inode.durable_size = size;
  inode.sectors.assign((size + kSectorBytes - 1) / kSectorBytes, Sector::kClean);
}

void SimDisk::LosePower() {
  std::map<std::string, std::shared_ptr<SimInode>> all = names_, kept;
  all.insert(durable_names_.begin(), durable_names_.end());
  for (const auto& [name, ignored] : all) {
    const auto& from = random_.Chance(50) ? names_ : durable_names_;
    const auto found = from.find(name);
    if (found != from.end()) kept[name] = found->second;
  }
  for (const auto* names : {&names_, &durable_names_}) {
    for (const auto& [name, inode] : *names) LosePowerOf(*inode);
  }
  for (const auto& [name, inode] : names_) {
    if (!kept.contains(name)) stale_[StaleKey(name)] = inode->cached;
  }
  names_ = durable_names_ = std::move(kept);
  Kill();
}

std::vector<std::string> SimDisk::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, inode] : names_) names.push_back(name);
  return names;
}

uint64_t SimDisk::SizeOf(const std::string& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? 0 : found->second->cached.size();
}

uint64_t SimDisk::SpaceOf(const std::string& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? 0 : found->second->SpaceUsed();
}

void SimDisk::Put(const std::string& name, std::string bytes) {
  auto inode = std::make_shared<SimInode>();
  inode->name = name;
  inode->sectors.assign((bytes.size() + kSectorBytes - 1) / kSectorBytes, Sector::kClean);
  inode->durable_size = bytes.size();
  inode->durable = bytes;
  inode->cached = std::move(bytes);
  names_[name] = durable_names_[name] = std::move(inode);
}

void SimDisk::Hide(const std::string& name) {
  hidden_names_ = names_;
  hidden_durable_names_ = durable_names_;
  names_.erase(name);
  durable_names_.erase(name);
}

void SimDisk::Unhide() {
  names_ = std::move(hidden_names_);
  durable_names_ = std::move(hidden_durable_names_);
}

void SimDisk::FlipBit(const std::string& name, uint64_t offset, uint8_t bit) {
  SimInode& inode = *names_.at(name);
  inode.cached[offset] ^= static_cast<char>(1 << bit);
  if (offset < inode.durable.size()) inode.durable[offset] ^= static_cast<char>(1 << bit);
}

absl::StatusOr<std::unique_ptr<File>> SimDisk::Create(const std::string& name) {
  if (crashed_) return Crashed();
  if (names_.contains(name)) return absl::AlreadyExistsError(PathOf(name));
  const bool goes_on = Step();
  if (!goes_on && random_.Chance(50)) return Crashed();
  auto inode = std::make_shared<SimInode>();
  inode->name = name;
  names_[name] = inode;
  if (!goes_on) return Crashed();
  return std::make_unique<SimFile>(*this, std::move(inode));
}

absl::StatusOr<std::unique_ptr<File>> SimDisk::Open(const std::string& name) {
  if (crashed_) return Crashed();
  const auto found = names_.find(name);
  if (found == names_.end()) return absl::NotFoundError(PathOf(name));
  return std::make_unique<SimFile>(*this, found->second);
}

absl::StatusOr<uint64_t> SimDisk::FileBytes(const std::string& name) {
  if (crashed_) return Crashed();
  if (!names_.contains(name)) return absl::NotFoundError(PathOf(name));
  return SizeOf(name);
}

absl::Status SimDisk::LinkFrom(FileSystem& other, const std::string& name) {
  if (crashed_) return Crashed();
  if (!links_) return absl::UnimplementedError(PathOf(name));
  const auto& others = static_cast<SimDisk&>(other).names_;
  const auto found = others.find(name);
  if (found == others.end()) return absl::NotFoundError(other.PathOf(name));
  if (names_.contains(name)) return absl::AlreadyExistsError(PathOf(name));
  const bool goes_on = Step();
  if (goes_on || random_.Chance(50)) names_[name] = found->second;
  return goes_on ? absl::OkStatus() : Crashed();
}

absl::Status SimDisk::Rename(const std::string& from, const std::string& to) {
  if (crashed_) return Crashed();
  const bool goes_on = Step();
  if (goes_on || random_.Chance(50)) {
    const auto found = names_.find(from);
    if (found == names_.end()) return absl::NotFoundError(PathOf(from));
    const std::shared_ptr<SimInode> inode = found->second;
    inode->name = to;
    names_[to] = inode;
    names_.erase(from);
  }
  return goes_on ? absl::OkStatus() : Crashed();
}

absl::Status SimDisk::Remove(const std::string& name) {
  if (crashed_) return Crashed();
  const auto found = names_.find(name);
  if (found == names_.end()) return absl::NotFoundError(PathOf(name));
  const bool goes_on = Step();
  if (goes_on || random_.Chance(50)) {
    stale_[StaleKey(name)] = found->second->cached;
    names_.erase(found);
  }
  return goes_on ? absl::OkStatus() : Crashed();
}

absl::Status SimDisk::SyncDirectory() {
  if (crashed_) return Crashed();
  const bool goes_on = Step();
  if (!goes_on) return Crashed();
  if (random_.Chance(sync_fails_)) {
    faulted_ = true;
    return absl::UnavailableError("cannot sync the directory");
  }
  durable_names_ = names_;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> SimDisk::List() {
  if (crashed_) return Crashed();
  return Names();
}

absl::StatusOr<uint64_t> SimDisk::FreeBytes() {
  if (crashed_) return Crashed();
  const uint64_t used = SpaceUsed();
  return used >= capacity_ ? 0 : capacity_ - used;
}

absl::StatusOr<std::unique_ptr<DirectoryLock>> SimDisk::Lock(LockHolder) {
  if (locked_) return absl::FailedPreconditionError("another server uses the data directory /data");
  return std::make_unique<SimLock>(*this);
}

}  // namespace osprey::server::wal
