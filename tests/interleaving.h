// One writer and several readers, interleaved store by store from a seed, and a judge of what the
// readers saw.
//
// The writer runs the table as it ships. Before each store into the region its observer lets the
// readers go on: each has a READ under way whose bytes are copied in pieces, in any order, a few at
// a time, so that any state of the region between two stores may end up in any part of any READ.
//
// Every write gives its key a new state, numbered. A GET must answer with a state that the key had
// at some moment between its start and its end, and never with one older than a GET that had ended
// before it began: that is linearizability of each key, misses included, for one writer.
//
// A growing table splits its segments all the time, however few keys they have, and readers go on
// with maps of any age.

#ifndef OSPREY_TESTS_INTERLEAVING_H_
#define OSPREY_TESTS_INTERLEAVING_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "index/lookup.h"
#include "index/table.h"
#include "index/test_hooks.h"
#include "tests/index_test_util.h"

namespace osprey::index {

struct InterleavingCounts {
  uint64_t gets = 0;
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t asked_server = 0;
  uint64_t reads = 0;
  uint64_t torn = 0;
  uint64_t restarts = 0;
  uint64_t stale_hints = 0;
  uint64_t refreshes = 0;  // of a map, by a lookup that found it old
  uint64_t in_pieces = 0;  // values READ in pieces, and of those the torn ones
  uint64_t torn_in_pieces = 0;
};

class Interleaving : public StoreObserver {
 public:
  explicit Interleaving(uint64_t seed, bool growing = false);
  ~Interleaving() override;

  // Makes so many writes. Returns the first wrong answer in words, or "" when all were right.
  std::string Run(int writes);

  const InterleavingCounts& counts() const { return counts_; }
  Table::Stats table_stats() const { return table_->stats(); }

  void BeforeStore() override;
  void BetweenCopyAndPublish() override;
  void BeforeEviction(absl::string_view key) override;

 private:
  struct Key {
    std::string name;
    // The value of each state; nullopt: absent. The first is absent.
    std::vector<absl::optional<std::string>> states{absl::nullopt};
    uint64_t begun = 0;      // the newest state that a write has begun
    uint64_t completed = 0;  // the newest that a write has completed
    uint64_t seen = 0;       // the newest that a GET has answered with
    std::vector<uint64_t> hints;
  };
  struct Piece {
    uint32_t from;
    uint32_t bytes;
  };
  struct Reader {
    std::unique_ptr<RegionMap> map;
    std::unique_ptr<Lookup> lookup;  // null: idle
    Key* key = nullptr;
    uint64_t floor = 0;  // the oldest state that may be answered
    Lookup::Step step;
    std::vector<std::byte> bytes;
    std::vector<Piece> pieces;  // still to be copied, from the back
    std::string value;          // READ in pieces
    int stalled = 0;            // stores to sit out
  };

  void ChooseKeys();
  void Write();
  void Grow();
  void Compact();
  void Evict();
  void BeginState(Key& key, absl::optional<std::string> value);
  std::string NewValue(const Key& key);
  uint64_t Random(uint64_t below) { return random_() % below; }

  void Advance(Reader& reader);
  void StartGet(Reader& reader);
  void PostRead(Reader& reader);
  void TakeValue(Reader& reader);
  void EndGet(Reader& reader);

  std::mt19937_64 random_;
  const bool growing_;
  const bool evicting_;
  RegionMemory memory_;
  std::unique_ptr<Table> table_;
  std::vector<Key> keys_;
  std::vector<Reader> readers_;
  std::vector<RegionMap> old_maps_;
  uint64_t value_bytes_min_ = 0;
  uint64_t value_bytes_max_ = 0;
  uint64_t reserve_percent_ = 0;
  uint64_t delete_percent_ = 0;
  uint64_t whole_read_bytes_max_ = 0;
  uint64_t value_number_ = 0;
  int64_t now_ = 0;
  std::string wrong_;
  InterleavingCounts counts_;
};

}  // namespace osprey::index

#endif  // OSPREY_TESTS_INTERLEAVING_H_
