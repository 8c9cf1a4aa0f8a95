// One writer and several readers, interleaved store by store from a seed, and a check of the
// readers' answers.
//
// The writer runs the table as it ships. Before each store into the region its observer lets the
// readers continue. Each has a READ under way whose bytes are copied in pieces, in any order, a few
// at a time. So any state of the region between two stores may appear in any part of any READ.
//
// Every write gives its key a new state with a number. A GET must answer with a state that the key
// had at some moment between its start and its end. The state must not be older than that of a GET
// that had ended before it began. That is linearizability of each key, misses included, for one
// writer.
//
// A growing table splits its segments all the time, however few keys they have. Readers use maps of
// any age.
//
// In a table whose keys expire, the server's clock advances between any two stores. At its expiry a
// state is followed by the absence of the key, without any store. The exception is a write whose
// success implies that the key was there, and that extended its life. Readers have the time to
// within an error.

#ifndef OSPREY_TESTS_INDEX_INTERLEAVING_H_
#define OSPREY_TESTS_INDEX_INTERLEAVING_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "index/layout/test_hooks.h"
#include "index/reader/lookup.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"

namespace osprey::index {

enum class Scene { kSteady, kGrowing, kExpiring };

struct InterleavingCounts {
  uint64_t gets = 0;
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t asked_server = 0;
  uint64_t reads = 0;
  uint64_t torn = 0;
  uint64_t restarts = 0;
  uint64_t stale_hints = 0;
  uint64_t refreshes = 0;  // of an old map, by a lookup
  uint64_t in_pieces = 0;  // values READ in pieces, and of those the torn ones
  uint64_t torn_in_pieces = 0;
  uint64_t found_expired = 0;     // GETs that only an expiry explains
  uint64_t expired_in_write = 0;  // writes whose key expired between their beginning and their end
};

class Interleaving : public StoreObserver {
 public:
  explicit Interleaving(uint64_t seed, Scene scene = Scene::kSteady);
  ~Interleaving() override;

  // Does so many writes. Returns a description of the first wrong answer, or "" if all were right.
  std::string Run(int writes);

  const InterleavingCounts& counts() const { return counts_; }
  Table::Stats table_stats() const { return table_->stats(); }

  void BeforeStore() override;
  void BetweenCopyAndPublish(Table& table) override;
  void BeforeEviction(absl::string_view key) override;

 private:
  struct State {
    absl::optional<std::string> value;  // nullopt: absent
    uint64_t expiry_ns = 0;             // 0: none
    bool outlived = false;              // the key was there until the next write
  };
  // The permitted answers of a GET, in order: state i (2 i), and the expiry of state i (2 i + 1).
  struct Key {
    std::string name;
    std::vector<State> states{State()};  // the first is absent
    uint64_t begun = 0;                  // the newest state that a write has begun
    uint64_t completed = 0;              // the newest that a write has completed
    uint64_t seen = 0;                   // the newest answer of a GET
    uint64_t version = 0;                // of the newest state
    std::vector<uint64_t> hints;
  };
  struct Piece {
    uint32_t from;
    uint32_t bytes;
  };
  struct Reader {
    std::unique_ptr<DirectoryCache> map;
    std::unique_ptr<Lookup> lookup;  // null: idle
    Key* key = nullptr;
    uint64_t floor = 0;        // the oldest permitted answer
    uint64_t began_at_ns = 0;  // by the server's clock
    ServerTimeBounds time;     // of the READ under way
    Lookup::Step step;
    std::vector<std::byte> bytes;
    std::vector<Piece> pieces;  // still to be copied, from the back
    std::string value;          // READ in pieces
    int stalled = 0;            // stores until it continues
  };

  void ChooseKeys();
  void Write();
  void WriteInTime(Key& key);
  void EndWriteInTime(Key& key, const WriteResult& result, bool needs_presence,
                      uint64_t began_at_ns);
  void Sweep();
  void AskServer(Key& key);
  void Judge(Key& key, uint64_t floor, uint64_t began_at_ns,
             const absl::optional<std::string>& answer, uint64_t expiry_ns);
  bool HasPassed(uint64_t expiry_ns) const { return expiry_ns != 0 && clock_ns_ >= expiry_ns; }
  void Grow();
  void Compact();
  void Evict();
  void BeginState(Key& key, absl::optional<std::string> value, uint64_t expiry_ns = 0);
  Key& ChooseKey();
  std::string NewValue(const Key& key);
  uint64_t Random(uint64_t below) { return random_() % below; }

  void Advance(Reader& reader);
  void StartGet(Reader& reader);
  void PostRead(Reader& reader);
  void TakeValue(Reader& reader);
  void EndGet(Reader& reader);

  std::mt19937_64 random_;
  const Scene scene_;
  const bool evicting_;
  RegionMemory memory_;
  std::unique_ptr<Table> table_;
  std::vector<Key> keys_;
  std::vector<Reader> readers_;
  std::vector<DirectoryCache> old_maps_;
  uint64_t value_bytes_min_ = 0;
  uint64_t value_bytes_max_ = 0;
  uint64_t reserve_percent_ = 0;
  uint64_t delete_percent_ = 0;
  uint64_t whole_read_bytes_max_ = 0;
  uint64_t value_number_ = 0;
  int64_t now_ = 0;
  uint64_t clock_ns_ = uint64_t{1763765432} * 1000000000;
  uint64_t clock_error_ns_ = 0;
  std::string wrong_;
  InterleavingCounts counts_;
};

}  // namespace osprey::index

#endif  // OSPREY_TESTS_INDEX_INTERLEAVING_H_
