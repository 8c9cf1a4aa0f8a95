#include "index/writer/segments.h"

#include <cassert>

#include "index/layout/test_hooks.h"

namespace osprey::index {

void Segments::LayOut() {
  const DirectoryEntry only = Begin(0, 0);
  WriteEmpty(only);
  keys_.directory.LayOut(only);
}

uint32_t Segments::ShallowestDepth() const {
  uint32_t depth = 0;
  while (of_depth_[depth] == 0) ++depth;
  return depth;
}

bool Segments::Replace(absl::Span<const DirectoryEntry> ended, absl::Span<Begun> begun) {
  uint64_t chain_lines = 0;
  for (const Begun& segment : begun) chain_lines += segment.image->chain_lines();
  // (Chains may take units themselves.)
  const auto has_units = [&] { return keys_.space.replacements_left() >= begun.size(); };
  if (!has_units() || !keys_.chains.Reserve(chain_lines) || !has_units()) return false;
  // A version that none of the records that this step rewrites has.
  keys_.writer.NextCasVersion();
  for (Begun& segment : begun) segment.entry = Begin(segment.hash_bits, segment.depth);
  if (IsMutant(Mutant::kDirectoryBeforeCopy)) {
    for (const Begun& segment : begun) WriteEmpty(segment.entry);
    for (const Begun& segment : begun) keys_.directory.Name(segment.hash_bits, segment.entry);
  }
  for (const Begun& segment : begun) Write(*segment.image, segment.entry);
  ObserveCopiedHalves(table_);
  for (const Begun& segment : begun) keys_.directory.Name(segment.hash_bits, segment.entry);
  for (const DirectoryEntry& segment : ended) End(segment);
  return true;
}

DirectoryEntry Segments::Begin(uint32_t hash_bits, uint32_t depth) {
  const absl::optional<uint64_t> unit = keys_.space.TakeReplacement();
  assert(unit.has_value());
  DirectoryEntry entry;
  entry.unit = keys_.UnitOf(*unit);
  entry.depth = depth;
  entry.generation = IsMutant(Mutant::kGenerationKeptOnReuse)
                         ? 1 + entry.unit
                         : (generation_ = NextGeneration(generation_));
  if (keys_.segments.size() <= entry.unit) keys_.segments.resize(entry.unit + 1);
  keys_.segments[entry.unit] = {};
  keys_.segments[entry.unit].hash_bits = hash_bits;
  ++of_depth_[depth];
  ++count_;
  return entry;
}

void Segments::Write(const SegmentImage& image, DirectoryEntry entry) {
  uint64_t links[kLinesPerUnit] = {};
  image.ForEachChain([&](uint32_t home, absl::Span<const Chains::Key> keys) {
    links[home] = keys_.chains.Build(keys, entry.generation);
  });
  const uint64_t segment = keys_.UnitOffset(entry.unit);
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    Line line = image.lines[i];
    if (links[i] != 0) line.words[kLinkWord] = PackLink(links[i]);
    const uint64_t offset = segment + i * kLineBytes;
    keys_.writer.WriteRecord(
        offset, keys_.writer.NextRecordVersion(offset), entry.generation,
        ByteSpan(reinterpret_cast<const std::byte*>(line.words), sizeof(line.words)));
    keys_.clocks.Set(offset, image.clocks[i]);
  }
  keys_.occupied_words += image.words() - image.chained.size();
  SegmentState& counts = keys_.segments[entry.unit];
  counts.words = static_cast<uint32_t>(image.words());
  counts.keys = image.keys;
  counts.small_items = image.small_items;
  counts.expiring = image.expiring;
  if (image.expiring == 0) return;
  counts.expires_from_ns = image.expires_from_ns;
  expirer_.NoteSegment(image.expires_from_ns);
}

void Segments::WriteEmpty(DirectoryEntry entry) {
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    LineEditor::Empty(keys_.writer, keys_.clocks, keys_.UnitOffset(entry.unit) + i * kLineBytes,
                      entry.generation)
        .Publish();
  }
}

// Readers with an older map find lines of generation 0, and refresh the map.
void Segments::End(DirectoryEntry entry) {
  const uint64_t segment = keys_.UnitOffset(entry.unit);
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    const uint64_t offset = segment + i * kLineBytes;
    keys_.occupied_words -= UsedWords(LineAt(keys_.writer, offset));
    keys_.chains.Poison(offset);
    if (IsMutant(Mutant::kOldLinesNotPoisoned)) continue;
    LineEditor::Empty(keys_.writer, keys_.clocks, offset, kGenerationNone).Publish();
  }
  expirer_.Forget(entry.unit);
  keys_.segments[entry.unit] = {};
  keys_.clocks.DropUnit(segment);
  keys_.space.FreeUnit(segment);
  --of_depth_[entry.depth];
  --count_;
}

}  // namespace osprey::index
