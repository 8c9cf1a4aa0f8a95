#include "tools/terminal/progress.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tools/terminal/units.h"

namespace osprey {
namespace {

constexpr int kBarColumns = 24;
constexpr absl::Duration kDrawEvery() { return absl::Milliseconds(200); }

}  // namespace

Progress::Progress(bool draws, std::string verb, uint64_t total)
    : draws_(draws), verb_(std::move(verb)), total_(total), start_(absl::Now()) {}

absl::Duration Progress::elapsed() const {
  return std::max(absl::Now() - start_, absl::Microseconds(1));
}

std::string Progress::Line(const std::string& verb, const State& state) {
  std::string line = verb;
  const double part = std::min(state.part, 1.0);
  if (part >= 0) {
    const int full = static_cast<int>(part * kBarColumns);
    absl::StrAppendFormat(&line, " [%s%s] %3.0f %%", std::string(full, '#'),
                          std::string(kBarColumns - full, '.'), std::floor(part * 100));
  }
  const double seconds = absl::ToDoubleSeconds(state.elapsed);
  if (state.records > 0) {
    absl::StrAppend(&line, "  ", ShortNumber(static_cast<double>(state.records)), " records  ",
                    ShortNumber(static_cast<double>(state.records) / seconds), "/s");
  } else {
    absl::StrAppend(&line, "  ", ShortBytes(static_cast<double>(state.bytes)));
  }
  absl::StrAppend(&line, "  ", ShortBytes(static_cast<double>(state.bytes) / seconds), "/s");
  if (part > 0) absl::StrAppend(&line, "  ", ShortTime(seconds / part * (1 - part)), " left");
  return line;
}

void Progress::Update(uint64_t done, uint64_t records, uint64_t bytes) {
  if (!draws_) return;
  const absl::Time now = absl::Now();
  if (now - drawn_ < kDrawEvery()) return;
  drawn_ = now;
  State state;
  if (total_ > 0) state.part = static_cast<double>(done) / static_cast<double>(total_);
  state.records = records;
  state.bytes = bytes;
  state.elapsed = elapsed();
  std::cerr << "\r\x1b[K" << Line(verb_, state) << std::flush;
  is_drawn_ = true;
}

void Progress::Clear() {
  if (is_drawn_) std::cerr << "\r\x1b[K" << std::flush;
  is_drawn_ = false;
}

}  // namespace osprey
