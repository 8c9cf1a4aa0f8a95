#include "tests/server/cluster/replication/register_writes.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

bool Contains(const std::vector<uint64_t>& writes, uint64_t write) {
  return std::find(writes.begin(), writes.end(), write) != writes.end();
}

}  // namespace

std::vector<uint64_t> WritesOf(const ReplicatedGroup& group) {
  std::vector<uint64_t> writes(group.bytes() / sizeof(uint64_t));
  std::memcpy(writes.data(), group.body->data(), group.bytes());
  return writes;
}

std::string BodyOf(const std::vector<uint64_t>& writes) {
  return std::string(reinterpret_cast<const char*>(writes.data()),
                     writes.size() * sizeof(uint64_t));
}

bool HasWrite(const std::vector<uint64_t>& applied, const ReplicaLog& log, uint64_t write) {
  if (Contains(applied, write)) return true;
  for (uint64_t lsn = log.applied(); const ReplicatedGroup* group = log.After(lsn);
       lsn = group->last_lsn) {
    if (Contains(WritesOf(*group), write)) return true;
  }
  return false;
}

std::string SeenWrites::See(const std::vector<uint64_t>& writes) {
  const auto [a, b] = std::mismatch(writes.begin(), writes.end(), seen_.begin(), seen_.end());
  if (a != writes.end() && b != seen_.end())
    return absl::StrCat("write ", *b, " was seen, and is ", *a, " now");
  for (auto next = a; next != writes.end(); ++next) {
    if (Contains(seen_, *next)) return absl::StrCat("write ", *next, " was made twice");
    seen_.push_back(*next);
  }
  return "";
}

std::string SeenWrites::Read(const std::string& where, const std::vector<uint64_t>& writes) {
  if (writes.size() < seen_.size())
    return absl::StrCat(where, " finds ", writes.size(), " writes of ", seen_.size());
  return See(writes);
}

}  // namespace osprey
