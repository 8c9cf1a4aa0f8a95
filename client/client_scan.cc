// The Client's scans.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "client/client_impl.h"
#include "client/common/server_clock.h"
#include "client/read/scans.h"
#include "client/shard_calls.h"

namespace osprey {

namespace {

using Found = client::Scans::Found;

// A page whose long values are still fetched, and its callback. The callbacks own it.
struct Page {
  ScanPage page;
  std::vector<size_t> missing;  // of page.items
  Client::ScanCallback done;
};

// Where a scan goes on that has come to `next` in its shard.
client::ScanPlace PlaceAmongShards(const client::ScanPlace& next, uint32_t shards) {
  if (!next.at_end() || next.shard + 1 >= shards) return next;
  client::ScanPlace beginning;
  beginning.shard = next.shard + 1;
  return beginning;
}

// Without the values above `value_bytes_max`; without any value if that is empty.
std::shared_ptr<Page> PageOf(Found found, absl::optional<uint64_t> value_bytes_max,
                             Client::ScanCallback done) {
  auto page = std::make_shared<Page>();
  page->done = std::move(done);
  page->page.cursor = found.next.Text();
  page->page.items.reserve(found.entries.size());
  for (index::ScanEntry& entry : found.entries) {
    if (value_bytes_max.has_value() && !entry.has_value && entry.value_length <= *value_bytes_max)
      page->missing.push_back(page->page.items.size());
    page->page.items.push_back({std::move(entry.key), std::move(entry.value), entry.has_value,
                                entry.is_inline, entry.value_length, entry.version,
                                client::TtlOf(entry.expiry_ns, found.now_ns)});
  }
  return page;
}

// Fills in the long values. A key that was deleted since it was found has no value and is left out.
void Complete(Page& page, std::vector<absl::StatusOr<Value>> values) {
  std::vector<ScanItem>& items = page.page.items;
  for (size_t i = page.missing.size(); i-- > 0;) {
    ScanItem& item = items[page.missing[i]];
    if (absl::IsNotFound(values[i].status())) {
      std::swap(item, items.back());
      items.pop_back();
      continue;
    }
    if (!values[i].ok()) return page.done(values[i].status());
    item.version = values[i]->version;
    item.value_length = values[i]->bytes.size();
    item.value = std::move(values[i]->bytes);
    item.has_value = true;
    item.ttl = values[i]->ttl;
  }
  page.done(std::move(page.page));
}

}  // namespace

absl::StatusOr<ScanPage> Client::Scan(absl::string_view cursor, const ScanOptions& options) {
  return impl_->Block<ScanPage>(
      [&](auto done) { return StartScan(cursor, options, std::move(done)); });
}

absl::StatusOr<uint64_t> Client::Count(absl::Duration deadline) {
  return impl_->Block<uint64_t>([&](auto done) { return StartCount(std::move(done), deadline); });
}

absl::Status Client::StartScan(absl::string_view cursor, const ScanOptions& options,
                               ScanCallback done) {
  absl::StatusOr<absl::Time> end = impl_->DeadlineOf(options.deadline);
  if (!end.ok()) return end.status();
  client::ShardEngines& engines = impl_->engines();
  absl::StatusOr<client::ScanPlace> from = client::ScanPlace::Parse(cursor);
  if (!from.ok()) return from.status();
  const uint32_t shard = from->shard;
  if (shard >= engines.count()) {
    return MakeError(Reason::kBadCursor,
                     absl::StrCat("the cursor is of shard ", shard, ", and there are ",
                                  engines.count(), " shards; \"\" begins a scan"));
  }
  client::Scans::Request request;
  request.from = *from;
  request.prefix = options.prefix;
  request.limit = std::max<uint64_t>(options.limit, 1);
  request.values = options.values;
  request.deadline = *end;
  absl::optional<uint64_t> value_bytes_max;
  if (options.values) value_bytes_max = options.value_bytes_max;
  request.done = [this, shards = engines.count(), value_bytes_max, deadline = options.deadline,
                  done = std::move(done)](absl::StatusOr<Found> found) mutable {
    if (!found.ok()) return done(found.status());
    found->next = PlaceAmongShards(found->next, shards);
    const std::shared_ptr<Page> page = PageOf(*std::move(found), value_bytes_max, std::move(done));
    if (page->missing.empty()) return page->done(std::move(page->page));
    std::vector<absl::string_view> keys;
    for (const size_t i : page->missing) keys.push_back(page->page.items[i].key);
    const absl::Status started = StartMultiGet(
        keys, [page](auto fetched) { Complete(*page, std::move(fetched)); }, deadline);
    if (!started.ok()) page->done(started);
  };
  return engines.at(shard).start().Scan(std::move(request));
}

absl::Status Client::StartCount(WriteCallback done, absl::Duration deadline) {
  absl::StatusOr<absl::Time> end = impl_->DeadlineOf(deadline);
  if (!end.ok()) return end.status();
  return client::SumOfShards(
      impl_->engines(),
      [&](client::ClientEngine& engine, WriteCallback one) {
        client::Scans::Request request;
        request.limit = UINT64_MAX;
        request.count_only = true;
        request.deadline = *end;
        request.done = [one = std::move(one)](absl::StatusOr<Found> found) mutable {
          if (!found.ok()) return one(found.status());
          one(found->count);
        };
        return engine.start().Scan(std::move(request));
      },
      std::move(done));
}

}  // namespace osprey
