#include "index/space/update_room.h"

#include <algorithm>

#include "absl/types/optional.h"
#include "index/layout/layout.h"
#include "index/layout/record.h"

namespace osprey::index {

void UpdateRoom::TakeBack() {
  while (pages_ < pages_max_) {
    const uint64_t pages = std::min(pages_max_ - pages_, space_.LargestFreeRun());
    if (pages == 0) return;
    const absl::optional<uint64_t> run = space_.TakeRun(pages);
    if (!run.has_value()) return;
    // Other code sees an item that is being written.
    writer_.Begin(*run, RecordVersion(writer_.cas_version()), ItemTag{0, ItemState::kDead}.Pack());
    runs_.push_back(*run);
    pages_ += pages;
  }
}

void UpdateRoom::Lend() {
  for (const uint64_t run : runs_) space_.Release(run);
  runs_.clear();
  pages_ = 0;
}

}  // namespace osprey::index
